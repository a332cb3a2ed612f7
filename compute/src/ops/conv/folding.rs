//! Folds a factor and a shift per channel after a convolution into its weight and bias.

use crate::error::Result;
use crate::op::ValueInfo;
use crate::rewrite::{Affine, Operand};
use lgp_memory::{DType, Tensor};

/// The inputs with `affine` folded in; `None` where weight or bias is not constant, does not
/// fit, or would not stay finite.
pub(super) fn with_affine(
    inputs: &[Option<&ValueInfo>],
    affine: &Affine,
) -> Result<Option<Vec<Operand>>> {
    let constant = |i: usize| {
        let info = inputs.get(i).copied().flatten()?;
        info.constant.as_ref().filter(|t| t.dtype() == DType::F32)
    };
    let Some(weight) = constant(1) else { return Ok(None) };
    let channels = weight.shape().first().copied().unwrap_or(0);
    let bias = match inputs.get(2).copied().flatten() {
        Some(_) => constant(2).cloned(),
        None => Some(Tensor::zeros(DType::F32, [channels])?),
    };
    let Some(mut bias) = bias.filter(|bias| bias.len() == channels && channels > 0) else {
        return Ok(None);
    };
    // The channels are axis 1 of the output `[n, m, spatial…]`.
    if !affine.fits(weight.shape().rank() - 1, channels) {
        return Ok(None);
    }
    let mut scaled = weight.clone();
    let row = weight.len() / channels;
    if row > 0 && affine.factors.iter().any(|&factor| factor != 1.) {
        for (c, row) in scaled.as_mut_slice::<f32>()?.chunks_exact_mut(row).enumerate() {
            row.iter_mut().for_each(|w| *w = (f64::from(*w) * affine.at(c).0) as f32);
        }
    }
    for (c, b) in bias.as_mut_slice::<f32>()?.iter_mut().enumerate() {
        let (factor, shift) = affine.at(c);
        *b = (f64::from(*b) * factor + shift) as f32;
    }
    let is_finite =
        |t: &Tensor| t.as_slice::<f32>().is_ok_and(|values| values.iter().all(|v| v.is_finite()));
    if !is_finite(&scaled) || !is_finite(&bias) {
        return Ok(None);
    }
    Ok(Some(vec![Operand::Input(0), Operand::Constant(scaled), Operand::Constant(bias)]))
}
