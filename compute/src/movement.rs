//! Moving elements of any dtype by their size.

use crate::error::Result;
use crate::op::Context;
use crate::par::Failure;
use lgp_memory::{DType, Layout, Tensor, TensorView};

/// Bytes that are moved by one elementary operation.
pub(crate) const WORD: usize = 4;

/// The byte that repeats in a zero of a tensor's dtype, or in an empty string's number. An empty
/// string is the first text of the table, or else a number without a text.
pub(crate) fn zero_byte(x: &TensorView<'_>) -> u8 {
    let first = x.string_table().map_or("", |table| table.text(0));
    if x.dtype() == DType::Str && !first.is_empty() { u8::MAX } else { 0 }
}

/// The elements of a strided view of `x` as a tensor.
pub(crate) fn strided(ctx: &Context, x: &TensorView<'_>, view: &Layout) -> Result<Tensor> {
    let mut out = ctx.alloc(x.dtype(), view.dims())?;
    let (size, src) = (x.dtype().size(), x.as_bytes());
    let dst = out.as_bytes_mut()?;
    // Each index of the first axis that has several is one stretch of the output.
    let Some(axis) = view.dims().iter().position(|&dim| dim > 1).filter(|_| !dst.is_empty()) else {
        view.copy(size, src, dst)?;
        return Ok(out);
    };
    let unit = dst.len() / view.dims()[axis];
    let failure = Failure::default();
    ctx.split(dst, unit, unit / WORD, |first, part| {
        let view = view.sliced(axis, first, 1, part.len() / unit);
        failure.note(view.and_then(|view| view.copy(size, src, part)).map_err(Into::into));
    });
    failure.result()?;
    Ok(out)
}

/// The sizes of everything before, at and after an axis.
pub(crate) fn around(dims: &[usize], axis: usize) -> (usize, usize, usize) {
    // The products divide the element count of an existing tensor or a checked output, so they do
    // not overflow. Where that count is zero, no element is addressed with them.
    let product = |dims: &[usize]| dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    (product(&dims[..axis]), dims[axis], product(&dims[axis + 1..]))
}
