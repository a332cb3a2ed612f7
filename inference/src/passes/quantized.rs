//! Makes integer kernels of quantised operators: what stands between going back to floats and
//! quantising again becomes one operator on bytes, and products of floats that are quantised on
//! the way become one as well. Images stay channels-last from one such operator to the next.

mod conv;
mod elementwise;
mod matmul;
#[cfg(test)]
mod tests;

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::Op;
use lgp_compute::ops::{
    Clip, DequantizeLinear, Quant, QuantizeLinear, Transpose, Unary, UnaryKind,
};
use lgp_memory::{DType, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct QuantizedFusion;

impl Pass for QuantizedFusion {
    fn name(&self) -> &'static str {
        "quantized-fusion"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let (uses, producers) = (graph.uses(), graph.producers());
        let old = std::mem::take(&mut graph.nodes);
        let mut readers = vec![None; graph.values.len()];
        for (index, node) in old.iter().enumerate() {
            node.inputs.iter().flatten().for_each(|id| readers[id.0] = Some(index));
        }
        let mut skip = vec![false; old.len()];
        let mut cx = Rewrite {
            graph,
            old: &old,
            uses,
            producers,
            readers,
            channels_last: HashMap::new(),
            quantized_floats: HashMap::new(),
        };
        for (index, node) in old.iter().enumerate() {
            if skip[index] {
                continue;
            }
            match cx.fused(index)? {
                Some(also) => also.into_iter().for_each(|i| skip[i] = true),
                None => cx.graph.nodes.push(node.clone()),
            }
        }
        Ok(())
    }
}

/// The graph on its way: nodes are read from `old` and written to the graph in the same order.
struct Rewrite<'a> {
    graph: &'a mut Graph,
    old: &'a [Node],
    uses: Vec<usize>,
    producers: Vec<Option<usize>>,
    /// A node that reads a value: the only one, where there is one use.
    readers: Vec<Option<usize>>,
    /// Values of which there is a copy whose channels come last.
    channels_last: HashMap<ValueId, ValueId>,
    /// Floats of which there are bytes with a scale and a zero point.
    quantized_floats: HashMap<ValueId, [ValueId; 3]>,
}

/// What goes into a [`QuantizeLinear`], and what the node becomes.
struct Quantized {
    /// What makes the value that is quantised, limits aside.
    from: ValueId,
    limits: (f32, f32),
    quant: Quant,
    out: ValueId,
}

