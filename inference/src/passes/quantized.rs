//! Makes integer kernels of quantised operators: the nodes from dequantising to quantising become
//! one operator on bytes. Products of floats become such operators too, if the session asks for it.

#[cfg(test)]
mod tests;

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId, node_error};
use crate::options::Precision;
use lgp_compute::bytes::{Dequantized, OnBytes, QuantizedWeight, Requantized, requantized};
use lgp_compute::ops::{BinaryKind, DynamicQuantizeLinear, Quant, Transpose};
use lgp_compute::rewrite::{Decoder, Operand, Step};
use lgp_compute::{Op, ValueInfo};
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
        let mut cx = Rewrite {
            graph,
            old: &old,
            uses,
            producers,
            channels_last: HashMap::new(),
            quantized_floats: HashMap::new(),
        };
        for (index, node) in old.iter().enumerate() {
            if !cx.fused(index)? {
                cx.graph.nodes.push(node.clone());
            }
        }
        Ok(())
    }
}

/// The graph under construction: nodes are read from `old` and written in the same order.
struct Rewrite<'a> {
    graph: &'a mut Graph,
    old: &'a [Node],
    uses: Vec<usize>,
    producers: Vec<Option<usize>>,
    /// Values and their copies with the channels last.
    channels_last: HashMap<ValueId, ValueId>,
    /// Floats and their bytes, scale and zero point.
    quantized_floats: HashMap<ValueId, [ValueId; 3]>,
}

/// A value that is quantised, and the meaning of its bytes.
struct Quantized {
    /// The value before the limits.
    from: ValueId,
    y: Requantized,
    out: ValueId,
}

/// The inputs of an operator, prepared to ask for its form on bytes.
#[derive(Default)]
struct Inputs {
    values: Vec<Option<ValueId>>,
    quants: Vec<Option<Quant>>,
    /// The bytes of each dequantised value, or the value itself.
    bytes: Vec<Option<ValueId>>,
    weights: Vec<Option<QuantizedWeight>>,
}

