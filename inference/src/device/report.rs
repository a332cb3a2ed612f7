//! The use of a device's memory and of its link, reported before any run.

use super::layout::{Layout, TooSmall};
use super::needs::{Needs, Spot};
use super::plan::Drafted;
use crate::graph::{Graph, ValueId};
use crate::plan::{MemoryReport, TensorBytes};
use lgp_compute::device::Accelerator;
use lgp_compute::{Cost, ValueInfo};
use lgp_memory::{ArenaPlan, Holder, Lifetime};
use serde::Serialize;
use std::collections::HashSet;

/// A weight, and its place between runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WeightBytes {
    /// The value's name in the model.
    pub name: String,
    /// Its size in bytes.
    pub bytes: usize,
    /// Whether the weight stays on the device; if not, the host sends it in each run.
    pub stays: bool,
    /// Whether the host has the weight on disk.
    pub on_disk: bool,
}

/// The device memory that a run of a model takes, and the bytes that it moves. The first run also
/// sends the weights that stay. Memory of other programs and models is not counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceMemoryReport {
    /// The device, as settings name it.
    pub device: String,
    /// The memory that the model may take.
    pub limit_bytes: usize,
    /// Whether the model can run within the limit. If not, the report is for the smallest limit.
    pub fits: bool,
    /// The smallest limit within which the model can run.
    pub smallest_bytes: usize,
    /// The needs at the node that needs most, by owner.
    pub needs: Vec<MemoryNeed>,
    /// Nodes that run on the CPU; their memory on the host is not counted here.
    pub nodes_on_host: usize,
    /// The arena: values, scratch, and weights that do not stay.
    pub arena_bytes: usize,
    /// Weights that stay on the device between runs.
    pub resident_bytes: usize,
    /// Weights that do not stay on the device.
    pub streamed_bytes: usize,
    /// Bytes that each run copies to the device: inputs, weights that do not stay, results of the
    /// CPU.
    pub to_device_bytes: usize,
    /// Bytes that each run copies to the host: outputs, and values that the CPU reads.
    pub to_host_bytes: usize,
    /// Values whose sizes are known only in a run; they are not counted.
    pub unknown: usize,
    /// The host's RAM that the weights take.
    pub host_bytes: usize,
    /// The host's disk that the other weights take.
    pub disk_bytes: usize,
    /// Bytes that each run reads from the files on disk, or from the system's cache of them.
    pub from_disk_bytes: usize,
    /// All weights that kernels read, in the model's order.
    pub weights: Vec<WeightBytes>,
}

/// The need of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryNeed {
    /// The owner: `weights`, `values` or `scratch`.
    pub owner: String,
    /// The bytes that the owner needs.
    pub bytes: usize,
}

impl From<&Holder> for MemoryNeed {
    fn from(holder: &Holder) -> Self {
        Self { owner: holder.owner.to_string(), bytes: holder.bytes }
    }
}

impl DeviceMemoryReport {
    pub(super) fn new(
        drafted: &Drafted,
        layout: Result<Layout, Box<TooSmall>>,
        accelerator: &Accelerator,
        on_disk: &HashSet<ValueId>,
    ) -> Self {
        let limits = accelerator.pool().limits();
        let small = Layout::smallest(&drafted.needs, limits, accelerator.buffer_bytes_max());
        let (fits, layout) = match layout {
            Ok(layout) => (true, layout),
            Err(small) => (false, small.layout),
        };
        let graph = &drafted.graph;
        let stays: HashSet<ValueId> = layout.resident.iter().copied().collect();
        let weights: Vec<WeightBytes> = drafted
            .needs
            .weights
            .iter()
            .map(|weight| WeightBytes {
                name: graph.values[weight.value.0].name.clone(),
                bytes: weight.bytes,
                stays: stays.contains(&weight.value),
                on_disk: on_disk.contains(&weight.value),
            })
            .collect();
        let spilled = on_disk.iter().filter_map(|id| graph.constant(*id));
        let disk_bytes = spilled.map(|tensor| tensor.as_bytes().len()).sum();
        let read = layout.streams.iter().filter(|stream| on_disk.contains(&stream.value));
        let sum = |stay: bool| weights.iter().filter(|w| w.stays == stay).map(|w| w.bytes).sum();
        Self {
            device: accelerator.id().to_string(),
            limit_bytes: limits.budget_bytes,
            fits,
            smallest_bytes: small.smallest_bytes,
            needs: small.needs.iter().map(MemoryNeed::from).collect(),
            nodes_on_host: drafted.nodes_on_host(),
            arena_bytes: layout.blocks.iter().sum(),
            resident_bytes: sum(true),
            streamed_bytes: sum(false),
            to_device_bytes: drafted.needs.to_device_bytes + layout.streamed_bytes(),
            to_host_bytes: drafted.needs.to_host_bytes,
            unknown: drafted.needs.unknown,
            host_bytes: graph.stored_bytes().saturating_sub(disk_bytes),
            disk_bytes,
            from_disk_bytes: read.map(|stream| stream.bytes).sum(),
            weights,
        }
    }
}

