//! Back from quantised values, on devices.

use super::DequantizeLinear;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, load};
use crate::op::{Op, ValueInfo};
use crate::quantized::Granularity;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &DequantizeLinear,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let ([Some(x), Some(scale), ..], [y]) = (inputs, outputs) else { return None };
    let x_type = c_type(x.ty.dtype)?;
    let shape = x.ty.concrete_shape()?;
    let granularity =
        Granularity::new(op.name(), &shape, &scale.ty.concrete_shape()?, op.axis, op.block).ok()?;
    let (scale_at, sizes) = granularity.expression();
    let count = shape.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let kernel =
        Kernel::new("dequantize_linear", include_str!("dequantize_linear.cl"), [GROUP, 1, 1])
            .define("X_TYPE", x_type)
            .define("SCALE_TYPE", c_type(scale.ty.dtype)?)
            .define("LOAD_SCALE(at)", load(scale.ty.dtype, "scale", "(at)"))
            .define("SCALE_AT(i)", scale_at)
            .storing(y.ty.dtype)?;
    let mut arguments = vec![Argument::Input(0), Argument::Input(1)];
    let kernel = match optional(inputs, 2) {
        None => kernel.define("ZERO_POINTER", "").define("ZERO(at)", "0"),
        Some(_) => {
            arguments.push(Argument::Input(2));
            let pointer = format!("GLOBAL const {x_type} *zero_point,");
            kernel.define("ZERO_POINTER", pointer).define("ZERO(at)", "zero_point[at]")
        }
    };
    arguments.push(Argument::Output(0));
    for size in [&[count][..], &sizes].concat() {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let bytes = count * (x.ty.dtype.size() + y.ty.dtype.size());
    let (flops, bytes) = (2 * count as u64, bytes as u64);
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes }.into())
}
