//! Convolutions.

use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{Conv, ConvTranspose, DeformConv, Pads};

pub(crate) fn conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    check_kernel(cx, 1)?;
    let op = Conv {
        strides: cx.sizes("strides")?,
        pads: pads(cx)?,
        dilations: cx.sizes("dilations")?,
        group: cx.size("group")?.unwrap_or(1),
    };
    cx.map(op)
}

pub(crate) fn conv_transpose(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    check_kernel(cx, 1)?;
    let output_shape = cx.sizes("output_shape")?;
    let op = ConvTranspose {
        strides: cx.sizes("strides")?,
        pads: pads(cx)?,
        dilations: cx.sizes("dilations")?,
        group: cx.size("group")?.unwrap_or(1),
        output_padding: cx.sizes("output_padding")?,
        output_shape: (!output_shape.is_empty()).then_some(output_shape),
    };
    cx.map(op)
}

/// The padding that `auto_pad` and `pads` ask for.
pub(crate) fn pads(cx: &mut NodeCx<'_>) -> Result<Pads, Refusal> {
    let explicit = cx.sizes("pads")?;
    match cx.text("auto_pad")?.unwrap_or("NOTSET") {
        "NOTSET" | "" => Ok(Pads::Explicit(explicit)),
        "VALID" => Ok(Pads::default()),
        "SAME_UPPER" => Ok(Pads::SameUpper),
        "SAME_LOWER" => Ok(Pads::SameLower),
        other => {
            Err(unsupported("auto_pad", other, &["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
        }
    }
}

/// Refuses an attribute `kernel_shape` that differs from the weight's shape.
pub(crate) fn check_kernel(cx: &mut NodeCx<'_>, weight: usize) -> Result<(), Refusal> {
    let kernel = cx.sizes("kernel_shape")?;
    let weight = cx.constant(weight).map(|w| w.shape().dims().to_vec());
    match weight {
        Some(dims) if !kernel.is_empty() && dims.get(2..) != Some(&kernel) => Err(format!(
            "attribute 'kernel_shape' is {kernel:?}, but the weight's shape is {dims:?}"
        )),
        _ => Ok(()),
    }
}

pub(crate) fn deform_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    check_kernel(cx, 1)?;
    let op = DeformConv {
        strides: cx.sizes("strides")?,
        pads: cx.sizes("pads")?,
        dilations: cx.sizes("dilations")?,
        group: cx.size("group")?.unwrap_or(1),
        offset_group: cx.size("offset_group")?.unwrap_or(1),
    };
    cx.map(op)
}
