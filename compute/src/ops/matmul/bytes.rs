//! Products of bytes.

use crate::bytes::{Dequantized, OnBytes, Requantized, bias_steps, quantized_along};
use crate::epilogue::Activation;
use crate::error::Result;
use crate::op::ValueInfo;
use crate::ops::{QKind, QMatMul, QMatMulParts};
use crate::rewrite::{Operand, Step};
use lgp_memory::{DType, Tensor};

/// Weights with fewer elements are not worth quantising when the model does not ask for it.
const WORTH_QUANTIZING: usize = 1024;

/// The product from bytes to bytes with a packed matrix, plus an optional constant row.
pub(crate) fn on_bytes(
    transposed: bool,
    inputs: &[Option<Dequantized<'_>>],
    y: &Requantized,
) -> Option<OnBytes> {
    let x = inputs.first().copied().flatten()?.quant?;
    let weight = inputs.get(1).copied().flatten()?.weight?;
    let columns = usize::from(!transposed);
    if weight.scale.len() > 1 && weight.axis != columns {
        return None;
    }
    let n = *weight.tensor.shape().get(columns)?;
    let bias = match inputs.get(2).copied().flatten() {
        None => None,
        Some(row) => {
            let row = row.info.constant.as_ref().filter(|row| is_row(row, n))?;
            Some(bias_steps(row, x.scale, &weight.scale, y.quant.scale)?)
        }
    };
    let parts = QMatMulParts {
        weight: &weight.tensor.view(),
        transposed,
        weight_scale: &weight.scale,
        weight_zero: &weight.zero,
        kind: QKind::Fixed { x, y: y.quant, bias, limits: y.limits },
    };
    Some(OnBytes::new(QMatMul::new(parts).ok()?, &[0]))
}

/// Whether a constant is one f32 for each of `n` columns.
fn is_row(t: &Tensor, n: usize) -> bool {
    let (_, outer) = t.shape().split_last().map_or((0, &[][..]), |(last, outer)| (*last, outer));
    t.dtype() == DType::F32 && t.len() == n && outer.iter().all(|&d| d == 1)
}

/// The product from bytes to floats with a constant f32 matrix that is quantised here.
pub(crate) fn on_dynamic_bytes(
    transposed: bool,
    inputs: &[Option<&ValueInfo>],
) -> Result<Option<(Step, bool)>> {
    let constant = |i: usize| inputs.get(i).copied().flatten().and_then(|x| x.constant.as_ref());
    let weight = constant(1).filter(|w| {
        w.dtype() == DType::F32 && w.shape().rank() == 2 && w.len() >= WORTH_QUANTIZING
    });
    let Some(weight) = weight.filter(|_| constant(0).is_none()) else { return Ok(None) };
    let columns = usize::from(!transposed);
    let bias = match inputs.get(2).copied().flatten() {
        None => None,
        Some(_) => match constant(2).filter(|row| is_row(row, weight.shape()[columns])) {
            Some(row) => Some(row.as_slice::<f32>()?.to_vec()),
            None => return Ok(None),
        },
    };
    let quantized = quantized_along(weight, columns)?;
    let parts = QMatMulParts {
        weight: &quantized.tensor.view(),
        transposed,
        weight_scale: &quantized.scale,
        weight_zero: &quantized.zero,
        kind: QKind::Dynamic { bias, activation: Activation::None },
    };
    let Ok(op) = QMatMul::new(parts) else { return Ok(None) };
    Ok(Some((Step::new(op, (0..3).map(Operand::Made).collect()), false)))
}
