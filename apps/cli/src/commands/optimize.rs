//! `optimize`: makes a model smaller or faster within a bound, and writes what that cost beside it.

use crate::cluster::on_interrupt;
use crate::device::{self, Limits};
use crate::failure::{Failure, Result};
use crate::files::Staged;
use crate::output::{self, Output};
use crate::{calibration, model, picture};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lgp_research::compression::{
    Event, Ledger, LocalRunner, OptimizeConfig, Optimized, Outcome, PLANS, Samples, Stage, Target,
    Work, optimize,
};
use lgp_sdk::model::{Model, Stop};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Flags of `optimize`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  radeon-cluster optimize net.onnx --target balanced --calibration samples -o small.onnx\n\n\
    Half of the samples calibrate, the other half judge: accuracy with --labels, else the error of the\n\
    outputs or the share of changed first answers, whichever is larger. A stage that loses more than\n\
    the target allows, or that does not pay on the device, is rolled back. OUT.ledger.json has every\n\
    number. A run that was ended goes on after its last whole stage when it is started again."
)]
pub(crate) struct Args {
    /// The ONNX file, which is not changed
    model: PathBuf,
    /// What the model is made for
    #[arg(long, value_parser = targets(), default_value = Target::Balanced.plan().name)]
    target: Target,
    /// The most that accuracy may drop, or without labels the error grow, 0 to 1 [default: by target]
    #[arg(long, value_name = "P")]
    max_drop: Option<f64>,
    /// Samples: a folder of .npy files or images for a model with one input, of .npz files for
    /// several; or one such file
    #[arg(long, value_name = "DATA")]
    calibration: PathBuf,
    /// The class of each sample, a CSV file: one on each line, or FILE,CLASS
    #[arg(long, value_name = "CSV")]
    labels: Option<PathBuf>,
    /// The device that the model is made for, on which it is measured: auto, cpu, vulkan:0 …
    #[arg(short, long, default_value = "auto")]
    device: String,
    /// Threads to compute with [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Where to write the model; a file that is there is replaced
    #[arg(short, long, value_name = "OUT.onnx")]
    output: PathBuf,
}

/// Reads a target's name; the table of plans has the names and what help says of them.
fn targets() -> impl TypedValueParser<Value = Target> {
    let possible = PLANS.iter().map(|plan| {
        let help = format!("{}, for at most {} of accuracy", plan.summary, plan.drop_max);
        PossibleValue::new(plan.name).help(help)
    });
    PossibleValuesParser::new(possible)
        .try_map(|name| Target::of(&name).ok_or("it is the name of no target"))
}

#[derive(Debug, Serialize)]
struct Report {
    output: String,
    ledger: String,
    target: String,
    device: String,
    input_bytes: u64,
    output_bytes: u64,
    memory_bytes_before: u64,
    memory_bytes_after: u64,
    /// Medians.
    latency_ms_before: f64,
    latency_ms_after: f64,
    accuracy_before: Option<f64>,
    accuracy_after: Option<f64>,
    output_error: f64,
    kl_divergence: Option<f64>,
    agreement: Option<f64>,
    judged_on_calibration: bool,
    stages: Vec<Stage>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    crate::files::writable(&args.output)?;
    let [ledger_path, progress] = ["ledger.json", "progress"].map(|it| beside(&args.output, it));
    same_file(&args.model, &args.output)?;
    let accelerators = device::resolve_all(&args.device, &Limits::default())?;
    let name = lgp_sdk::device::device_names(&accelerators);
    let model = Model::load(&args.model)?;
    let scaling = picture::scaling_of(&args.model)?;
    let read =
        calibration::read(&args.calibration, model.inputs(), &scaling, |note| out.note(note))?;
    let labels = args.labels.as_deref();
    let labels = labels.map(|path| calibration::labels(path, &read.names)).transpose()?;
    let samples = Samples::new(&model, read.runs, labels)?;
    let threads = model::options(args.threads).threads;
    let work = Work { threads, stop: Stop::new() };
    let runner = LocalRunner::new(name, accelerators, work.clone());
    let config =
        OptimizeConfig { target: args.target, drop_max: args.max_drop, progress: Some(progress) };
    let bar = out.busy("optimizing");
    on_interrupt(
        || Failure::interrupted().hint("the same command goes on after the last whole stage"),
        out,
    )?;
    let optimized = optimize(&model, &samples, &runner, &work, &config, &mut |event| match event {
        Event::Original => bar.set_message("measuring the original"),
        Event::Try { technique, strength } => bar.set_message(format!("{technique} {strength}")),
        Event::Ended(stage) => bar.suspend(|| out.note(line(stage))),
    });
    bar.finish_and_clear();
    let Optimized { model, ledger } = optimized?;
    let json = serde_json::to_vec_pretty(&ledger).map_err(Failure::internal)?;
    // On a full disk neither file is replaced.
    let ledger_file = Staged::new(&ledger_path, &json)?;
    model.save(&args.output, false)?;
    ledger_file.place()?;
    out.emit(&report(args, &ledger_path, ledger), text)
}

