//! Quantisation on devices.

use super::QuantizeLinear;
use crate::device::{Kernel, Launches, c_type, load, scaled};
use crate::op::ValueInfo;
use crate::quantized::{Granularity, range};
use lgp_memory::DType;

pub(super) fn launches(
    op: &QuantizeLinear,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let ([Some(x), Some(scale), ..], [y]) = (inputs, outputs) else { return None };
    // Quotients are rounded to the scale's dtype, and kernels calculate in f32 only.
    if scale.ty.dtype != DType::F32 {
        return None;
    }
    let (low, high) = range(y.ty.dtype)?;
    let (shape, scales) = (x.ty.concrete_shape()?, scale.ty.concrete_shape()?);
    let granularity = Granularity::new(&shape, &scales, op.axis, op.block).ok()?;
    let kernel = Kernel::new("quantize_linear", include_str!("quantize_linear.cl"), [64, 1, 1])
        .define("X_TYPE", c_type(x.ty.dtype)?)
        .define("LOAD(i)", load(x.ty.dtype, "x", "(i)"))
        .define("Y_TYPE", c_type(y.ty.dtype)?)
        .define("LOW", format!("({low})"))
        .define("HIGH", high);
    scaled(kernel, &granularity, y.ty.dtype, inputs, y, 4)
}
