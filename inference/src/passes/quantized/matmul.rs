//! Products of bytes, and of floats that are quantised on the way.

use super::{Quantized, Rewrite};
use crate::error::Result;
use crate::graph::ValueId;
use lgp_compute::Activation;
use lgp_compute::ops::{
    Binary, BinaryKind, Cast, DynamicQuantizeLinear, Gemm, MatMul, MatMulInteger, QKind, QMatMul,
    QMatMulParts,
};
use lgp_memory::{DType, Tensor};

/// Weights with fewer elements are not worth quantising when the model does not ask for it.
const WORTH_QUANTIZING: usize = 1024;

impl Rewrite<'_> {
    pub(super) fn product(&mut self, q: &Quantized) -> Result<bool> {
        let Some((x, op)) = self.product_of(q) else { return Ok(false) };
        self.push(op, vec![x], q.out)?;
        Ok(true)
    }

    fn product_of(&self, q: &Quantized) -> Option<(ValueId, QMatMul)> {
        let mut from = q.from;
        let mut bias = None;
        if self.uses[from.0] != 1 {
            return None;
        }
        if let Some((node, _)) =
            self.made_by::<Binary>(from).filter(|(_, b)| b.kind == BinaryKind::Add)
        {
            let (sum, addend) = self.with_constant(node)?;
            (from, bias) = (sum, Some(addend));
        }
        let (node, transposed) = self.matrix_product(from).filter(|_| self.uses[from.0] == 1)?;
        if let Some(id) = self.input(node, 2) {
            bias = bias.is_none().then_some(Some(id))?;
        }
        let (x, quant) = self.dequantized(self.input(node, 0)?)?;
        let weight = self.weight(self.input(node, 1)?)?;
        let columns = if transposed { 0 } else { 1 };
        if weight.scale.len() > 1 && weight.axis != columns {
            return None;
        }
        let n = *weight.tensor.shape().get(usize::from(!transposed))?;
        let bias = match bias {
            None => None,
            Some(id) if self.is_row(id, n) && self.keeps_rank(id, from) => {
                Some(self.bias(id, quant.scale, &weight.scale, q.quant.scale)?)
            }
            Some(_) => return None,
        };
        let parts = QMatMulParts {
            weight: &weight.tensor.view(),
            transposed,
            weight_scale: &weight.scale,
            weight_zero: &weight.zero,
            kind: QKind::Fixed { x: quant, y: q.quant, bias, limits: q.limits },
        };
        Some((x, QMatMul::new(parts).ok()?))
    }

    /// Whether a constant is one f32 for each of `n` columns.
    fn is_row(&self, id: ValueId, n: usize) -> bool {
        self.graph.constant(id).is_some_and(|t| {
            let (_, outer) = t.shape().split_last().map_or((0, &[][..]), |(l, o)| (*l, o));
            t.dtype() == DType::F32 && t.len() == n && outer.iter().all(|&d| d == 1)
        })
    }

    /// Whether a constant surely has no more dimensions than a value that it is combined with.
    fn keeps_rank(&self, constant: ValueId, value: ValueId) -> bool {
        let rank = self.graph.constant(constant).map(|t| t.shape().rank());
        rank.is_some() && self.rank(value) >= rank
    }

    /// The inputs of a node of which one is a constant, which comes second here.
    fn with_constant(&self, node: usize) -> Option<(ValueId, ValueId)> {
        let (a, b) = (self.input(node, 0)?, self.input(node, 1)?);
        match (self.graph.constant(a), self.graph.constant(b)) {
            (None, Some(_)) => Some((a, b)),
            (Some(_), None) => Some((b, a)),
            _ => None,
        }
    }

    /// The node of a plain product of matrices, and whether its right side is transposed.
    fn matrix_product(&self, out: ValueId) -> Option<(usize, bool)> {
        let node = self.producers.get(out.0).copied().flatten()?;
        self.is_product(node).map(|transposed| (node, transposed))
    }

    #[allow(clippy::float_cmp, reason = "exactly the defaults")]
    fn is_product(&self, node: usize) -> Option<bool> {
        if self.op::<MatMul>(node).is_some() {
            return Some(false);
        }
        let gemm = self.op::<Gemm>(node)?;
        let plain = gemm.alpha == 1. && !gemm.trans_a;
        let plain = plain && (gemm.beta == 1. || self.input(node, 2).is_none());
        plain.then_some(gemm.trans_b)
    }

    /// `MatMulInteger` of what `DynamicQuantizeLinear` makes, `Cast`, `Mul` and perhaps `Add`,
    /// replaced where the product is.
    pub(super) fn dynamic(&mut self, index: usize) -> Result<Option<Vec<usize>>> {
        let Some((x, mut out, (weight, scale, zero, only))) = self.dynamic_of(index) else {
            return Ok(None);
        };
        let mut also = Vec::new();
        let n = weight.shape().get(1).copied().unwrap_or(0);
        let bias = self.bias_after(out, n, &mut out, &mut also);
        let parts = QMatMulParts {
            weight: &weight.view(),
            transposed: false,
            weight_scale: &scale,
            weight_zero: &zero,
            kind: QKind::Dynamic { bias, activation: Activation::None },
        };
        let Ok(op) = QMatMul::new(parts) else { return Ok(None) };
        self.push(op, x.to_vec(), out)?;
        if let Some(id) = only {
            self.graph.release(id, &mut self.uses);
        }
        Ok(Some(also))
    }

    /// The bias that is added to a value that only the addition reads.
    fn bias_after(
        &self,
        value: ValueId,
        n: usize,
        out: &mut ValueId,
        also: &mut Vec<usize>,
    ) -> Option<Vec<f32>> {
        let reader = self.readers[value.0].filter(|_| self.uses[value.0] == 1)?;
        self.op::<Binary>(reader).filter(|b| b.kind == BinaryKind::Add)?;
        let (sum, bias) = self.with_constant(reader)?;
        if sum != value || !self.is_row(bias, n) {
            return None;
        }
        if !self.keeps_rank(bias, value) {
            return None;
        }
        *out = self.old[reader].outputs.first().copied().flatten()?;
        also.push(reader);
        Some(self.graph.constant(bias)?.as_slice::<f32>().ok()?.to_vec())
    }

    /// The bytes with their scale and zero point, the output, and the weight of the pattern that
    /// ends in a multiplication, with where it is stored if nothing else reads it.
    #[allow(clippy::type_complexity, reason = "read once, right after")]
    fn dynamic_of(
        &self,
        index: usize,
    ) -> Option<([ValueId; 3], ValueId, (Tensor, Vec<f32>, Vec<i32>, Option<ValueId>))> {
        self.op::<Binary>(index).filter(|b| b.kind == BinaryKind::Mul)?;
        let inputs = [self.input(index, 0)?, self.input(index, 1)?];
        let (cast, scales) = match inputs.map(|id| self.made_by::<Cast>(id)) {
            [Some((cast, _)), _] => (cast, inputs[1]),
            [_, Some((cast, _))] => (cast, inputs[0]),
            _ => return None,
        };
        let (product, _) = self.made_by::<MatMulInteger>(self.input(cast, 0)?)?;
        let (quantize, _) = self.made_by::<DynamicQuantizeLinear>(self.input(product, 0)?)?;
        let own = &self.old[quantize].outputs;
        let own = |i: usize| own.get(i).copied().flatten();
        if self.input(product, 2) != own(2) || own(2).is_none() {
            return None;
        }
        let (scale, _) =
            self.made_by::<Binary>(scales).filter(|(_, b)| b.kind == BinaryKind::Mul)?;
        let (dynamic, weight_scale) = self.with_constant(scale)?;
        if Some(dynamic) != own(1) {
            return None;
        }
        let weight = self.constant(product, 1)?.clone();
        if !self.keeps_rank(weight_scale, self.input(cast, 0)?) {
            return None;
        }
        let weight_scale = self.graph.constant(weight_scale)?;
        let outer_ones =
            weight_scale.shape().split_last().is_none_or(|(_, o)| o.iter().all(|&d| d == 1));
        if !outer_ones {
            return None;
        }
        let scale = weight_scale.as_slice::<f32>().ok()?.to_vec();
        let zero = match self.constant(product, 3) {
            None if self.input(product, 3).is_some() => return None,
            None => vec![0],
            Some(zero) if zero.dtype() == DType::I8 => {
                zero.as_slice::<i8>().ok()?.iter().map(|&z| z.into()).collect()
            }
            Some(zero) => zero.as_slice::<u8>().ok()?.iter().map(|&z| z.into()).collect(),
        };
        // One zero point serves all columns.
        let zero = if zero.len() == 1 { vec![zero[0]; scale.len()] } else { zero };
        let out = self.old[index].outputs.first().copied().flatten()?;
        let stored = self.input(product, 1)?;
        let chain = [stored, self.input(cast, 0)?, inputs[usize::from(inputs[0] == scales)]];
        let only = chain.iter().all(|id| self.uses[id.0] == 1).then_some(stored);
        Some(([own(0)?, own(1)?, own(2)?], out, (weight, scale, zero, only)))
    }

    /// A product of floats with a constant weight, quantised because the session asks for it.
    pub(super) fn made_dynamic(&mut self, index: usize) -> Result<Option<Vec<usize>>> {
        let Some(transposed) = self.is_product(index) else { return Ok(None) };
        let (Some(x), Some(out)) =
            (self.input(index, 0), self.old[index].outputs.first().copied().flatten())
        else {
            return Ok(None);
        };
        let weight = self.constant(index, 1).filter(|w| {
            w.dtype() == DType::F32 && w.shape().rank() == 2 && w.len() >= WORTH_QUANTIZING
        });
        let Some(weight) = weight.filter(|_| self.graph.constant(x).is_none()).cloned() else {
            return Ok(None);
        };
        let columns = weight.shape()[usize::from(!transposed)];
        let (bytes, scale) = per_column(&weight, transposed)?;
        let (mut also, mut result) = (Vec::new(), out);
        let bias = match self.input(index, 2) {
            None => self.bias_after(out, columns, &mut result, &mut also),
            Some(id) if self.is_row(id, columns) => {
                self.graph.constant(id).and_then(|b| b.as_slice::<f32>().ok()).map(<[_]>::to_vec)
            }
            Some(_) => return Ok(None),
        };
        let parts = QMatMulParts {
            weight: &bytes.view(),
            transposed,
            weight_scale: &scale,
            weight_zero: &vec![0; scale.len()],
            kind: QKind::Dynamic { bias, activation: Activation::None },
        };
        let Ok(op) = QMatMul::new(parts) else { return Ok(None) };
        let inputs = self.made_bytes(x)?;
        self.push(op, inputs.to_vec(), result)?;
        Ok(Some(also))
    }

    /// A value as bytes with their scale and zero point; several products share them.
    fn made_bytes(&mut self, x: ValueId) -> Result<[ValueId; 3]> {
        if let Some(&made) = self.quantized_floats.get(&x) {
            return Ok(made);
        }
        let made = ["bytes", "scale", "zero"].map(|what| {
            let name = format!("{}.{what}", self.graph.values[x.0].name);
            self.graph.add_value(name)
        });
        self.push_all(DynamicQuantizeLinear, vec![x], &made)?;
        self.quantized_floats.insert(x, made);
        Ok(made)
    }
}

/// A weight in i8 with a scale for each column.
fn per_column(weight: &Tensor, transposed: bool) -> Result<(Tensor, Vec<f32>)> {
    let data = weight.as_slice::<f32>()?;
    let (rows, row) = (weight.shape()[0], weight.shape()[1]);
    let column = |i: usize| if transposed { i / row } else { i % row };
    let mut most = vec![0f32; if transposed { rows } else { row }];
    for (i, w) in data.iter().enumerate() {
        let most = &mut most[column(i)];
        *most = most.max(w.abs());
    }
    let scale: Vec<f32> = most.iter().map(|&m| if m > 0. { m / 127. } else { 1. }).collect();
    #[allow(clippy::cast_possible_truncation, reason = "clamped to a byte")]
    let bytes: Vec<i8> = data
        .iter()
        .enumerate()
        .map(|(i, w)| (w / scale[column(i)]).round_ties_even().clamp(-127., 127.) as i8)
        .collect();
    Ok((Tensor::from_slice(weight.shape().clone(), &bytes)?, scale))
}
