//! `tune`: measures a device's fastest kernel schedules for a model, and which nodes are faster on the CPU.

use crate::device;
use crate::dims::Dims;
use crate::failure::{Failure, Result};
use crate::model::{self, Loaded, Machine};
use crate::output::{self, Output};
use lgp_inference::{MeasuredPlacement, TunedModel, TunedNode};
use lgp_sdk::tensor::Shape;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster tune resnet50.onnx --device vulkan:0\n\n\
    Every command uses what was found, for these shapes on this device with this driver.")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    #[command(flatten)]
    machine: Machine,
    /// The size of the leading dimension where the model leaves it open
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    #[command(flatten)]
    dims: Dims,
    /// About how long to measure; what calculates most is measured first, and each at least a few times
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    budget: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    device: String,
    batch: usize,
    /// Kinds of node whose kernels have several schedules, the most compute first.
    nodes: Vec<TunedNode>,
    /// The time of all these nodes: by the cost model's schedules, and by the chosen ones.
    before_ms: f64,
    after_ms: f64,
    /// The cheapest placement of the nodes after that, with transfers counted.
    placement: Option<MeasuredPlacement>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    if args.machine.device.contains(',') {
        let message = format!("--device {} names several, tune takes one", args.machine.device);
        return Err(Failure::usage(message).hint("tune them one after the other"));
    }
    let Loaded { session, device, .. } = model::load(&args.model, &args.machine)?;
    if let Some(accelerator) = session.accelerator() {
        // Without this the results would be lost.
        device::keep_programs(accelerator)?;
    } else {
        let message = format!("tune is for graphics cards, and the model would run on {device}");
        return Err(Failure::new("device_without_schedules", message)
            .hint("name a card with --device; radeon-cluster devices lists them"));
    }
    let batch = usize::try_from(args.batch).map_err(Failure::internal)?;
    let shapes = args.dims.shapes(session.inputs(), batch)?;
    let batch = args.dims.batch(session.inputs(), batch);
    let names = session.inputs().iter().map(|input| input.name.as_str());
    let shapes: Vec<(&str, Shape)> = names.zip(shapes).collect();
    let bar = out.busy("measuring");
    let tuned = session.tune(&shapes, Duration::from_secs(args.budget.into()));
    bar.finish_and_clear();
    let TunedModel { nodes, placement } = tuned?;
    let sum = |ms: fn(&TunedNode) -> f64| nodes.iter().map(|n| n.nodes as f64 * ms(n)).sum();
    let (before_ms, after_ms) = (sum(|node| node.before_ms), sum(|node| node.after_ms));
    let model = args.model.display().to_string();
    out.emit(&Report { model, device, batch, nodes, before_ms, after_ms, placement }, text)
}

fn text(report: &Report) -> String {
    let Report { model, device, batch, nodes, before_ms, after_ms, placement } = report;
    let rows = nodes.iter().map(|node| {
        let ms = |ms: f64| format!("{ms:.3} ms");
        let TunedNode { name, op, nodes, tried, before_ms, after_ms } = node;
        let (nodes, tried) = (nodes.to_string(), tried.to_string());
        [format!("  {name}"), op.clone(), nodes, tried, ms(*before_ms), ms(*after_ms)]
    });
    let table = output::table(["  node", "operator", "alike", "tried", "before", "after"], rows);
    format!(
        "{model} on {device}, batch {batch}\n{table}\
         all of them: {before_ms:.3} ms before, {after_ms:.3} ms after\n{}",
        placement.as_ref().map(placed).unwrap_or_default()
    )
}

fn placed(placement: &MeasuredPlacement) -> String {
    let MeasuredPlacement { device_ms, divided_ms, on_host } = placement;
    if on_host.is_empty() {
        return format!("a run: {device_ms:.3} ms, and no faster with nodes on the CPU\n");
    }
    let nodes = on_host.join(", ");
    format!("a run: {device_ms:.3} ms, and {divided_ms:.3} ms with these on the CPU: {nodes}\n")
}
