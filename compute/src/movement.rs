//! Moving elements of any dtype by their size.

use crate::error::Result;
use crate::op::Context;
use lgp_memory::{DType, Layout, Tensor, TensorView};

/// The byte that zeros of a tensor's dtype are made of, or empty strings: those are the first text
/// of the table, or a number that has no text.
pub(crate) fn zero_byte(x: &TensorView<'_>) -> u8 {
    let first = x.string_table().map_or("", |table| table.text(0));
    if x.dtype() == DType::Str && !first.is_empty() { u8::MAX } else { 0 }
}

/// The elements of a strided view of `x` as a tensor.
pub(crate) fn strided(ctx: &Context, x: &TensorView<'_>, view: &Layout) -> Result<Tensor> {
    let mut out = ctx.alloc(x.dtype(), view.dims())?;
    view.copy(x.dtype().size(), x.as_bytes(), out.as_bytes_mut()?)?;
    Ok(out)
}

/// The sizes of everything before, at and after an axis.
pub(crate) fn around(dims: &[usize], axis: usize) -> (usize, usize, usize) {
    // The products are parts of an existing tensor's or a checked output's element count, unless
    // that is zero; then no element is ever addressed with them.
    let product = |dims: &[usize]| dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    (product(&dims[..axis]), dims[axis], product(&dims[axis + 1..]))
}
