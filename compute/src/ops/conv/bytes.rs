//! Convolutions of bytes.

use super::Conv;
use super::channels_last::{geometry, merged};
use crate::bytes::{Dequantized, OnBytes, Requantized, bias_steps, quantized_along};
use crate::error::Result;
use crate::op::ValueInfo;
use crate::ops::{ConvGeometry, QConv, QConvParts};
use crate::rewrite::{Operand, Step};
use lgp_memory::DType;

/// Convolutions with fewer weights are not worth quantising when the model does not ask for it.
const WORTH_QUANTIZING: usize = 1024;

/// The channels-last convolution from bytes to bytes, with the weight's bytes packed.
pub(super) fn on_bytes(
    op: &Conv,
    inputs: &[Option<Dequantized<'_>>],
    y: &Requantized,
) -> Option<OnBytes> {
    let x = inputs.first().copied().flatten()?.quant?;
    let weight = inputs.get(1).copied().flatten()?.weight?;
    let geometry = geometry(op, &weight.tensor)?;
    if weight.scale.len() > 1 && weight.axis != 0 {
        return None;
    }
    // Merging pads the weight with bytes of 0, which stand for 0 only if the zero points are 0.
    let is_centred =
        weight.tensor.dtype() == DType::I8 && weight.zero.iter().all(|zero| *zero == 0);
    let group = if is_centred { geometry.group } else { 1 };
    let (together, tensor) = merged(group, &weight.tensor);
    let geometry = if is_centred { ConvGeometry { group: together, ..geometry } } else { geometry };
    let bias = match inputs.get(2).copied().flatten() {
        None => None,
        Some(bias) => {
            let bias = bias.info.constant.as_ref()?;
            Some(bias_steps(bias, x.scale, &weight.scale, y.quant.scale)?)
        }
    };
    let parts = QConvParts {
        x,
        weight: &tensor.view(),
        weight_scale: &weight.scale,
        weight_zero: &weight.zero,
        bias: bias.as_deref(),
        y: y.quant,
        limits: y.limits,
    };
    // A convolution that no kernel supports stays as it is.
    let op = QConv::new(geometry, parts).ok()?;
    Some(OnBytes::new(op, &[0]).channels_last())
}

/// The channels-last convolution from bytes to floats, whose weight of floats is quantised here.
pub(super) fn on_dynamic_bytes(
    op: &Conv,
    inputs: &[Option<&ValueInfo>],
) -> Result<Option<(Step, bool)>> {
    let constant = |i: usize| inputs.get(i).copied().flatten().and_then(|x| x.constant.as_ref());
    let weight = constant(1).filter(|w| w.dtype() == DType::F32 && w.len() >= WORTH_QUANTIZING);
    let x = inputs.first().copied().flatten();
    let is_image = x.is_some_and(|x| x.constant.is_none() && x.rank() == Some(4));
    let Some(weight) = weight.filter(|_| is_image) else { return Ok(None) };
    let Some(geometry) = geometry(op, weight) else { return Ok(None) };
    let bias = match inputs.get(2).copied().flatten() {
        None => None,
        Some(_) => match constant(2).and_then(|bias| bias.as_slice::<f32>().ok()) {
            Some(bias) => Some(bias),
            None => return Ok(None),
        },
    };
    let quantized = quantized_along(weight, 0)?;
    let Ok(op) = QConv::dynamic(geometry, &quantized, bias) else { return Ok(None) };
    Ok(Some((Step::new(op, (0..3).map(Operand::Made).collect()), true)))
}
