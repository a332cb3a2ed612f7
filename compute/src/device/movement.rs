//! Moving elements of any dtype on a device, from one strided layout to another.

use super::kernel::{Argument, Call, Kernel, c_type, groups, store, word};
use super::launches::Launches;
use crate::op::ValueInfo;
use lgp_memory::{DType, Layout, Shape};
use std::fmt::Write as _;

const GROUP: usize = 64;

/// The call that moves elements of `source`, in the layout `from`, to `target`, in the layout `to`.
/// Both layouts have the same dimensions. `None` where 32 bits do not address the elements.
pub(crate) fn moves(
    dtype: DType,
    (source, from): (Argument, &Layout),
    (target, to): (Argument, &Layout),
) -> Option<Call> {
    let number = |n: isize| i32::try_from(n).ok().map(Argument::I32);
    let count = from.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    let mut arguments = vec![source, target, Argument::U32(u32::try_from(count).ok()?)];
    for offset in [from.offset(), to.offset()] {
        arguments.push(number(isize::try_from(offset).ok()?)?);
    }
    let (mut parameters, mut places) = (String::new(), String::new());
    let axes = axes(from, to);
    for (d, axis) in axes.iter().enumerate().rev() {
        let _ = write!(parameters, ", u32 n{d}, i32 a{d}, i32 b{d}");
        let _ = write!(
            places,
            "from += (i32)(rest % n{d}) * a{d}; to += (i32)(rest % n{d}) * b{d}; rest /= n{d}; "
        );
        arguments.push(Argument::U32(u32::try_from(axis.size).ok()?));
        arguments.extend([number(axis.from)?, number(axis.to)?]);
    }
    let kernel = Kernel::new("move_elements", include_str!("movement.cl"), [GROUP, 1, 1])
        .define("WORD", word(dtype)?)
        .define("PARAMETERS", parameters)
        .define("PLACES", places);
    let bytes = (2 * count * dtype.size()) as u64;
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops: 0, bytes })
}

/// A dimension along which both layouts step evenly.
struct Axis {
    size: usize,
    from: isize,
    to: isize,
}

/// The dimensions; a dimension is joined with the next inner one where both layouts step evenly
/// through the two.
fn axes(from: &Layout, to: &Layout) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    let steps = from.strides().iter().zip(to.strides());
    for (&size, (&from, &to)) in from.dims().iter().zip(steps) {
        if size == 1 {
            continue;
        }
        let inner = isize::try_from(size).unwrap_or(isize::MAX);
        match axes.last_mut() {
            Some(outer)
                if from.checked_mul(inner) == Some(outer.from)
                    && to.checked_mul(inner) == Some(outer.to) =>
            {
                *outer = Axis { size: outer.size.saturating_mul(size), from, to };
            }
            _ => axes.push(Axis { size, from, to }),
        }
    }
    axes
}

/// The call that writes a number, an expression of portable C, to `count` elements of `target`.
pub(crate) fn fills(dtype: DType, value: &str, target: Argument, count: usize) -> Option<Call> {
    let kernel = Kernel::new("fill", include_str!("fill.cl"), [GROUP, 1, 1])
        .define("TYPE", c_type(dtype)?)
        .define("STORE", store(dtype, value, "y", "i"));
    let arguments = vec![target, Argument::U32(u32::try_from(count).ok()?)];
    let bytes = (count * dtype.size()) as u64;
    Some(Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops: 0, bytes })
}

/// The expression of the index of the position numbered `i` of these dimensions, none of which is
/// 0, among elements with these strides.
pub(crate) fn at_strides(dims: &[usize], strides: &[usize], i: &str) -> String {
    let mut outer = 1;
    let mut terms = Vec::new();
    for (size, stride) in dims.iter().zip(strides).rev() {
        if *size > 1 && *stride > 0 {
            terms.push(format!("{i} / {outer}u % {size}u * {stride}u"));
        }
        outer *= size;
    }
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}

/// The contiguous layout of a tensor; `None` for unknown dimensions.
pub(crate) fn plain(info: &ValueInfo) -> Option<Layout> {
    Layout::contiguous(&info.ty.concrete_shape()?).ok()
}

/// The launches of an operator whose output is `view`, a layout of input 0.
pub(crate) fn viewed(view: &Layout, output: &ValueInfo) -> Option<Launches> {
    let to = Layout::contiguous(&Shape::from(view.dims())).ok()?;
    let (source, target) = ((Argument::Input(0), view), (Argument::Output(0), &to));
    Some(moves(output.ty.dtype, source, target)?.into())
}
