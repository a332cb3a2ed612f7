//! Decides when a batch of images runs image by image.

use crate::graph::{Graph, ValueId};
use crate::plan::Signature;
use crate::rows;
use lgp_compute::ValueInfo;
use lgp_memory::{DType, Dim, Shape};

/// Multiply-adds per weight above which it pays to read all weights again for each image.
const PRODUCTS_A_WEIGHT: u64 = 50;

/// Whether the rows of a graph are independent, with enough multiply-adds for running them one by
/// one to pay.
pub(crate) fn run_one_by_one(graph: &Graph) -> bool {
    // The work of one row is known only if all other dimensions are known.
    let one = |id: &ValueId| {
        let ty = &graph.info(*id)?.ty;
        let [_, rest @ ..] = ty.shape.as_ref()?.0.as_slice() else { return None };
        let rest = rest.iter().map(Dim::known);
        let dims: Vec<usize> = std::iter::once(Some(1)).chain(rest).collect::<Option<_>>()?;
        (ty.dtype != DType::Str).then(|| (ty.dtype, Shape::new(dims)))
    };
    let one: Option<Signature> = graph.inputs.iter().map(one).collect();
    one.is_some_and(|one| rows::are_independent(graph) && pays(graph, &one))
}

fn pays(graph: &Graph, one: &Signature) -> bool {
    let (mut products, mut weights) = (0u64, 0u64);
    let infos = graph.concrete(one);
    for node in &graph.nodes {
        let info = |id: &Option<ValueId>| id.and_then(|id| infos[id.0].as_ref());
        let inputs: Vec<Option<&ValueInfo>> = node.inputs.iter().map(info).collect();
        let outputs: Vec<ValueInfo> =
            node.outputs.iter().filter_map(|id| info(id).cloned()).collect();
        let read = node.inputs.iter().flatten().filter_map(|id| graph.constant(*id));
        let read: usize = read.map(lgp_memory::Tensor::len).sum();
        if read > 0 {
            weights = weights.saturating_add(read as u64);
            products = products.saturating_add(node.op.multiply_adds(&inputs, &outputs));
        }
    }
    products >= weights.saturating_mul(PRODUCTS_A_WEIGHT) && products > 0
}
