//! Sums, functions, joins and movements of bytes.

use super::{Quantized, Rewrite};
use crate::error::Result;
use crate::graph::ValueId;
use lgp_compute::ops::{
    Binary, BinaryKind, Clip, Concat, DequantizeLinear, Flatten, QAdd, QLookup, Quant,
    QuantizeLinear, Reshape, Squeeze, Transpose, Unary, Unsqueeze,
};
use lgp_compute::{Context, Op};
use lgp_memory::{DType, Dim, Tensor};

impl Rewrite<'_> {
    pub(super) fn sum(&mut self, q: &Quantized) -> Result<bool> {
        let add = self.made_by::<Binary>(q.from).filter(|(_, b)| b.kind == BinaryKind::Add);
        let Some((node, _)) = add.filter(|_| self.uses[q.from.0] == 1) else { return Ok(false) };
        let operand = |i| self.input(node, i).and_then(|x| self.dequantized(x));
        let (Some((a, qa)), Some((b, qb))) = (operand(0), operand(1)) else { return Ok(false) };
        if !self.same_shape(a, b) {
            return Ok(false);
        }
        let op = QAdd { a: qa, b: qb, y: q.quant, limits: q.limits };
        if self.rank(a) == Some(4)
            && (self.channels_last.contains_key(&a) || self.channels_last.contains_key(&b))
        {
            let (a, b) = (self.channels_last(a)?, self.channels_last(b)?);
            self.push_channels_last(op, vec![a, b], q.out)?;
        } else {
            self.push(op, vec![a, b], q.out)?;
        }
        Ok(true)
    }

    fn same_shape(&self, a: ValueId, b: ValueId) -> bool {
        let shape = |id| self.graph.info(id).and_then(|info| info.ty.shape.as_ref());
        match (shape(a), shape(b)) {
            (Some(a), Some(b)) => a == b && !a.0.contains(&Dim::Unknown),
            _ => false,
        }
    }

    /// Moving elements does not change them: with one scale before and after, the bytes move.
    pub(super) fn movement(&mut self, q: &Quantized) -> Result<bool> {
        let Some(node) = self.producers.get(q.from.0).copied().flatten() else { return Ok(false) };
        let moves = self.op::<Reshape>(node).is_some()
            || self.op::<Flatten>(node).is_some()
            || self.op::<Squeeze>(node).is_some()
            || self.op::<Unsqueeze>(node).is_some()
            || self.op::<Transpose>(node).is_some();
        let x = self.input(node, 0).and_then(|x| self.dequantized(x));
        let Some((x, _)) = x.filter(|(_, quant)| moves && *quant == q.quant) else {
            return Ok(false);
        };
        if q.limits != (f32::NEG_INFINITY, f32::INFINITY) {
            return Ok(false);
        }
        let mut moved = self.old[node].clone();
        moved.inputs[0] = Some(x);
        moved.outputs = vec![Some(q.out)];
        self.graph.nodes.push(moved);
        let last = self.graph.nodes.len() - 1;
        self.graph.infer_node(last)?;
        Ok(true)
    }

    pub(super) fn concat(&mut self, q: &Quantized) -> Result<bool> {
        let Some((node, concat)) = self.made_by::<Concat>(q.from) else { return Ok(false) };
        let axis = concat.axis;
        let count = self.old[node].inputs.len();
        let parts: Option<Vec<_>> =
            (0..count).map(|i| self.input(node, i).and_then(|x| self.dequantized(x))).collect();
        let Some(parts) = parts else { return Ok(false) };
        if q.limits != (f32::NEG_INFINITY, f32::INFINITY) {
            return Ok(false);
        }
        // Nothing is written before all tables are there.
        let tables: Option<Vec<_>> = parts
            .into_iter()
            .map(|(x, quant)| {
                let same = quant == q.quant;
                Some((x, if same { None } else { Some(table(quant, None, q.quant)?) }))
            })
            .collect();
        let Some(parts) = tables else { return Ok(false) };
        let image = parts.iter().any(|(x, _)| self.channels_last.contains_key(x))
            && self.rank(q.from) == Some(4);
        let mut inputs = Vec::with_capacity(parts.len());
        for (x, table) in parts {
            let x = if image { self.channels_last(x)? } else { x };
            inputs.push(match table {
                None => x,
                Some(table) => {
                    let name = format!("{}.requantized", self.graph.values[x.0].name);
                    let id = self.graph.add_value(name);
                    self.push(table, vec![x], id)?;
                    id
                }
            });
        }
        if image {
            let axis = match if axis < 0 { axis + 4 } else { axis } {
                1 => 3,
                2 => 1,
                3 => 2,
                first => first,
            };
            self.push_channels_last(Concat { axis }, inputs, q.out)?;
        } else {
            self.push(Concat { axis }, inputs, q.out)?;
        }
        Ok(true)
    }

    /// A function of one element is a table of 256; so is another scale.
    pub(super) fn function(&mut self, q: &Quantized) -> Result<bool> {
        if q.limits != (f32::NEG_INFINITY, f32::INFINITY) {
            return Ok(false);
        }
        let (x, op) = match self.dequantized(q.from) {
            Some(x) => (Some(x), None),
            None => {
                let node = self.producers.get(q.from.0).copied().flatten();
                let Some(node) = node.filter(|&n| self.is_function(n)) else { return Ok(false) };
                let x = self.input(node, 0).and_then(|x| self.dequantized(x));
                (x, Some(node))
            }
        };
        let Some((x, quant)) = x else { return Ok(false) };
        let op = op.map(|node| &*self.old[node].op);
        let Some(table) = table(quant, op, q.quant) else { return Ok(false) };
        if let Some(&image) = self.channels_last.get(&x) {
            self.push_channels_last(table, vec![image], q.out)?;
        } else {
            self.push(table, vec![x], q.out)?;
        }
        Ok(true)
    }

    fn is_function(&self, node: usize) -> bool {
        let alone = self.old[node].inputs.iter().flatten().count() == 1;
        alone && (self.op::<Unary>(node).is_some() || self.op::<Clip>(node).is_some())
    }
}

/// The table of going back to floats, a function, and quantising again.
fn table(x: Quant, function: Option<&dyn Op>, y: Quant) -> Option<QLookup> {
    let ctx = Context::new(1);
    let patterns: Vec<u8> = (0..=u8::MAX).collect();
    let bytes = Tensor::from_bytes(x.dtype, [256], &patterns).ok()?;
    let scale = |q: Quant| Tensor::scalar(q.scale).ok();
    let zero = |q: Quant| match q.dtype {
        DType::I8 => Tensor::scalar(i8::try_from(q.zero).ok()?).ok(),
        _ => Tensor::scalar(u8::try_from(q.zero).ok()?).ok(),
    };
    let run = |op: &dyn Op, inputs: &[&Tensor]| {
        let views: Vec<_> = inputs.iter().map(|t| Some(t.view())).collect();
        op.run(&ctx, &views).ok()?.into_iter().next()
    };
    let mut floats = run(&DequantizeLinear::default(), &[&bytes, &scale(x)?, &zero(x)?])?;
    if let Some(function) = function {
        floats = run(function, &[&floats])?;
    }
    let out = run(&QuantizeLinear::default(), &[&floats, &scale(y)?, &zero(y)?])?;
    let table = Box::new(<[u8; 256]>::try_from(out.as_bytes()).ok()?);
    Some(QLookup { from: x.dtype, to: y.dtype, table })
}
