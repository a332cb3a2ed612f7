//! `profile`: the time of a model's run, node by node.

mod chart;
mod memory;
mod trace;

use crate::failure::Result;
use crate::files::{self, Staged};
use crate::measure;
use crate::model::{InputFiles, Loaded, Opened, Setup};
use crate::output::{self, Output};
use lgp_sdk::measure::profile_cpu;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The number of nodes in the text, the most expensive ones.
const NODES_SHOWN: usize = 15;

/// Flags of `profile`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster profile resnet50.onnx --output-dir out\n\n\
    It writes MODEL.trace.json, which chrome://tracing and Perfetto show, and MODEL.svg; on a device\n\
    MODEL.memory.csv and MODEL.memory.svg too.\n\
    A batch is measured as a whole; run and bench may take its images one by one.\n\
    Inputs that are not given are made up as bench makes them up.")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    #[command(flatten)]
    files: InputFiles,
    /// Where to write the trace and the picture
    #[arg(long, value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,
    #[command(flatten)]
    setup: Setup,
    /// Runs; the fastest one is shown
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    device: String,
    threads: usize,
    batch: usize,
    precision: &'static str,
    runs: u32,
    total_ms: f64,
    /// The time between the nodes.
    overhead_ms: f64,
    operators: Vec<Operator>,
    nodes: Vec<Node>,
    trace: String,
    svg: String,
    /// On a device: its memory figures, the files with all events, and the picture of memory by
    /// owner.
    memory: Option<memory::Memory>,
    memory_csv: Option<String>,
    memory_svg: Option<String>,
}

#[derive(Debug, Serialize)]
struct Operator {
    op: &'static str,
    nodes: usize,
    ms: f64,
    /// Its share of the whole run, 0 to 1.
    share: f64,
}

#[derive(Debug, Serialize)]
struct Node {
    name: String,
    op: &'static str,
    start_ms: f64,
    ms: f64,
    bytes_read: usize,
    bytes_written: usize,
    multiply_adds: u64,
    outputs: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let Opened { loaded, inputs, batch } =
        args.setup.open(Some(args.model.as_path()), &args.files)?;
    let Loaded { session, device, threads, .. } = loaded;
    if let Some(accelerator) = session.accelerator() {
        accelerator.pool().start_log(memory::EVENTS_MAX);
    }
    let profile = profile_cpu(&session, &inputs, args.runs)?.fastest;
    let stem = args.model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let trace_file = args.output_dir.join(format!("{stem}.trace.json"));
    let svg_file = args.output_dir.join(format!("{stem}.svg"));
    files::make_folder(&args.output_dir)?;
    let trace = Staged::new(&trace_file, trace::events(&profile)?.as_bytes())?;
    let svg = Staged::new(&svg_file, chart::svg(&profile, &stem)?.as_bytes())?;
    let memory = session.accelerator().map(|device| -> Result<_> {
        let profile = memory::profile(device)?;
        let [csv, svg] =
            ["csv", "svg"].map(|ending| args.output_dir.join(format!("{stem}.memory.{ending}")));
        let staged = [
            Staged::new(&csv, &memory::csv(&profile)?)?,
            Staged::new(&svg, memory::svg(&profile, &stem)?.as_bytes())?,
        ];
        Ok((memory::told(&profile, device), [csv, svg], staged))
    });
    let (memory, memory_files) = match memory.transpose()? {
        None => (None, None),
        Some((memory, files, staged)) => {
            staged.into_iter().try_for_each(Staged::place)?;
            (Some(memory), Some(files.map(|file| file.display().to_string())))
        }
    };
    let [memory_csv, memory_svg] = memory_files.map_or([None, None], |files| files.map(Some));
    trace.place()?;
    svg.place()?;
    let share = |time: Duration| time.as_secs_f64() / profile.total.as_secs_f64().max(1e-12);
    let operators = profile.by_operator().into_iter().map(|(op, nodes, time)| Operator {
        op,
        nodes,
        ms: measure::ms(time),
        share: share(time),
    });
    let nodes = profile.nodes.iter().map(|node| Node {
        name: node.name.clone(),
        op: node.op,
        start_ms: measure::ms(node.start),
        ms: measure::ms(node.duration),
        bytes_read: node.bytes_read,
        bytes_written: node.bytes_written,
        multiply_adds: node.multiply_adds,
        outputs: node.outputs.iter().map(ToString::to_string).collect(),
    });
    let report = Report {
        model: args.model.display().to_string(),
        device,
        threads,
        batch,
        precision: args.setup.machine.precision.name(),
        runs: args.runs,
        total_ms: measure::ms(profile.total),
        overhead_ms: measure::ms(profile.overhead()),
        operators: operators.collect(),
        nodes: nodes.collect(),
        trace: trace_file.display().to_string(),
        svg: svg_file.display().to_string(),
        memory,
        memory_csv,
        memory_svg,
    };
    out.emit(&report, text)
}

fn text(report: &Report) -> String {
    let Report { model, device, threads, batch, precision, runs, total_ms, overhead_ms, .. } =
        report;
    let operators = report.operators.iter().map(|o| {
        let share = format!("{:.1}", 100. * o.share);
        [format!("  {}", o.op), o.nodes.to_string(), format!("{:.3}", o.ms), share]
    });
    let operators = output::table(["  operator", "nodes", "ms", "%"], operators);
    let mut nodes: Vec<&Node> = report.nodes.iter().collect();
    nodes.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let rest = nodes.len().saturating_sub(NODES_SHOWN);
    let rows = nodes.iter().take(NODES_SHOWN).map(|n| {
        [format!("  {}", n.name), n.op.to_owned(), format!("{:.3}", n.ms), n.outputs.join(" ")]
    });
    let rows = output::table(["  node", "operator", "ms", "makes"], rows);
    let more = if rest > 0 { format!("  and {rest} more, all in --json\n") } else { String::new() };
    let memory = report.memory_svg.as_ref().zip(report.memory_csv.as_ref());
    let memory = memory.map_or_else(String::new, |(svg, csv)| format!("memory   {svg}, {csv}\n"));
    let (threads, runs) = (output::counted(*threads, "thread"), output::counted(*runs, "run"));
    format!(
        "{model} on {device}: {threads}, batch {batch}, {precision}, the fastest of {runs}\n\
         {total_ms:.3} ms, {overhead_ms:.3} ms of them between nodes\n\n\
         {operators}\n{rows}{more}\ntrace    {}\npicture  {}\n{memory}",
        report.trace, report.svg
    )
}
