//! `bench local`: load time, latency and memory of a model file on this machine.

use super::Common;
use super::frame::Prepared;
use super::sample::Better;
use crate::cluster::digits;
use crate::failure::Result;
use crate::measure::{self, Percentiles};
use crate::model::{InputFiles, Loaded, Opened, Setup};
use crate::output::{self, Output};
use lgp_sdk::measure::{Latency, LatencyOptions, measure_latency};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The default number of measured runs, and the number with `--quick`.
const RUNS: u32 = 20;
const RUNS_QUICK: u32 = 5;

/// Flags of `bench local`, and of `bench MODEL`.
#[derive(Debug, clap::Args)]
// Those of `bench` have a group of the same name.
#[group(skip)]
#[command(after_help = "Example:\n  radeon-cluster bench local resnet50.onnx --batch 4 --json\n\n\
    Inputs that are not given are random where they are floats, and 0 where they are not;\n\
    the random numbers are the same in every run.")]
pub(super) struct Args {
    /// The ONNX file [default: the bundled model]
    model: Option<PathBuf>,
    #[command(flatten)]
    files: InputFiles,
    #[command(flatten)]
    setup: Setup,
    /// Measured runs [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: Option<u32>,
    #[command(flatten)]
    common: Common,
}

impl Args {
    /// The file that was named.
    pub(super) fn model(&self) -> Option<&Path> {
        self.model.as_deref()
    }
}

/// The result, whose form other programs rely on.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    device: String,
    threads: usize,
    batch: usize,
    precision: &'static str,
    runs: u32,
    load_ms: f64,
    latency_ms: LatencyMs,
    peak_rss_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct LatencyMs {
    min: f64,
    #[serde(flatten)]
    percentiles: Percentiles,
}

/// Measures a model.
pub(super) fn run(args: &Args, out: Output) -> Result<()> {
    let prepared = Prepared::of("local", &args.common)?;
    let model = args.model.as_ref().map_or(digits::NAME.into(), |path| path.display().to_string());
    let Opened { loaded, inputs, batch } = args.setup.open(args.model(), &args.files)?;
    let Loaded { session, device, threads, load_ms } = loaded;
    let precision = args.setup.machine.precision.name();
    let name = args.model.as_ref().and_then(|path| path.file_name());
    let shapes = inputs.iter().map(|input| (input.name.clone(), input.tensor.shape().dims()));
    let config = json!({
        "model": name.map_or(digits::NAME.into(), |name| name.to_string_lossy()),
        "device": device,
        "threads": threads,
        "precision": precision,
        "inputs": shapes.collect::<std::collections::BTreeMap<_, _>>(),
    });
    let mut measured = prepared.begin(config)?;
    let runs = args.runs.unwrap_or(if args.common.quick { RUNS_QUICK } else { RUNS });
    let bar = out.progress(runs.into(), "runs");
    let on_run: &dyn Fn() = &|| bar.inc(1);
    let options = LatencyOptions { runs, on_run: Some(on_run), ..LatencyOptions::default() };
    let latency = measure_latency(&session, &inputs, &options)?;
    bar.finish_and_clear();
    let peak_rss_bytes = measure::peak_rss_bytes();
    let Latency { min_ms: min, p50_ms: p50, p95_ms: p95, p99_ms: p99, samples_ms, .. } = latency;
    measured.add("latency", "ms", Better::Lower, samples_ms);
    measured.add("load", "ms", Better::Lower, [load_ms]);
    measured.add("peak_rss", "bytes", Better::Lower, peak_rss_bytes.map(|bytes| bytes as f64));
    let latency_ms = LatencyMs { min, percentiles: Percentiles { p50, p95, p99 } };
    let report = Report {
        model,
        device,
        threads,
        batch,
        precision,
        runs,
        load_ms,
        latency_ms,
        peak_rss_bytes,
    };
    let shown = text(&report);
    measured.finish(report, || shown, out)
}

fn text(report: &Report) -> String {
    let Report { model, device, threads, batch, precision, runs, load_ms, .. } = report;
    let LatencyMs { min, percentiles: Percentiles { p50, p95, p99 } } = &report.latency_ms;
    let memory = report.peak_rss_bytes.map_or_else(|| "unknown".to_owned(), output::bytes);
    let (threads, runs) = (output::counted(*threads, "thread"), output::counted(*runs, "run"));
    format!(
        "{model} on {device}: {threads}, batch {batch}, {precision}, {runs}\n\
         load         {load_ms:.1} ms\n\
         latency      min {min:.2} ms, p50 {p50:.2} ms, p95 {p95:.2} ms, p99 {p99:.2} ms\n\
         peak memory  {memory}\n"
    )
}
