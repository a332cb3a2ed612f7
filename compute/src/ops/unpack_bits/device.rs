//! Weights that are stored in blocks of a few bits, on devices.

use super::UnpackBits;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups};
use crate::op::ValueInfo;
use lgp_memory::DType;

const GROUP: usize = 64;

pub(super) fn launches(op: &UnpackBits, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let elements = |i: usize| optional(inputs, i)?.ty.concrete_shape()?.elements().ok();
    let blocks = op.blocks();
    let zero = optional(inputs, 2).map(|zero| zero.ty.dtype);
    if !op.fits([elements(0)?, elements(1)?], zero.zip(elements(2))) {
        return None;
    }
    let zero_row = (blocks * op.bits).div_ceil(8);
    let mut arguments = vec![Argument::Input(0), Argument::Input(1)];
    let mut kernel = Kernel::new("unpack_bits", include_str!("unpack_bits.cl"), [GROUP, 1, 1])
        .define("BITS", op.bits);
    let (pointer, zero) = match zero {
        None => ("", format!("{}.0f", 1u32 << (op.bits - 1))),
        Some(DType::F32) => ("GLOBAL const float *zero_point,", "zero_point[group]".to_owned()),
        Some(_) => {
            let at = format!("element(zero_point + (column) * {zero_row}u, (group) % {blocks}u)");
            ("GLOBAL const u8 *zero_point,", at)
        }
    };
    kernel = kernel.define("ZERO_POINTER", pointer).define("ZERO(group, column)", zero);
    if optional(inputs, 2).is_some() {
        arguments.push(Argument::Input(2));
    }
    let count = op.k.checked_mul(op.n)?;
    if count == 0 {
        return Some(Launches::default());
    }
    arguments.push(Argument::Output(0));
    for size in [op.k, op.n, blocks, op.block] {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let bytes = (count * op.bits / 8 + 4 * count) as u64;
    let flops = 2 * count as u64;
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops, bytes }.into())
}
