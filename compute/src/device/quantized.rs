//! Kernels that find a scale, and maybe a zero point, for each element.

use super::kernel::{Argument, Call, Kernel, c_type, groups};
use super::launches::Launches;
use crate::args::optional;
use crate::op::ValueInfo;
use crate::quantized::Granularity;
use lgp_memory::DType;

/// The launch of a kernel on an input, its scales and, if there are any, its zero points, which
/// have the dtype `quantized`; one element per work-item. The kernel gets `SCALE_AT(i)`,
/// `ZERO_POINTER` for its parameters, and `ZERO(at)`. An element takes `flops` operations.
pub(crate) fn scaled(
    kernel: Kernel,
    granularity: &Granularity,
    quantized: DType,
    inputs: &[Option<&ValueInfo>],
    y: &ValueInfo,
    flops: u64,
) -> Option<Launches> {
    let x = optional(inputs, 0)?;
    let count = x.ty.concrete_shape()?.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let (scale_at, sizes) = granularity.expression();
    let kernel = kernel.define("SCALE_AT(i)", scale_at);
    let mut arguments = vec![Argument::Input(0), Argument::Input(1)];
    let kernel = match optional(inputs, 2) {
        None => kernel.define("ZERO_POINTER", "").define("ZERO(at)", "0"),
        Some(_) => {
            arguments.push(Argument::Input(2));
            let pointer = format!("GLOBAL const {} *zero_point,", c_type(quantized)?);
            kernel.define("ZERO_POINTER", pointer).define("ZERO(at)", "zero_point[at]")
        }
    };
    arguments.push(Argument::Output(0));
    for size in [&[count][..], &sizes].concat() {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let groups = [groups(count, kernel.group()[0]), 1, 1];
    let bytes = (count * (x.ty.dtype.size() + y.ty.dtype.size())) as u64;
    let flops = flops * count as u64;
    Some(Call { kernel, groups, arguments, flops, bytes }.into())
}
