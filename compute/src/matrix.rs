//! Bounds-checked matrix products on the `gemm` crate.

use crate::error::{Error, Result};
use crate::isa::Isa;
use crate::op::Context;
use crate::par::Shared;
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

/// Up to so many rows, a transposed `b`, such as most layers' weights, is read in place once for
/// each row. The kernel for more rows would rearrange all of `b` first, which took several times as
/// long as the products themselves.
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
        return Err(Error::invalid(format!(
            "an operand is too short for a product of {m}x{k} by {k}x{n}"
        )));
    }
    if (2..=FEW_ROWS).contains(&m) && b.row == 1 && k > 1 {
        for i in 0..m {
            let a = Mat { data: &a.data[i * a.row..], ..a };
            product(ctx, (1, n, k), a, b, &mut c[i * row..], row, keep)?;
        }
        return Ok(());
    }
    let scalar = ctx.simd().isa() == Isa::Scalar;
    // A product splits less evenly than element-wise work, so only larger products gain from
    // threads.
    let operations = m.saturating_mul(n).saturating_mul(k) / 8;
    let shared = Shared::new(c);
    if n >= m {
        let width = share(n, COLUMNS, ctx.parts(n.div_ceil(COLUMNS), operations));
        ctx.parallel(n.div_ceil(width), |i| {
            let (at, n) = (i * width, width.min(n - i * width));
            let b = Mat { data: &b.data[(at * b.column).min(b.data.len())..], ..b };
            // SAFETY: the parts write different columns of the rows that were checked.
            unsafe { serial(scalar, (m, n, k), a, b, shared.at(at), row, keep) };
        });
    } else {
        let height = share(m, ROWS, ctx.parts(m.div_ceil(ROWS), operations));
        ctx.parallel(m.div_ceil(height), |i| {
            let (at, m) = (i * height, height.min(m - i * height));
            let a = Mat { data: &a.data[(at * a.row).min(a.data.len())..], ..a };
            // SAFETY: the parts write different rows of those that were checked.
            unsafe { serial(scalar, (m, n, k), a, b, shared.at(at * row), row, keep) };
        });
    }
    Ok(())
}

/// A thread's part is a multiple of so many columns or rows, which the kernels compute at once.
const COLUMNS: usize = 32;
const ROWS: usize = 16;

/// How many of `n` rows or columns a part has. Other kernels, which sum in another order, would
/// compute a last part of under 8 rows or columns; fewer and wider parts avoid such a part.
fn share(n: usize, unit: usize, parts: usize) -> usize {
    let width = |parts| n.div_ceil(parts).next_multiple_of(unit);
    (1..=parts).rev().map(width).find(|w| n.is_multiple_of(*w) || n % w >= 8).unwrap_or(n)
}

/// Steps of the inner dimension that the kernels sum at once. The number is fixed for all sizes, so
/// that results do not depend on how the product is split.
const STEPS: usize = 256;

/// The product on this thread.
///
/// # Safety
/// The operands reach as far as their sizes and strides say, `c` points to `m` rows of `n`
/// elements that are `row` apart, and nobody else uses these elements.
unsafe fn serial<T: Real>(
    scalar: bool,
    (m, n, k): (usize, usize, usize),
    a: Mat<'_, T>,
    b: Mat<'_, T>,
    c: *mut T,
    row: usize,
    keep: bool,
) {
    if scalar {
        for i in 0..m {
            // SAFETY: row `i` is one of the `m`.
            let c = unsafe { std::slice::from_raw_parts_mut(c.add(i * row), n) };
            scalar_row((i, k), a, b, c, keep);
        }
        return;
    }
    // Strides within slices never exceed isize::MAX, because `reach` was checked.
    let s = |n: usize| isize::try_from(n).unwrap_or(0);
    for first in (0..k.max(1)).step_by(STEPS) {
        let (from_a, from_b) = (first * a.column, first * b.row);
        // SAFETY: as the caller promises; the steps from `first` on are some of the `k`.
        unsafe {
            gemm::gemm(
                m,
                n,
                STEPS.min(k - first),
                c,
                1,
                s(row),
                keep || first > 0,
                a.data.as_ptr().add(from_a),
                s(a.column),
                s(a.row),
                b.data.as_ptr().add(from_b),
                s(b.column),
                s(b.row),
                T::one(),
                T::one(),
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// One row of the product without vector instructions.
fn scalar_row<T: Real>(
    (i, k): (usize, usize),
    a: Mat<'_, T>,
    b: Mat<'_, T>,
    c: &mut [T],
    keep: bool,
) {
    if !keep {
        c.fill(T::zero());
    }
    for p in 0..k {
        let a = a.data[i * a.row + p * a.column];
        let row = &b.data[p * b.row..];
        if b.column == 1 {
            c.iter_mut().zip(row).for_each(|(c, b)| *c = *c + a * *b);
        } else {
            c.iter_mut().zip(row.iter().step_by(b.column)).for_each(|(c, b)| *c = *c + a * *b);
        }
    }
}

/// Elements that an `m × n` matrix spans; `None` when that overflows.
fn reach(m: usize, n: usize, row: usize, column: usize) -> Option<usize> {
    if m == 0 || n == 0 {
        return Some(0);
    }
    let last = (m - 1).checked_mul(row)?.checked_add((n - 1).checked_mul(column)?)?;
    last.checked_add(1)
}
