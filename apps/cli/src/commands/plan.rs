//! `plan`: a model's memory, whether it fits, and which batch fits best.

mod offload;

use crate::device::{self, Limits};
use crate::dims::Dims;
use crate::failure::{Failure, Result};
use crate::model;
use crate::output::{self, Output};
use lgp_inference::{DeviceMemoryReport, MemoryReport};
use lgp_sdk::model::{Model, Session, ValueSpec};
use lgp_sdk::tensor::{Dim, Shape};
use offload::Offload;
use serde::Serialize;
use std::path::PathBuf;

/// The largest batch that the search tries: larger ones are of no use.
const BATCH_MAX: usize = 1 << 16;
/// How many of the tensors of the peak people see.
const TENSORS_SHOWN: usize = 8;

/// Flags of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster plan resnet50.onnx --vram 8GiB --batch 16\n  \
    radeon-cluster plan bert.onnx --device vulkan:0 --vram 256MiB")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    #[command(flatten)]
    limits: Limits,
    /// The device to plan for: vulkan:0, opencl:0, cuda:0 … [default: the processor]
    #[arg(short, long)]
    device: Option<String>,
    /// The leading dimension of every input that leaves it open
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    #[command(flatten)]
    dims: Dims,
    /// Threads to compute with: each may need memory of its own [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// The command's result.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    /// The device that was named.
    device: Option<String>,
    batch: usize,
    /// The memory limit; null where it is unknown.
    vram_bytes: Option<u64>,
    /// Null where that is not known, or the batch is refused.
    fits: Option<bool>,
    /// Whether a node accepts batch 1 but refuses this one; sizes after that node are unknown.
    batch_refused: bool,
    /// Dimensions that the model leaves open and that are not the batch: planned as 1.
    assumed: Vec<Assumed>,
    #[serde(flatten)]
    memory: MemoryReport,
    optimal_batch: Option<OptimalBatch>,
    /// With `--device`: what stays on the device, what crosses the link in each run, and its cost.
    offload: Option<Offload>,
}

/// An input's dimension of open size.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Assumed {
    input: String,
    axis: usize,
    /// The dimension's name, if any.
    dimension: Option<String>,
}

/// The largest batches that fit, with all weights on the device if possible; 0 where not even one image fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct OptimalBatch {
    largest: usize,
    power_of_two: usize,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let accelerator = match &args.device {
        Some(device) => device::resolve_within(device, &args.limits)?,
        None if args.limits.host_memory.is_some() => {
            return Err(Failure::usage("--host-memory is for a device, and none is named")
                .hint("name one with --device"));
        }
        None => None,
    };
    let (model, accelerators) = (Model::load(&args.model)?, accelerator.into_iter().collect());
    let session = Session::on_devices(model, model::options(args.threads), accelerators)?;
    let batch = usize::try_from(args.batch).map_err(Failure::internal)?;
    let report = match session.accelerator() {
        Some(_) => on_device(args, &session, batch)?,
        None => on_processor(args, &session, batch)?,
    };
    out.emit(&report, text)
}

/// The inputs' names and shapes at a batch.
fn shapes<'a>(args: &Args, session: &'a Session, batch: usize) -> Result<Vec<(&'a str, Shape)>> {
    let shapes = args.dims.shapes(session.inputs(), batch)?;
    Ok(session.inputs().iter().map(|input| input.name.as_str()).zip(shapes).collect())
}

fn on_device(args: &Args, session: &Session, batch: usize) -> Result<Report> {
    let planned = session.memory(&shapes(args, session, batch)?)?;
    let plan = offload::plan(session, &shapes(args, session, batch)?)?;
    let told = |batch: usize| -> Result<Option<DeviceMemoryReport>> {
        Ok(session.device_memory(&shapes(args, session, batch)?).ok().flatten())
    };
    let host_at_best = told(1)?.map_or(0, |plan| plan.nodes_on_host);
    let stays = |batch: usize, all: bool| -> Result<bool> {
        // A batch is too large if a node refuses it, or if more nodes leave the device.
        Ok(told(batch)?.is_some_and(|plan| {
            plan.fits && !(all && plan.streamed_bytes > 0) && plan.nodes_on_host <= host_at_best
        }))
    };
    let optimal_batch = match args.dims.leave_batch_open(session.inputs()) {
        true => {
            let all = stays(1, true)?;
            Some(optimal(|batch| stays(batch, all))?)
        }
        false => None,
    };
    Ok(Report {
        model: args.model.display().to_string(),
        device: Some(plan.memory.device.clone()),
        batch: args.dims.batch(session.inputs(), batch),
        vram_bytes: u64::try_from(plan.memory.limit_bytes).ok(),
        fits: Some(plan.memory.fits),
        batch_refused: false,
        assumed: assumed(&args.dims, session.inputs()),
        memory: planned,
        optimal_batch,
        offload: Some(plan),
    })
}

fn on_processor(args: &Args, session: &Session, batch: usize) -> Result<Report> {
    let memory =
        |batch| -> Result<MemoryReport> { Ok(session.memory(&shapes(args, session, batch)?)?) };
    let vram_bytes = args.limits.vram.or_else(free_bytes);
    let planned = memory(batch)?;
    // Sizes that only a run knows are unknown at every batch.
    let unknown = memory(1)?.unknown;
    let refused = |memory: &MemoryReport| memory.unknown > unknown;
    let fits = |memory: &MemoryReport, limit: u64| {
        let small = u64::try_from(memory.peak_bytes).is_ok_and(|peak| peak <= limit);
        // Sizes after the refusing node were not counted.
        if small && refused(memory) { None } else { Some(small) }
    };
    let optimal_batch = match vram_bytes.filter(|_| args.dims.leave_batch_open(session.inputs())) {
        Some(limit) => Some(optimal(|batch| Ok(fits(&memory(batch)?, limit) == Some(true)))?),
        None => None,
    };
    Ok(Report {
        model: args.model.display().to_string(),
        device: None,
        batch: args.dims.batch(session.inputs(), batch),
        vram_bytes,
        fits: vram_bytes.and_then(|limit| fits(&planned, limit)),
        batch_refused: refused(&planned),
        assumed: assumed(&args.dims, session.inputs()),
        memory: planned,
        optimal_batch,
        offload: None,
    })
}

