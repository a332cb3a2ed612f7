//! The rewrites of a graph between its file and its first run, one file for each pass.

mod affine;
mod attention;
mod bf16_values;
mod byte_tables;
mod cast;
mod common;
mod constant_folding;
mod dead_code;
mod device_fusion;
mod dynamic_products;
mod epilogue;
mod gelu;
mod identity;
mod layout;
mod norms;
mod pattern;
mod preparation;
mod quantized;
mod report;
mod shuffle;
mod stored_weights;
mod transpose;

pub(crate) use report::signature;
pub use report::{PassReport, pass_reports};

use crate::error::Result;
use crate::graph::Graph;

/// A rewrite that keeps the results of the graph.
pub(crate) trait Pass: Sync {
    /// The name in logs.
    fn name(&self) -> &'static str;

    /// Rewrites the graph.
    fn run(&self, graph: &mut Graph) -> Result<()>;
}

/// The stage at which a pass runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The graph is compiled for the CPU.
    Cpu,
    /// The graph is compiled for a device.
    Device,
    /// The shapes of the graph's inputs have become known, on a device.
    Shapes,
}

use Stage::{Cpu, Device, Shapes};

/// Every pass with its stages, in the order in which they run. The first pass of a stage also
/// infers the types that the others need.
const PASSES: &[(&dyn Pass, &[Stage])] = &[
    (&constant_folding::ConstantFolding { keep_bytes: true }, &[Cpu]),
    (&stored_weights::StoredWeights { on_device: true }, &[Device]),
    // Nodes that only decoded stored weights must not be folded to floats.
    (&dead_code::DeadCodeElimination, &[Device]),
    (&identity::IdentityElimination, &[Cpu]),
    (&quantized::QuantizedFusion, &[Cpu]),
    (&dynamic_products::DynamicProducts, &[Cpu]),
    (&byte_tables::ByteTables, &[Cpu]),
    (&stored_weights::StoredWeights { on_device: false }, &[Cpu]),
    // Nodes that integer kernels have replaced, and nodes that only decoded stored weights, must not
    // be folded to floats.
    (&dead_code::DeadCodeElimination, &[Cpu]),
    (&constant_folding::ConstantFolding { keep_bytes: false }, &[Cpu, Device, Shapes]),
    (&identity::IdentityElimination, &[Device, Shapes]),
    (&cast::CastElimination, &[Cpu, Device]),
    (&common::CommonSubexpressions, &[Cpu, Device]),
    (&affine::AffineFolding, &[Cpu, Device]),
    (&norms::NormFusion, &[Cpu, Device]),
    (&gelu::GeluFusion, &[Cpu, Device]),
    (&attention::AttentionFusion, &[Cpu, Device]),
    (&shuffle::ShuffleFusion, &[Cpu]),
    // The next passes count the readers of values.
    (&dead_code::DeadCodeElimination, &[Cpu, Shapes]),
    (&layout::ChannelsLast, &[Cpu]),
    (&transpose::TransposeJoining, &[Cpu, Device]),
    (&preparation::Preparation { on_device: false }, &[Cpu]),
    (&preparation::Preparation { on_device: true }, &[Device]),
    (&epilogue::Epilogues, &[Cpu]),
    (&bf16_values::Bf16Values, &[Cpu]),
    (&dead_code::DeadCodeElimination, &[Cpu, Device]),
    (&device_fusion::DeviceFusion, &[Shapes]),
];

/// Runs the passes of a stage.
fn run(graph: &mut Graph, stage: Stage, mut watch: impl FnMut(&'static str, &Graph)) -> Result<()> {
    for (pass, stages) in PASSES {
        if stages.contains(&stage) {
            let before = graph.nodes.len();
            pass.run(graph)?;
            tracing::debug!(pass = pass.name(), before, after = graph.nodes.len(), "graph pass");
            watch(pass.name(), graph);
        }
    }
    Ok(())
}

/// Runs the passes for a device.
pub(crate) fn optimize_for_device(graph: &mut Graph) -> Result<()> {
    run(graph, Device, |_, _| {})
}

/// Rewrites a graph whose inputs now have known shapes.
pub(crate) fn specialize(graph: &mut Graph) -> Result<()> {
    run(graph, Shapes, |_, _| {})
}

/// Runs the passes for the CPU.
pub(crate) fn optimize(graph: &mut Graph) -> Result<()> {
    optimize_watched(graph, |_, _| {})
}

/// Runs the passes for the CPU and shows the graph to `watch` after each, with the pass's name.
pub(crate) fn optimize_watched(
    graph: &mut Graph,
    watch: impl FnMut(&'static str, &Graph),
) -> Result<()> {
    run(graph, Cpu, watch)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::GraphBuilder;
    use lgp_memory::{DType, Dim, SymShape, TensorType};

    /// A type with these dimensions, of which `None` is unknown.
    pub(crate) fn type_of(dtype: DType, dims: &[Option<usize>]) -> TensorType {
        let dims = dims.iter().map(|d| d.map_or(Dim::Unknown, Dim::Known));
        TensorType { dtype, shape: Some(SymShape(dims.collect())) }
    }

    pub(crate) fn f32_type(dims: &[Option<usize>]) -> TensorType {
        type_of(DType::F32, dims)
    }

    /// An f32 type of unknown rank.
    pub(crate) fn untyped() -> TensorType {
        TensorType { dtype: DType::F32, shape: None }
    }

    pub(crate) fn graph_of(builder: GraphBuilder) -> Result<Graph> {
        crate::onnx::lower(&builder.finish()?, crate::SessionOptions::default())
    }
}
