//! Reads a graph backwards from a value, for passes that look for chains of nodes.

use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::Op;
use lgp_compute::ops::{Binary, BinaryKind, Unary, UnaryKind};
use lgp_memory::DType;
use std::sync::Arc;

/// A graph, and the node that makes each value.
pub(super) struct Pattern<'a> {
    pub(super) graph: &'a Graph,
    producers: Vec<Option<usize>>,
}

/// The new operator and inputs of a node.
pub(super) struct Rewrite {
    pub(super) node: usize,
    pub(super) op: Arc<dyn Op>,
    pub(super) inputs: Vec<Option<ValueId>>,
}

/// Makes the rewrites that `find` proposes, one node at a time. Dead-code elimination removes the
/// nodes that are no longer needed.
pub(super) fn rewrite(
    graph: &mut Graph,
    find: impl Fn(&Pattern<'_>, usize) -> Option<Rewrite>,
) -> Result<()> {
    let pattern = Pattern::new(graph);
    let found: Vec<Rewrite> =
        (0..graph.nodes.len()).filter_map(|node| find(&pattern, node)).collect();
    for Rewrite { node, op, inputs } in found {
        let node = &mut graph.nodes[node];
        (node.op, node.inputs) = (op, inputs);
    }
    Ok(())
}

impl<'a> Pattern<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        Self { graph, producers: graph.producers() }
    }
    /// The only output of a node.
    pub(super) fn output(&self, node: usize) -> Option<ValueId> {
        match self.graph.nodes[node].outputs.as_slice() {
            [Some(id)] => Some(*id),
            _ => None,
        }
    }

    /// The operator that makes a value, if it is a `T`, and its node.
    pub(super) fn made_by<T: Op>(&self, id: ValueId) -> Option<(&T, &Node)> {
        let node = self.producers[id.0]?;
        Some((self.graph.op(node)?, &self.graph.nodes[node]))
    }

    /// The value of an f32 constant of one element.
    pub(super) fn scalar(&self, id: ValueId) -> Option<f32> {
        let tensor = self.graph.constant(id).filter(|t| t.dtype() == DType::F32)?;
        match tensor.as_slice::<f32>().ok()? {
            [x] => Some(*x),
            _ => None,
        }
    }

    /// Whether a value is a constant close to a number.
    pub(super) fn is(&self, id: ValueId, number: f32) -> bool {
        self.scalar(id).is_some_and(|x| (x - number).abs() <= 1e-5 * number.abs())
    }

    /// The operands of a binary operator.
    pub(super) fn binary(&self, id: ValueId, kind: BinaryKind) -> Option<[ValueId; 2]> {
        let (_, node) = self.made_by::<Binary>(id).filter(|(op, _)| op.kind == kind)?;
        match node.inputs.as_slice() {
            [Some(a), Some(b)] => Some([*a, *b]),
            _ => None,
        }
    }

    /// The operands in both orders.
    pub(super) fn either(&self, id: ValueId, kind: BinaryKind) -> Option<[[ValueId; 2]; 2]> {
        self.binary(id, kind).map(|[a, b]| [[a, b], [b, a]])
    }

    /// The operand of a unary operator.
    pub(super) fn unary(&self, id: ValueId, kind: UnaryKind) -> Option<ValueId> {
        let (_, node) = self.made_by::<Unary>(id).filter(|(op, _)| op.kind == kind)?;
        node.inputs.first().copied().flatten()
    }

    /// The other operand, if a value is `kind` of it and a constant on either side.
    pub(super) fn with_scalar(&self, id: ValueId, kind: BinaryKind) -> Option<(ValueId, f32)> {
        let orders = self.either(id, kind)?;
        orders.iter().find_map(|[x, c]| self.scalar(*c).map(|c| (*x, c)))
    }

    /// A value as `x · factor`, from a product with or a quotient by a constant.
    pub(super) fn scaled(&self, id: ValueId) -> Option<(ValueId, f32)> {
        if let Some(found) = self.with_scalar(id, BinaryKind::Mul) {
            return Some(found);
        }
        let [x, c] = self.binary(id, BinaryKind::Div)?;
        self.scalar(c).map(|c| (x, 1. / c))
    }

    /// The factors of a product of products; the products in `stop` are not taken apart.
    pub(super) fn factors(&self, id: ValueId, stop: &[ValueId]) -> Vec<ValueId> {
        const MOST: usize = 5;
        let mut done = Vec::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let product = (!stop.contains(&id) && done.len() + open.len() < MOST)
                .then(|| self.binary(id, BinaryKind::Mul))
                .flatten();
            match product {
                Some(both) => open.extend(both),
                None => done.push(id),
            }
        }
        done
    }

    /// Whether two values are known to have the same dtype and rank.
    pub(super) fn alike(&self, a: ValueId, b: ValueId) -> bool {
        let (Some(a), Some(b)) = (self.graph.info(a), self.graph.info(b)) else { return false };
        let ranks = (self.rank_of(&a.ty), self.rank_of(&b.ty));
        a.ty.dtype == b.ty.dtype && ranks.0.is_some() && ranks.0 == ranks.1
    }

    /// The rank of a value, where it is known.
    pub(super) fn rank(&self, id: ValueId) -> Option<usize> {
        self.rank_of(&self.graph.info(id)?.ty)
    }

    #[allow(clippy::unused_self, reason = "it reads like its neighbours")]
    fn rank_of(&self, ty: &lgp_memory::TensorType) -> Option<usize> {
        ty.shape.as_ref().map(lgp_memory::SymShape::rank)
    }
}