impl Rewrite<'_> {
    /// Replaces a node if it can be; the nodes after it that this took care of too.
    fn fused(&mut self, index: usize) -> Result<Option<Vec<usize>>> {
        if let Some(q) = self.quantized(index) {
            let done = self.conv(&q)?
                || self.product(&q)?
                || self.sum(&q)?
                || self.pool(&q)?
                || self.movement(&q)?
                || self.concat(&q)?
                || self.function(&q)?;
            return Ok(done.then(Vec::new));
        }
        if self.max_pool_of_bytes(index)? {
            return Ok(Some(Vec::new()));
        }
        if let Some(also) = self.dynamic(index)? {
            return Ok(Some(also));
        }
        if self.graph.options.precision == crate::Precision::Int8 {
            return self.made_dynamic(index);
        }
        Ok(None)
    }

    /// A node of the old graph as a `T`.
    fn op<T: Op>(&self, index: usize) -> Option<&T> {
        let op: &dyn std::any::Any = &*self.old[index].op;
        op.downcast_ref()
    }

    /// The node that makes a value, if it is a `T`.
    fn made_by<T: Op>(&self, id: ValueId) -> Option<(usize, &T)> {
        let index = *self.producers.get(id.0)?.as_ref()?;
        Some((index, self.op::<T>(index)?))
    }

    fn input(&self, node: usize, i: usize) -> Option<ValueId> {
        self.old[node].inputs.get(i).copied().flatten()
    }

    fn constant(&self, node: usize, i: usize) -> Option<&Tensor> {
        self.input(node, i).and_then(|id| self.graph.constant(id))
    }

    /// A constant of one f32.
    fn scalar(&self, node: usize, i: usize) -> Option<f32> {
        let tensor = self.constant(node, i)?;
        match tensor.as_slice::<f32>().ok()? {
            [x] => Some(*x),
            _ => None,
        }
    }

    /// The scale and zero point of a node's inputs 1 and 2, where it is one for all of a tensor
    /// of bytes.
    fn quant(&self, node: usize, dtype: DType) -> Option<Quant> {
        let scale = self.scalar(node, 1)?;
        let zero = match self.input(node, 2) {
            None => 0,
            Some(_) => match self.zeros(node)?[..] {
                [zero] => zero,
                _ => return None,
            },
        };
        let bytes = matches!(dtype, DType::I8 | DType::U8);
        (bytes && scale.is_normal() && scale > 0.).then_some(Quant { dtype, scale, zero })
    }

    /// The constant zero points of a node.
    fn zeros(&self, node: usize) -> Option<Vec<i32>> {
        let zeros = self.constant(node, 2)?;
        Some(match zeros.dtype() {
            DType::I8 => zeros.as_slice::<i8>().ok()?.iter().map(|&z| z.into()).collect(),
            _ => zeros.as_slice::<u8>().ok()?.iter().map(|&z| z.into()).collect(),
        })
    }

    /// The bytes behind a value that goes back to floats, and what they stand for.
    fn dequantized(&self, id: ValueId) -> Option<(ValueId, Quant)> {
        let (index, _) = self.made_by::<DequantizeLinear>(id)?;
        let bytes = self.input(index, 0)?;
        let dtype = self.graph.info(bytes)?.ty.dtype;
        if self.graph.info(id)?.ty.dtype != DType::F32 {
            return None;
        }
        Some((bytes, self.quant(index, dtype)?))
    }

    /// What a node quantises, if it is a [`QuantizeLinear`] to bytes with one scale, seen through
    /// limits that only it reads.
    fn quantized(&self, index: usize) -> Option<Quantized> {
        self.op::<QuantizeLinear>(index)?;
        let out = self.old[index].outputs.first().copied().flatten()?;
        let quant = self.quant(index, self.graph.info(out)?.ty.dtype)?;
        let mut from = self.input(index, 0)?;
        if self.graph.info(from)?.ty.dtype != DType::F32 {
            return None;
        }
        let mut limits = (f32::NEG_INFINITY, f32::INFINITY);
        while self.uses[from.0] == 1 {
            let bounds = if let Some((node, unary)) = self.made_by::<Unary>(from) {
                (unary.kind == UnaryKind::Relu).then_some((node, (0., f32::INFINITY)))
            } else if let Some((node, clip)) = self.made_by::<Clip>(from) {
                self.bounds(node, clip).map(|bounds| (node, bounds))
            } else {
                None
            };
            let Some((node, bounds)) = bounds else { break };
            // A function of bytes alone is better served by a table.
            let before = self.input(node, 0)?;
            if self.dequantized(before).is_some() {
                break;
            }
            limits = (limits.0.max(bounds.0), limits.1.min(bounds.1));
            from = before;
        }
        (limits.0 <= limits.1).then_some(Quantized { from, limits, quant, out })
    }

    fn bounds(&self, node: usize, clip: &Clip) -> Option<(f32, f32)> {
        let one = |i: usize, attribute: Option<f32>, none: f32| match self.input(node, i) {
            Some(_) => self.scalar(node, i),
            None => Some(attribute.unwrap_or(none)),
        };
        Some((one(1, clip.min, f32::NEG_INFINITY)?, one(2, clip.max, f32::INFINITY)?))
    }

    /// Adds a node.
    fn push(&mut self, op: impl Op, inputs: Vec<ValueId>, out: ValueId) -> Result<()> {
        self.push_all(op, inputs, &[out])
    }

    /// Adds a node with several outputs; it is named after the first.
    fn push_all(&mut self, op: impl Op, inputs: Vec<ValueId>, out: &[ValueId]) -> Result<()> {
        let name = out.first().map(|id| self.graph.values[id.0].name.clone()).unwrap_or_default();
        let inputs = inputs.into_iter().map(Some).collect();
        let outputs = out.iter().copied().map(Some).collect();
        self.graph.nodes.push(Node { name, op_type: None, op: Arc::new(op), inputs, outputs });
        let last = self.graph.nodes.len() - 1;
        self.graph.infer_node(last)
    }

    /// The copy of an image whose channels come last.
    fn channels_last(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(&copy) = self.channels_last.get(&id) {
            return Ok(copy);
        }
        let name = format!("{}.nhwc", self.graph.values[id.0].name);
        let copy = self.graph.add_value(name);
        self.push(Transpose { perm: Some(vec![0, 2, 3, 1]) }, vec![id], copy)?;
        self.channels_last.insert(id, copy);
        Ok(copy)
    }

    /// Adds a node whose output has its channels last, and what makes the plain output of it,
    /// which goes again where nobody reads it.
    fn push_channels_last(
        &mut self,
        op: impl Op,
        inputs: Vec<ValueId>,
        out: ValueId,
    ) -> Result<()> {
        let name = format!("{}.nhwc", self.graph.values[out.0].name);
        let image = self.graph.add_value(name);
        self.push(op, inputs, image)?;
        self.channels_last.insert(out, image);
        self.push(Transpose { perm: Some(vec![0, 3, 1, 2]) }, vec![image], out)
    }

    fn rank(&self, id: ValueId) -> Option<usize> {
        self.graph.info(id)?.ty.shape.as_ref().map(lgp_memory::SymShape::rank)
    }
}
