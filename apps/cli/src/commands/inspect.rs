//! `inspect`: a model's inputs and outputs, and its parts.

use crate::device::{self, Limits};
use crate::dims::Dims;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use lgp_inference::{PassReport, Placement, pass_reports};
use lgp_sdk::model::{Model, Repository, Session, SessionOptions, ValueSpec};
use lgp_sdk::tensor::{Dim, Shape};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Flags of `inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster inspect resnet50.onnx --device vulkan:0")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    /// Show what each pass of the compiler does on the processor
    #[arg(long)]
    passes: bool,
    /// Show where each node runs on these devices: auto, cpu, vulkan:0, opencl:0, cuda:0 …
    #[arg(long)]
    device: Option<String>,
    /// The leading dimension of every input that leaves it open, for --device and --passes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
    #[command(flatten)]
    dims: Dims,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    name: String,
    producer: String,
    ir_version: i64,
    opset: i64,
    inputs: Vec<Value>,
    outputs: Vec<Value>,
    nodes: usize,
    ops: BTreeMap<String, usize>,
    parameters: usize,
    bytes: u64,
    /// Whether this version can run the model.
    runs: bool,
    /// Why not.
    reason: Option<String>,
    /// With `--passes`: nodes and planned memory before and after each.
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<Vec<PassReport>>,
    /// With `--device`: the device's name, and where each node of the compiled graph runs.
    #[serde(flatten)]
    placed: Option<Placed>,
}

#[derive(Debug, Serialize)]
struct Placed {
    device: String,
    /// The number of nodes on the processor for which the device has no kernels. Nodes that `tune`
    /// measured to be slower on the device do not count.
    fallbacks: usize,
    placement: Vec<Placement>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let model = Model::load(&args.model)?;
    args.dims.check(model.inputs())?;
    // Every missing operator is named at once.
    let reason =
        Session::new(&model, SessionOptions::with_threads(1)).err().map(|e| lgp_common::chain(&e));
    let batch = usize::try_from(args.batch).map_err(Failure::internal)?;
    let wanted = reason.is_none() && (args.passes || args.device.is_some());
    let shapes = if wanted { args.dims.shapes(model.inputs(), batch)? } else { Vec::new() };
    let names = model.inputs().iter().map(|input| input.name.as_str());
    let shapes: Vec<(&str, Shape)> = names.zip(shapes).collect();
    let passes = (args.passes && reason.is_none()).then(|| pass_reports(&model, &shapes));
    let placed = match &args.device {
        Some(device) if reason.is_none() => Some(placed(&model, device, &shapes)?),
        _ => None,
    };
    let ops = model.operator_counts();
    let report = Report {
        model: args.model.display().to_string(),
        name: model.name().to_owned(),
        producer: model.producer().to_owned(),
        ir_version: model.ir_version(),
        opset: model.opset(),
        inputs: model.inputs().iter().map(value).collect(),
        outputs: model.outputs().iter().map(value).collect(),
        nodes: ops.values().sum(),
        ops: ops.into_iter().map(|(op, count)| (op.to_owned(), count)).collect(),
        parameters: model.parameters(),
        bytes: bytes(&args.model)?,
        runs: reason.is_none(),
        reason,
        passes: passes.transpose()?,
        placed,
    };
    out.emit(&report, |report| text(report, &model))
}

/// Where the nodes of a model run, for inputs of these shapes.
fn placed(model: &Model, device: &str, shapes: &[(&str, Shape)]) -> Result<Placed> {
    let accelerators = device::resolve_all(device, &Limits::default())?;
    let device = lgp_sdk::device::device_names(&accelerators);
    let session = Session::on_devices(model, SessionOptions::with_threads(1), accelerators)?;
    let placement = session.placement(shapes)?;
    let fallbacks = placement.iter().filter(|it| it.reason.is_some() && !it.measured).count();
    Ok(Placed { device, fallbacks, placement })
}

/// The size of the model's file and its files of weights.
fn bytes(model: &Path) -> Result<u64> {
    let files = Repository::external_files(model)?;
    // Two names may refer to one file.
    let files: BTreeSet<&Path> = files.values().map(PathBuf::as_path).chain([model]).collect();
    let len = |file: &Path| {
        let about = std::fs::metadata(file).map_err(|error| Failure::file("read", file, &error))?;
        Ok(about.len())
    };
    files.into_iter().map(len).sum()
}

/// Name, kind, dtype and shape; a symbolic dimension is its name, an unknown one null.
fn value(spec: &ValueSpec) -> Value {
    let dim = |dim: &Dim| match dim {
        Dim::Known(size) => json!(size),
        Dim::Symbol(name) => json!(name.as_ref()),
        Dim::Unknown => Value::Null,
    };
    let shape = spec.ty.shape.as_ref().map(|shape| shape.0.iter().map(dim).collect::<Vec<_>>());
    let dtype = spec.ty.dtype.name();
    json!({ "name": spec.name, "kind": spec.kind, "dtype": dtype, "shape": shape })
}

fn text(report: &Report, model: &Model) -> String {
    let values = |specs: &[ValueSpec]| {
        specs.iter().fold(String::new(), |all, spec| {
            all + &format!("  {}  {}\n", spec.name, spec.kind.describe(&spec.ty))
        })
    };
    let mut by_count: Vec<(&String, &usize)> = report.ops.iter().collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let ops = by_count.into_iter().map(|(op, count)| ["  ".to_owned() + op, count.to_string()]);
    let Report { name, producer, ir_version, opset, nodes, parameters, bytes, .. } = report;
    let (inputs, outputs) = (values(model.inputs()), values(model.outputs()));
    let size = output::bytes(*bytes);
    let runs = match &report.reason {
        None => "runs here".to_owned(),
        Some(reason) => format!("does not run here: {reason}"),
    };
    let by = match producer.is_empty() {
        true => String::new(),
        false => format!(" by {producer}"),
    };
    let ops = output::table(["  operator", "nodes"], ops);
    let passes = report.passes.as_deref().map(pass_table).unwrap_or_default();
    let placed = report.placed.as_ref().map(placement_table).unwrap_or_default();
    format!(
        "{name}{by}, IR version {ir_version}, opset {opset}\n\
         {parameters} parameters, {nodes} nodes, {size}\n{runs}\n\n\
         inputs\n{inputs}\noutputs\n{outputs}\n{ops}{passes}{placed}"
    )
}

/// A table of the passes and their changes.
fn pass_table(passes: &[PassReport]) -> String {
    let bytes = |n: usize| output::bytes(u64::try_from(n).unwrap_or(u64::MAX));
    let rows = passes.iter().map(|pass| {
        [
            format!("  {}", pass.name),
            format!("{} to {}", pass.nodes_before, pass.nodes_after),
            format!("{} to {}", bytes(pass.arena_bytes_before), bytes(pass.arena_bytes_after)),
        ]
    });
    format!("\n{}", output::table(["  pass", "nodes", "planned memory"], rows))
}

/// How many nodes run where, and each that does not run on the device with the reason.
fn placement_table(placed: &Placed) -> String {
    let Placed { device, placement, .. } = placed;
    let (all, left) = (placement.len(), placement.iter().filter(|it| it.reason.is_some()).count());
    let head = format!("\n{} of {all} compiled nodes run on {device}\n", all - left);
    if left == 0 {
        return head;
    }
    let left = placement.iter().filter_map(|place| {
        let reason = place.reason.clone()?;
        Some([format!("  {}", place.name), place.op.clone(), place.device.clone(), reason])
    });
    head + &output::table(["  node", "operator", "on", "because"], left)
}
