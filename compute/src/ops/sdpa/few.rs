//! Attention of a few rows, as when a decoder adds a token to its cache.
//!
//! Keys and values are read once for each row and nothing is packed: a copy would cost more than
//! the products with so few rows. The floor is the time in which memory delivers keys and values.

use crate::isa::Simd;
use crate::simd::dispatch;

/// At most so many rows are multiplied without packing. More rows use packed panels again and
/// again.
pub(super) const ROWS: usize = 4;

/// A matrix of which element `(i, j)` is at `i · steps[0] + j · steps[1]`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub(super) data: &'a [f32],
    pub(super) steps: [usize; 2],
}

impl Matrix<'_> {
    fn transposed(self) -> Self {
        let [down, right] = self.steps;
        Self { steps: [right, down], ..self }
    }

    /// `y = x · self` for a row `x` of as many elements as the matrix has rows.
    pub(super) fn times(self, simd: Simd, x: &[f32], y: &mut [f32]) {
        dispatch(
            simd,
            #[inline(always)]
            || {
                // The loops run along the axis whose elements are neighbours.
                if self.steps[0] == 1 { dots(self.transposed(), x, y) } else { sums(self, x, y) }
            },
        );
    }
}

/// `y[i]` is the product of `x` and row `i`, whose elements are neighbours.
#[inline(always)]
fn dots(m: Matrix<'_>, x: &[f32], y: &mut [f32]) {
    /// Independent sums of a product.
    const LANES: usize = 16;
    let (x_chunks, x_rest) = x.as_chunks::<LANES>();
    for (i, y) in y.iter_mut().enumerate() {
        let row = &m.data[i * m.steps[0]..][..x.len()];
        let (chunks, rest) = row.as_chunks::<LANES>();
        let mut lanes = [0f32; LANES];
        for (x, row) in x_chunks.iter().zip(chunks) {
            for (lane, (x, row)) in lanes.iter_mut().zip(x.iter().zip(row)) {
                *lane += x * row;
            }
        }
        let rest: f32 = x_rest.iter().zip(rest).map(|(x, r)| x * r).sum();
        *y = total(&lanes) + rest;
    }
}

/// The sum of sixteen lanes. Inlined, it would make the compiler keep the lanes in registers of four.
#[inline(never)]
fn total(lanes: &[f32; 16]) -> f32 {
    let four: [f32; 4] =
        std::array::from_fn(|i| lanes[i] + lanes[i + 4] + lanes[i + 8] + lanes[i + 12]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// `y` is the sum of all rows, each times its element of `x`.
#[inline(always)]
fn sums(m: Matrix<'_>, x: &[f32], y: &mut [f32]) {
    /// Columns whose sums stay in registers.
    const WIDE: usize = 64;
    let [down, right] = m.steps;
    let (wide, rest) = if right == 1 { y.as_chunks_mut::<WIDE>() } else { (&mut [][..], y) };
    for (n, y) in wide.iter_mut().enumerate() {
        let mut sums = [0f32; WIDE];
        for (i, &x) in x.iter().enumerate() {
            let row = &m.data[i * down + n * WIDE..][..WIDE];
            sums.iter_mut().zip(row).for_each(|(sum, row)| *sum += x * row);
        }
        *y = sums;
    }
    let first = wide.len() * WIDE;
    rest.fill(0.);
    for (i, &x) in x.iter().enumerate() {
        for (j, y) in rest.iter_mut().enumerate() {
            *y += x * m.data[i * down + (first + j) * right];
        }
    }
}
