//! Bounds-checked matrix products on the `gemm` crate.

use crate::error::{Error, Result};
use crate::op::Context;
use lgp_memory::Element;

/// A type with a matrix kernel.
pub(crate) trait Real: Element + num_traits::Float + num_traits::FromPrimitive {}
impl Real for f32 {}
impl Real for f64 {}

/// A matrix inside a slice: element `(i, j)` is at `i · row + j · column`.
#[derive(Clone, Copy)]
pub(crate) struct Mat<'a, T> {
    pub(crate) data: &'a [T],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl<'a, T> Mat<'a, T> {
    /// Rows of `columns` elements that follow each other.
    pub(crate) fn rows(data: &'a [T], columns: usize) -> Self {
        Self { data, row: columns, column: 1 }
    }

    /// The transpose.
    pub(crate) fn t(self) -> Self {
        Self { data: self.data, row: self.column, column: self.row }
    }
}

/// Up to so many rows, a transposed `b`, which a layer's weight mostly is, is read as it lies, once
/// for each row. The kernel for more rows would rearrange all of it first, which took several times
/// as long as the products themselves.
const FEW_ROWS: usize = 6;

/// `c = a · b + keep · c` with c of `m` rows, `row` elements apart, and `n` columns.
pub(crate) fn product<T: Real>(
    ctx: &Context,
    (m, n, k): (usize, usize, usize),
    a: Mat<'_, T>,
    b: Mat<'_, T>,
    c: &mut [T],
    row: usize,
    keep: bool,
) -> Result<()> {
    if m == 0 || n == 0 {
        return Ok(());
    }
    let fits = reach(m, k, a.row, a.column).is_some_and(|r| r <= a.data.len())
        && reach(k, n, b.row, b.column).is_some_and(|r| r <= b.data.len())
        && reach(m, n, row, 1).is_some_and(|r| r <= c.len())
        && (row >= n || m == 1);
    if !fits {
        return Err(Error::invalid("MatMul", format!("{m}x{k} by {k}x{n} leaves its operands")));
    }
    if (2..=FEW_ROWS).contains(&m) && b.row == 1 && k > 1 {
        for i in 0..m {
            let a = Mat { data: &a.data[i * a.row..], ..a };
            product(ctx, (1, n, k), a, b, &mut c[i * row..], row, keep)?;
        }
        return Ok(());
    }
    let operations = m.saturating_mul(n).saturating_mul(k);
    // Strides of slices in memory, which never pass isize::MAX: `reach` was checked.
    let s = |n: usize| isize::try_from(n).unwrap_or(0);
    // SAFETY: all elements that the kernel reads or writes lie inside the slices, as just
    // checked, and `c`'s rows do not overlap and are borrowed exclusively.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            s(row),
            keep,
            a.data.as_ptr(),
            s(a.column),
            s(a.row),
            b.data.as_ptr(),
            s(b.column),
            s(b.row),
            T::one(),
            T::one(),
            false,
            false,
            false,
            ctx.gemm_parallelism(operations),
        );
    }
    Ok(())
}

/// Elements that an `m × n` matrix spans; `None` when that overflows.
fn reach(m: usize, n: usize, row: usize, column: usize) -> Option<usize> {
    if m == 0 || n == 0 {
        return Some(0);
    }
    let last = (m - 1).checked_mul(row)?.checked_add((n - 1).checked_mul(column)?)?;
    last.checked_add(1)
}
