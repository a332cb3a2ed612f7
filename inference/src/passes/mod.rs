//! What happens to a graph between its file and its first run, a file a pass.

mod attention;
mod batch_norm;
mod constant_folding;
mod dead_code;
mod gelu;
mod identity;
mod matmul_fusion;
mod matmul_packing;
mod norms;
mod pattern;
mod quantized;

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
const PASSES: [&dyn Pass; 11] = [
    &constant_folding::ConstantFolding { keep_bytes: true },
    &identity::IdentityElimination,
    &quantized::QuantizedFusion,
    &constant_folding::ConstantFolding { keep_bytes: false },
    &batch_norm::BatchNormFolding,
    &norms::NormFusion,
    &gelu::GeluFusion,
    &attention::AttentionFusion,
    &matmul_packing::MatMulPacking,
    &matmul_fusion::MatMulFusion,
    &dead_code::DeadCodeElimination,
];

/// Runs every pass.
pub(crate) fn optimize(graph: &mut Graph) -> Result<()> {
    for pass in PASSES {
        let before = graph.nodes.len();
        pass.run(graph)?;
        tracing::debug!(pass = pass.name(), before, after = graph.nodes.len(), "graph pass");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use lgp_memory::{DType, Dim, SymShape, TensorType};

    /// A type whose `None` dimensions are unknown.
    pub(super) fn type_of(dtype: DType, dims: &[Option<usize>]) -> TensorType {
        let dims = dims.iter().map(|d| d.map_or(Dim::Unknown, Dim::Known));
        TensorType { dtype, shape: Some(SymShape(dims.collect())) }
    }

    pub(super) fn f32_type(dims: &[Option<usize>]) -> TensorType {
        type_of(DType::F32, dims)
    }

    pub(super) fn graph_of(builder: GraphBuilder) -> Result<Graph> {
        crate::onnx::lower(&builder.finish()?)
    }
}