/// The free memory of the device that `auto` chooses.
fn free_bytes() -> Option<u64> {
    let device = lgp_hal::open_auto_by(&device::fastest_way).ok()?;
    device.free_bytes().or(device.caps().memory_bytes)
}

/// The dimensions that are taken as 1 for lack of a given size.
fn assumed(dims: &Dims, inputs: &[ValueSpec]) -> Vec<Assumed> {
    let open = |input: &ValueSpec| -> Vec<Assumed> {
        let open = dims.taken_as_one(input).into_iter();
        let one = |(axis, dim): (usize, &Dim)| Assumed {
            input: input.name.clone(),
            axis,
            dimension: if let Dim::Symbol(name) = dim { Some(name.to_string()) } else { None },
        };
        open.map(one).collect()
    };
    inputs.iter().flat_map(open).collect()
}

/// The largest batch that fits, where memory grows with the batch.
fn optimal(mut fits: impl FnMut(usize) -> Result<bool>) -> Result<OptimalBatch> {
    let (mut low, mut high) = (0, 1);
    while high <= BATCH_MAX && fits(high)? {
        (low, high) = (high, 2 * high);
    }
    let power_of_two = low;
    high = high.min(BATCH_MAX + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(OptimalBatch { largest: low, power_of_two })
}

fn text(report: &Report) -> String {
    let count = |n: usize| output::bytes(u64::try_from(n).unwrap_or(u64::MAX));
    let memory = &report.memory;
    let streams = report.offload.as_ref().is_some_and(|it| it.memory.streamed_bytes > 0);
    let verdict = match (report.fits, report.vram_bytes) {
        (Some(true), Some(limit)) if streams => {
            format!("fits into {} as weights come and go", output::bytes(limit))
        }
        (Some(true), Some(limit)) => format!("fits into {}", output::bytes(limit)),
        (Some(false), Some(limit)) => format!("does not fit into {}", output::bytes(limit)),
        (None, Some(_)) => "but the model refuses that batch".to_owned(),
        (_, None) => "no device says how much memory it has".to_owned(),
    };
    let best = report.optimal_batch.map_or_else(String::new, |best| {
        let OptimalBatch { largest, power_of_two } = best;
        match largest {
            BATCH_MAX => format!("batches of {BATCH_MAX} fit; larger ones were not looked at\n"),
            _ => {
                format!("largest batch that fits: {largest}, or {power_of_two} as a power of two\n")
            }
        }
    });
    let rows = [
        ("weights", memory.weights_bytes),
        ("inputs", memory.input_bytes),
        ("outputs", memory.output_bytes),
        ("arena", memory.arena_bytes),
        ("scratch", memory.scratch_bytes),
    ];
    let rows = rows.map(|(part, bytes)| ["  ".to_owned() + part, count(bytes)]);
    let shown = memory.peak_tensors.iter().take(TENSORS_SHOWN);
    let peak = shown
        .map(|t| [format!("  {}", t.name), t.op.clone(), format!("{:?}", t.shape), count(t.bytes)]);
    let mut text = format!(
        "{} at batch {}: {} at the peak, {verdict}\n{best}\n{}\
         \nthe arena is for {}: no less than {} is possible, and {} if none took the place of another\n",
        report.model,
        report.batch,
        count(memory.peak_bytes),
        output::table(["  part", "size"], rows),
        output::counted(memory.tensors, "intermediate tensor"),
        count(memory.lower_bound_bytes),
        count(memory.naive_bytes),
    );
    text += &format!(
        "a run multiplies and adds {:.1} million times and moves {} between memory and kernels\n",
        memory.multiply_adds as f64 / 1e6,
        count(usize::try_from(memory.moved_bytes).unwrap_or(usize::MAX)),
    );
    if memory.unknown > 0 {
        let values = output::counted(memory.unknown, "value");
        text += &format!("not counted: {values} whose size only a run tells\n");
    }
    for Assumed { input, axis, dimension } in &report.assumed {
        let dimension = dimension.as_deref().unwrap_or("unnamed");
        text += &format!("dimension {axis} ({dimension}) of '{input}' is open, and planned as 1\n");
    }
    if let Some(offload) = &report.offload {
        text += &offload::text(offload);
    }
    if let Some(node) = &memory.peak_node {
        text += &format!("\nthe most memory is in use at node '{node}'\n");
        text += &output::table(["  tensor", "operator", "shape", "size"], peak);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_batch_is_found() {
        for limit in [0, 1, 2, 3, 31, 32, 33, 1000, BATCH_MAX, usize::MAX] {
            let mut asked = 0;
            let best = optimal(|batch| {
                asked += 1;
                Ok(batch <= limit)
            });
            let best = best.expect("nothing fails");
            assert_eq!(best.largest, limit.min(BATCH_MAX));
            let power = if limit == 0 { 0 } else { 1 << limit.min(BATCH_MAX).ilog2() };
            assert_eq!(best.power_of_two, power);
            assert!(asked < 40);
        }
    }
}