impl Rewrite<'_> {
    /// Replaces a node, if possible.
    fn fused(&mut self, index: usize) -> Result<bool> {
        if let Some(q) = self.quantized(index) {
            return self.on_bytes(&q);
        }
        if self.graph.options.precision == Precision::Int8 {
            return self.made_dynamic(index);
        }
        Ok(false)
    }

    fn input(&self, node: usize, i: usize) -> Option<ValueId> {
        self.old[node].inputs.get(i).copied().flatten()
    }

    fn producer(&self, id: ValueId) -> Option<usize> {
        self.producers.get(id.0).copied().flatten()
    }

    fn infos(&self, node: usize) -> Vec<Option<&ValueInfo>> {
        self.graph.infos(&self.old[node])
    }

    fn constant(&self, node: usize, i: usize) -> Option<&Tensor> {
        self.input(node, i).and_then(|id| self.graph.constant(id))
    }

    /// The scale and zero point in a node's inputs 1 and 2, if they are one pair for a whole tensor
    /// of bytes.
    fn quant(&self, node: usize, dtype: DType) -> Option<Quant> {
        let [scale] = *self.constant(node, 1)?.as_slice::<f32>().ok()? else { return None };
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

    /// The node that dequantises bytes to a value, and the axis of its scales.
    fn decoder(&self, id: ValueId) -> Option<(usize, i64)> {
        let node = self.producer(id)?;
        match self.old[node].op.decodes()? {
            Decoder::Scales { axis, block: 0, .. } => Some((node, axis)),
            _ => None,
        }
    }

    /// The bytes of a dequantised value, and their meaning.
    fn dequantized(&self, id: ValueId) -> Option<(ValueId, Quant)> {
        let (node, _) = self.decoder(id)?;
        let bytes = self.input(node, 0)?;
        let dtype = self.graph.info(bytes)?.ty.dtype;
        if self.graph.info(id)?.ty.dtype != DType::F32 {
            return None;
        }
        Some((bytes, self.quant(node, dtype)?))
    }

    /// The constant bytes of a dequantised value.
    fn weight(&self, id: ValueId) -> Option<QuantizedWeight> {
        let (node, axis) = self.decoder(id)?;
        let tensor = self.constant(node, 0)?.clone();
        let scale = self.constant(node, 1)?;
        if scale.shape().rank() > 1 || !matches!(tensor.dtype(), DType::I8 | DType::U8) {
            return None;
        }
        let scale = scale.as_slice::<f32>().ok()?.to_vec();
        let zero = match self.input(node, 2) {
            None => vec![0; scale.len()],
            Some(_) => self.zeros(node)?,
        };
        let rank = i64::try_from(tensor.shape().rank()).ok()?;
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        Some(QuantizedWeight { tensor, scale, zero, axis })
    }

    /// The value that a node quantises to bytes with one scale, traced back through limits that
    /// nothing else reads.
    fn quantized(&self, index: usize) -> Option<Quantized> {
        let node = &self.old[index];
        let out = node.outputs.first().copied().flatten().filter(|_| node.op.quantizes())?;
        let quant = self.quant(index, self.graph.info(out)?.ty.dtype)?;
        let mut from = self.input(index, 0)?;
        if self.graph.info(from)?.ty.dtype != DType::F32 {
            return None;
        }
        let mut limits = (f32::NEG_INFINITY, f32::INFINITY);
        while self.uses[from.0] == 1 {
            let Some(node) = self.producer(from) else { break };
            let activation = self.old[node].op.activation(&self.infos(node));
            let Some(bounds) = activation.and_then(|it| it.bounds()) else { break };
            let Some(before) = self.input(node, 0) else { break };
            // A table is faster for a function of bytes alone.
            if self.dequantized(before).is_some() {
                break;
            }
            limits = (limits.0.max(bounds.0), limits.1.min(bounds.1));
            from = before;
        }
        let y = Requantized { quant, limits };
        (limits.0 <= limits.1).then_some(Quantized { from, y, out })
    }

    /// Computes the bytes of a value from bytes, if possible.
    fn on_bytes(&mut self, q: &Quantized) -> Result<bool> {
        if let Some((x, quant)) = self.dequantized(q.from) {
            let Some(table) = requantized(quant, &q.y) else { return Ok(false) };
            self.push(Arc::new(table), vec![Some(x)], q.out)?;
            return Ok(true);
        }
        let Some((form, inputs, node)) = self.form(q) else { return Ok(false) };
        self.push_form(form, &inputs, node, q.out)?;
        Ok(true)
    }

    /// The operator on bytes that makes a value, its inputs, and the node that it replaces.
    fn form(&self, q: &Quantized) -> Option<(OnBytes, Inputs, usize)> {
        let node = self.producer(q.from)?;
        if self.old[node].outputs.len() != 1 {
            return None;
        }
        let is_only = self.uses[q.from.0] == 1;
        let inputs = self.inputs(&self.old[node].inputs);
        let form = self.asked(node, &inputs, &q.y);
        if let Some(form) = form.filter(|form| is_only || form.is_cheap) {
            return Some((form, inputs, node));
        }
        // The operator that makes a sum may take in a constant that is added.
        let (sum, addend) = self.with_constant(node).filter(|_| is_only)?;
        let product = self.producer(sum).filter(|_| self.uses[sum.0] == 1)?;
        let rank = |id: ValueId| self.graph.info(id).and_then(ValueInfo::rank);
        let &[a, b] = self.old[product].inputs.as_slice() else { return None };
        if rank(addend) > rank(sum) || rank(sum).is_none() {
            return None;
        }
        let inputs = self.inputs(&[a, b, Some(addend)]);
        let form = self.asked(product, &inputs, &q.y)?;
        Some((form, inputs, product))
    }

    /// The value and the constant that a node adds.
    fn with_constant(&self, node: usize) -> Option<(ValueId, ValueId)> {
        if self.old[node].op.arithmetic() != Some(BinaryKind::Add) {
            return None;
        }
        let (a, b) = (self.input(node, 0)?, self.input(node, 1)?);
        match (self.graph.constant(a), self.graph.constant(b)) {
            (None, Some(_)) => Some((a, b)),
            (Some(_), None) => Some((b, a)),
            _ => None,
        }
    }

    fn inputs(&self, values: &[Option<ValueId>]) -> Inputs {
        let mut inputs = Inputs { values: values.to_vec(), ..Inputs::default() };
        for id in values {
            let found = id.and_then(|id| self.dequantized(id));
            inputs.quants.push(found.map(|(_, quant)| quant));
            inputs.bytes.push(found.map(|(bytes, _)| bytes).or(*id));
            inputs.weights.push(id.and_then(|id| self.weight(id)));
        }
        inputs
    }

    fn asked(&self, node: usize, inputs: &Inputs, y: &Requantized) -> Option<OnBytes> {
        let mut given = Vec::with_capacity(inputs.values.len());
        for (i, id) in inputs.values.iter().enumerate() {
            given.push(match id {
                None => None,
                Some(id) => Some(Dequantized {
                    info: self.graph.info(*id)?,
                    quant: inputs.quants[i],
                    weight: inputs.weights[i].as_ref(),
                }),
            });
        }
        self.old[node].op.on_bytes(&given, y)
    }

    /// Adds the steps of an operator on bytes.
    fn push_form(
        &mut self,
        form: OnBytes,
        inputs: &Inputs,
        node: usize,
        out: ValueId,
    ) -> Result<()> {
        let mut made = Vec::with_capacity(form.steps.len());
        let count = form.steps.len();
        for (at, Step { op, inputs: operands }) in form.steps.into_iter().enumerate() {
            let mut bound = Vec::with_capacity(operands.len());
            for operand in operands {
                bound.push(match operand {
                    Operand::Absent => None,
                    Operand::Made(i) => made.get(i).copied(),
                    Operand::Input(i) => match inputs.bytes.get(i).copied().flatten() {
                        Some(id) if form.channels_last => Some(self.channels_last(id)?),
                        id => id,
                    },
                    Operand::Constant(tensor) => {
                        let name = format!("{}.constant", self.graph.values[out.0].name);
                        Some(self.graph.add_constant(name, tensor))
                    }
                });
            }
            let op = op.unwrap_or_else(|| Arc::clone(&self.old[node].op));
            if at + 1 == count && form.channels_last {
                self.push_channels_last(op, bound, out)?;
            } else if at + 1 == count {
                self.push(op, bound, out)?;
            } else {
                let name = format!("{}.{at}", self.graph.values[out.0].name);
                let id = self.graph.add_value(name);
                self.push(op, bound, id)?;
                made.push(id);
            }
        }
        Ok(())
    }

    /// Quantises a product of floats with a constant weight, because the session asks for it.
    fn made_dynamic(&mut self, index: usize) -> Result<bool> {
        let node = &self.old[index];
        let (Some(x), [Some(out)]) = (self.input(index, 0), node.outputs.as_slice()) else {
            return Ok(false);
        };
        if self.graph.info(x).is_none_or(|x| x.ty.dtype != DType::F32) {
            return Ok(false);
        }
        let step = node.op.on_dynamic_bytes(&self.infos(index)).map_err(|e| node_error(node, e))?;
        let Some((step, channels_last)) = step else { return Ok(false) };
        let x = if channels_last { self.channels_last(x)? } else { x };
        let made = self.made_bytes(x)?;
        let inputs = self.graph.bind(node, step.inputs, &made);
        let op = step.op.unwrap_or_else(|| Arc::clone(&node.op));
        for id in node.inputs.iter().flatten().filter(|id| !inputs.contains(&Some(**id))) {
            if self.graph.constant(*id).is_some() {
                self.graph.release(*id, &mut self.uses);
            }
        }
        match channels_last {
            true => self.push_channels_last(op, inputs, *out)?,
            false => self.push(op, inputs, *out)?,
        }
        Ok(true)
    }

    /// The bytes of a value, their scale and their zero point; several products share them.
    fn made_bytes(&mut self, x: ValueId) -> Result<[ValueId; 3]> {
        if let Some(&made) = self.quantized_floats.get(&x) {
            return Ok(made);
        }
        let made = ["bytes", "scale", "zero"].map(|what| {
            let name = format!("{}.{what}", self.graph.values[x.0].name);
            self.graph.add_value(name)
        });
        self.push_all(Arc::new(DynamicQuantizeLinear), vec![Some(x)], &made)?;
        self.quantized_floats.insert(x, made);
        Ok(made)
    }

    /// Adds a node.
    fn push(&mut self, op: Arc<dyn Op>, inputs: Vec<Option<ValueId>>, out: ValueId) -> Result<()> {
        self.push_all(op, inputs, &[out])
    }

    /// Adds a node with several outputs; it is named after the first.
    fn push_all(
        &mut self,
        op: Arc<dyn Op>,
        inputs: Vec<Option<ValueId>>,
        out: &[ValueId],
    ) -> Result<()> {
        let name = out.first().map(|id| self.graph.values[id.0].name.clone()).unwrap_or_default();
        let outputs = out.iter().copied().map(Some).collect();
        self.graph.nodes.push(Node { name, op_type: None, op, inputs, outputs });
        let last = self.graph.nodes.len() - 1;
        self.graph.infer_node(last)
    }

    /// The copy of an image with its channels last.
    fn channels_last(&mut self, id: ValueId) -> Result<ValueId> {
        if let Some(&copy) = self.channels_last.get(&id) {
            return Ok(copy);
        }
        let name = format!("{}.nhwc", self.graph.values[id.0].name);
        let copy = self.graph.add_value(name);
        let op = Transpose { perm: Some(vec![0, 2, 3, 1]) };
        self.push(Arc::new(op), vec![Some(id)], copy)?;
        self.channels_last.insert(id, copy);
        Ok(copy)
    }

    /// Adds a node whose output has its channels last, and a transpose to the plain output.
    /// Dead-code elimination removes the transpose if nothing reads the plain output.
    fn push_channels_last(
        &mut self,
        op: Arc<dyn Op>,
        inputs: Vec<Option<ValueId>>,
        out: ValueId,
    ) -> Result<()> {
        let name = format!("{}.nhwc", self.graph.values[out.0].name);
        let image = self.graph.add_value(name);
        self.push(op, inputs, image)?;
        self.channels_last.insert(out, image);
        let op = Transpose { perm: Some(vec![0, 3, 1, 2]) };
        self.push(Arc::new(op), vec![Some(image)], out)
    }
}