/// The path of a file that belongs to the output.
fn beside(output: &Path, ending: &str) -> PathBuf {
    output.with_extension(ending)
}

/// Refuses to write over the model that is read.
fn same_file(model: &Path, output: &Path) -> Result<()> {
    let (model, output) = (model.canonicalize(), output.canonicalize());
    match (model, output) {
        (Ok(model), Ok(output)) if model == output => {
            Err(Failure::usage("--output is the model itself")
                .hint("name another file: the original is what the result is compared with"))
        }
        _ => Ok(()),
    }
}

fn report(args: &Args, ledger_path: &Path, ledger: Ledger) -> Report {
    let Ledger { target, device, original, result, stages, judged_on_calibration, .. } = ledger;
    Report {
        output: args.output.display().to_string(),
        ledger: ledger_path.display().to_string(),
        target,
        device,
        input_bytes: original.file_bytes,
        output_bytes: result.file_bytes,
        memory_bytes_before: original.memory_bytes,
        memory_bytes_after: result.memory_bytes,
        latency_ms_before: original.latency_ms.median,
        latency_ms_after: result.latency_ms.median,
        accuracy_before: original.quality.accuracy,
        accuracy_after: result.quality.accuracy,
        output_error: result.quality.output_error,
        kl_divergence: result.quality.kl_divergence,
        agreement: result.quality.agreement,
        judged_on_calibration,
        stages,
    }
}

/// A stage for people, on one line.
fn line(stage: &Stage) -> String {
    let Stage { technique, strength, reason, seconds, .. } = stage;
    let verb = match stage.outcome {
        Outcome::Kept => "kept",
        Outcome::RolledBack => "rolled back",
        Outcome::Skipped => "skipped",
    };
    let strength = strength.map(|it| format!(" {it}")).unwrap_or_default();
    format!("{technique}{strength}: {verb}, {reason} ({seconds:.1} s)")
}

fn text(report: &Report) -> String {
    let percent =
        |share: Option<f64>| share.map_or("-".to_owned(), |it| format!("{:.2} %", 100. * it));
    let rows = [
        ("file", output::bytes(report.input_bytes), output::bytes(report.output_bytes)),
        (
            "memory",
            output::bytes(report.memory_bytes_before),
            output::bytes(report.memory_bytes_after),
        ),
        (
            "latency",
            format!("{:.3} ms", report.latency_ms_before),
            format!("{:.3} ms", report.latency_ms_after),
        ),
        ("accuracy", percent(report.accuracy_before), percent(report.accuracy_after)),
        ("same first answer", "-".to_owned(), percent(report.agreement)),
        ("output error", "-".to_owned(), format!("{:.4}", report.output_error)),
    ];
    let rows = rows.map(|(what, before, after)| [format!("  {what}"), before, after]);
    let table = output::table(["", "before", "after"], rows);
    let stages = report.stages.iter().map(|stage| format!("  {}\n", line(stage)));
    let note = match report.judged_on_calibration {
        true => "judged on the samples that calibrated it, for there is one only\n",
        false => "",
    };
    format!(
        "{} for {} on {}\n{table}stages\n{}{note}every number is in {}\n",
        report.output,
        report.target,
        report.device,
        stages.collect::<String>(),
        report.ledger
    )
}