/// The report in the form of a session on the CPU, but `weights` counts all weights that kernels
/// read, and the arena includes inputs, outputs and scratch.
pub(super) fn memory(drafted: &Drafted, layout: &Layout) -> MemoryReport {
    let Drafted { graph, needs, .. } = drafted;
    let lives: Vec<Lifetime> = needs.tensors.iter().map(|(_, life)| *life).collect();
    let (step, lower_bound_bytes) = ArenaPlan::peak(&lives);
    let weights_bytes = needs.weights.iter().map(|weight| weight.bytes).sum();
    let arena_bytes = layout.blocks.iter().sum();
    let of = |wanted: fn(&Spot, &Graph) -> bool| {
        let own = needs.tensors.iter().filter(move |(spot, _)| wanted(spot, graph));
        own.map(|(_, life)| life.bytes)
    };
    let cost = graph.nodes.iter().fold(Cost::default(), |sum, node| {
        let known = |id: &Option<ValueId>| id.and_then(|id| graph.info(id));
        let made: Vec<ValueInfo> =
            node.outputs.iter().filter_map(|id| known(id).cloned()).collect();
        sum + lgp_compute::cost(&*node.op, &graph.infos(node), &made)
    });
    MemoryReport {
        peak_bytes: arena_bytes + weights_bytes,
        weights_bytes,
        input_bytes: of(is_input).sum(),
        output_bytes: of(is_output).sum(),
        arena_bytes,
        scratch_bytes: of(|spot, _| matches!(spot, Spot::Scratch(..))).max().unwrap_or(0),
        lower_bound_bytes,
        naive_bytes: ArenaPlan::naive(&lives),
        tensors: lives.len(),
        unknown: needs.unknown,
        peak_node: graph.nodes.get(step).map(|node| node.name.clone()),
        peak_tensors: peak_tensors(graph, needs, step),
        multiply_adds: cost.multiply_adds,
        moved_bytes: cost.bytes_read.saturating_add(cost.bytes_written),
        steps: graph.nodes.len(),
        placed: Vec::new(),
    }
}

fn is_input(spot: &Spot, graph: &Graph) -> bool {
    matches!(spot, Spot::Value(id) if graph.inputs.contains(id))
}

fn is_output(spot: &Spot, graph: &Graph) -> bool {
    matches!(spot, Spot::Value(id) if graph.outputs.iter().any(|(_, output)| output == id))
}

/// The tensors that live at a step, the largest first.
fn peak_tensors(graph: &Graph, needs: &Needs, step: usize) -> Vec<TensorBytes> {
    let alive = needs.tensors.iter().filter(|(_, l)| (l.first..=l.last).contains(&step));
    let told = |(spot, life): &(Spot, Lifetime)| {
        let node = graph.nodes.get(life.first);
        let (name, shape) = match spot {
            Spot::Value(id) => {
                let value = &graph.values[id.0];
                let shape = value.info.as_ref().and_then(|info| info.ty.concrete_shape());
                (value.name.clone(), shape.map(|shape| shape.to_vec()).unwrap_or_default())
            }
            Spot::Unwanted(..) => ("an output that nobody wants".to_owned(), vec![life.bytes]),
            Spot::Scratch(..) => ("scratch".to_owned(), vec![life.bytes]),
        };
        let op = node.map_or_else(String::new, |node| node.op.name().to_owned());
        TensorBytes { name, op, shape, bytes: life.bytes }
    };
    let mut tensors: Vec<TensorBytes> = alive.map(told).collect();
    tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.bytes));
    tensors
}
