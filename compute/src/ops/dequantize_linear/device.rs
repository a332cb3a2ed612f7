//! Back from quantised values, on devices.

use super::DequantizeLinear;
use crate::device::{Kernel, Launches, c_type, load, scaled};
use crate::op::ValueInfo;
use crate::quantized::Granularity;

pub(super) fn launches(
    op: &DequantizeLinear,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let ([Some(x), Some(scale), ..], [y]) = (inputs, outputs) else { return None };
    let (shape, scales) = (x.ty.concrete_shape()?, scale.ty.concrete_shape()?);
    let granularity = Granularity::new(&shape, &scales, op.axis, op.block).ok()?;
    let source = include_str!("dequantize_linear.cl");
    let kernel = Kernel::new("dequantize_linear", source, [64, 1, 1])
        .define("X_TYPE", c_type(x.ty.dtype)?)
        .define("SCALE_TYPE", c_type(scale.ty.dtype)?)
        .define("LOAD_SCALE(at)", load(scale.ty.dtype, "scale", "(at)"))
        .storing(y.ty.dtype)?;
    scaled(kernel, &granularity, x.ty.dtype, inputs, y, 2)
}
