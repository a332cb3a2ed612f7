//! GridSample on devices: an output reads up to two elements along each axis.

use super::{GridSample, SampleMode, SamplePadding};
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, load};
use crate::op::ValueInfo;
use lgp_memory::DType;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &GridSample,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, grid, y) = (optional(inputs, 0)?, optional(inputs, 1)?, outputs.first()?);
    let (dims, shape) = (x.ty.concrete_shape()?, y.ty.concrete_shape()?);
    let spatial = &dims[2..];
    let linear = match op.mode {
        SampleMode::Linear => true,
        SampleMode::Nearest => false,
        SampleMode::Cubic => return None,
    };
    if !(1..=3).contains(&spatial.len()) || dims.contains(&0) || shape.contains(&0) {
        return None;
    }
    let is_float = matches!(grid.ty.dtype, DType::F32 | DType::F16 | DType::BF16);
    let kernel = Kernel::new("grid_sample", include_str!("grid_sample.cl"), [GROUP, 1, 1])
        .floats(x.ty.dtype)?
        .define("GRID_TYPE", c_type(grid.ty.dtype).filter(|_| is_float)?)
        .define("GRID_LOAD(p, i)", load(grid.ty.dtype, "(p)", "(i)"))
        .define("AXES", spatial.len())
        .define("LINEAR", usize::from(linear))
        .define("BORDER", usize::from(op.padding == SamplePadding::Border))
        .define("REFLECTION", usize::from(op.padding == SamplePadding::Reflection))
        .define("ALIGN_CORNERS", usize::from(op.align_corners));
    let mut sizes = [1; 3];
    sizes[3 - spatial.len()..].copy_from_slice(spatial);
    let count: usize = shape.iter().product();
    let mut arguments = vec![Argument::Input(0), Argument::Input(1), Argument::Output(0)];
    for size in [count, shape[1], shape[2..].iter().product()].into_iter().chain(sizes) {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let positions = grid.ty.concrete_shape()?.byte_len(grid.ty.dtype).ok()?;
    let elements = dims.byte_len(x.ty.dtype).ok()? + shape.byte_len(x.ty.dtype).ok()?;
    let flops = if linear { 2 * (count << spatial.len()) as u64 } else { 0 };
    let (groups, bytes) = ([groups(count, GROUP), 1, 1], (elements + positions) as u64);
    Some(Call { kernel, groups, arguments, flops, bytes }.into())
}
