//! Quantisation on devices.

use super::QuantizeLinear;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, load};
use crate::op::{Op, ValueInfo};
use crate::quantized::{Granularity, range};
use lgp_memory::DType;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &QuantizeLinear,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let ([Some(x), Some(scale), ..], [y]) = (inputs, outputs) else { return None };
    // Quotients are rounded to the scale's dtype, which kernels calculate in as f32 only.
    if scale.ty.dtype != DType::F32 {
        return None;
    }
    let ((low, high), y_type) = (range(y.ty.dtype)?, c_type(y.ty.dtype)?);
    let shape = x.ty.concrete_shape()?;
    let granularity =
        Granularity::new(op.name(), &shape, &scale.ty.concrete_shape()?, op.axis, op.block).ok()?;
    let (scale_at, sizes) = granularity.expression();
    let count = shape.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let kernel = Kernel::new("quantize_linear", include_str!("quantize_linear.cl"), [GROUP, 1, 1])
        .define("X_TYPE", c_type(x.ty.dtype)?)
        .define("LOAD(i)", load(x.ty.dtype, "x", "(i)"))
        .define("Y_TYPE", y_type)
        .define("SCALE_AT(i)", scale_at)
        .define("LOW", format!("({low})"))
        .define("HIGH", high);
    let mut arguments = vec![Argument::Input(0), Argument::Input(1)];
    let kernel = match optional(inputs, 2) {
        None => kernel.define("ZERO_POINTER", "").define("ZERO(at)", "0"),
        Some(_) => {
            arguments.push(Argument::Input(2));
            let pointer = format!("GLOBAL const {y_type} *zero_point,");
            kernel.define("ZERO_POINTER", pointer).define("ZERO(at)", "zero_point[at]")
        }
    };
    arguments.push(Argument::Output(0));
    for size in [&[count][..], &sizes].concat() {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let bytes = count * (x.ty.dtype.size() + y.ty.dtype.size());
    let (flops, bytes) = (4 * count as u64, bytes as u64);
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes }.into())
}
