//! What happens to a graph between its file and its first run, a file a pass.

mod attention;
mod batch_norm;
mod cast;
mod common;
mod constant_folding;
mod conv_bf16;
mod conv_epilogue;
mod conv_scale;
mod dead_code;
mod device_fusion;
mod gelu;
mod identity;
mod layout;
mod matmul_fusion;
mod matmul_packing;
mod norms;
mod pattern;
mod quantized;
mod report;
mod sparse_weights;
mod stored_weights;
mod transpose;

pub(crate) use report::signature;
pub use report::{PassReport, pass_reports};

use crate::error::Result;
use crate::graph::Graph;

/// A rewrite that keeps what the graph computes.
pub(crate) trait Pass: Sync {
    /// For logs.
    fn name(&self) -> &'static str;

    /// Rewrites the graph.
    fn run(&self, graph: &mut Graph) -> Result<()>;
}

/// Every pass, in the order in which they run. The first one also infers the types that the
/// others rely on.
const PASSES: [&dyn Pass; 20] = [
    &constant_folding::ConstantFolding { keep_bytes: true },
    &identity::IdentityElimination,
    &quantized::QuantizedFusion,
    // Before what integer kernels have taken over is folded to floats.
    &dead_code::DeadCodeElimination,
    &constant_folding::ConstantFolding { keep_bytes: false },
    &cast::CastElimination,
    &common::CommonSubexpressions,
    &batch_norm::BatchNormFolding,
    &conv_scale::ConvScaleFolding,
    &norms::NormFusion,
    &gelu::GeluFusion,
    &attention::AttentionFusion,
    // The passes that follow count readers.
    &dead_code::DeadCodeElimination,
    &layout::ChannelsLast,
    &transpose::TransposeJoining,
    &conv_epilogue::ConvEpilogue,
    &conv_bf16::ConvBf16,
    &matmul_packing::MatMulPacking,
    &matmul_fusion::MatMulFusion,
    &dead_code::DeadCodeElimination,
];

/// The passes for graphs that run on a device: those that choose no kernels of the CPU.
const DEVICE_PASSES: [&dyn Pass; 14] = [
    &stored_weights::StoredWeights,
    // Before what only made floats of such weights is computed.
    &dead_code::DeadCodeElimination,
    &constant_folding::ConstantFolding { keep_bytes: false },
    &identity::IdentityElimination,
    &cast::CastElimination,
    &common::CommonSubexpressions,
    &batch_norm::BatchNormFolding,
    &conv_scale::ConvScaleFolding,
    &norms::NormFusion,
    &gelu::GeluFusion,
    &attention::AttentionFusion,
    &transpose::TransposeJoining,
    &sparse_weights::SparseWeights,
    &dead_code::DeadCodeElimination,
];

/// The passes that have more to do once dimensions are known.
const SPECIALIZING_PASSES: [&dyn Pass; 4] = [
    &constant_folding::ConstantFolding { keep_bytes: false },
    &identity::IdentityElimination,
    &dead_code::DeadCodeElimination,
    // Counts readers.
    &device_fusion::DeviceFusion,
];

/// Runs the passes for a device.
pub(crate) fn optimize_for_device(graph: &mut Graph) -> Result<()> {
    DEVICE_PASSES.iter().try_for_each(|pass| pass.run(graph))
}

/// Rewrites a graph whose inputs have become of known shapes.
pub(crate) fn specialize(graph: &mut Graph) -> Result<()> {
    SPECIALIZING_PASSES.iter().try_for_each(|pass| pass.run(graph))
}

/// Runs every pass.
pub(crate) fn optimize(graph: &mut Graph) -> Result<()> {
    optimize_watched(graph, |_, _| {})
}

/// Runs every pass and shows the graph to `watch` after each, with the pass's name.
pub(crate) fn optimize_watched(
    graph: &mut Graph,
    mut watch: impl FnMut(&'static str, &Graph),
) -> Result<()> {
    for pass in PASSES {
        let before = graph.nodes.len();
        pass.run(graph)?;
        tracing::debug!(pass = pass.name(), before, after = graph.nodes.len(), "graph pass");
        watch(pass.name(), graph);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::GraphBuilder;
    use lgp_memory::{DType, Dim, SymShape, TensorType};

    /// A type whose `None` dimensions are unknown.
    pub(crate) fn type_of(dtype: DType, dims: &[Option<usize>]) -> TensorType {
        let dims = dims.iter().map(|d| d.map_or(Dim::Unknown, Dim::Known));
        TensorType { dtype, shape: Some(SymShape(dims.collect())) }
    }

    pub(crate) fn f32_type(dims: &[Option<usize>]) -> TensorType {
        type_of(DType::F32, dims)
    }

    /// An f32 type of which not even the rank is known.
    pub(crate) fn untyped() -> TensorType {
        TensorType { dtype: DType::F32, shape: None }
    }

    pub(crate) fn graph_of(builder: GraphBuilder) -> Result<Graph> {
        crate::onnx::lower(&builder.finish()?, crate::SessionOptions::default())
    }
}
