//! The transforms of Winograd's convolution, F(2×2, 3×3) and F(4×4, 3×3), of Lavin and Gray, "Fast
//! Algorithms for Convolutional Neural Networks" (2015), with the points 0, ±1, ±2 and infinity.

use super::vector::Vector;
use super::{Body, Epilogue, LANE};

/// The side of the largest tile's input.
pub(crate) const SIDE_MAX: usize = 6;

/// `Bᵀ x` for one column.
#[inline(always)]
unsafe fn input_column<V: Vector, const S: usize>(x: [V; S]) -> [V; S] {
    // SAFETY: the caller enables the features of `V`.
    unsafe {
        let mut y = x;
        if S == 4 {
            y[0] = x[0].sub(x[2]);
            y[1] = x[1].add(x[2]);
            y[2] = x[2].sub(x[1]);
            y[3] = x[1].sub(x[3]);
        } else {
            let k = |c: f32| V::splat(c);
            let even = x[2].fma(k(-4.), x[4]);
            let odd = x[1].fma(k(-4.), x[3]);
            y[0] = x[0].fma(k(4.), x[2].fma(k(-5.), x[4]));
            y[1] = even.add(odd);
            y[2] = even.sub(odd);
            let even = x[4].sub(x[2]);
            let odd = x[3].sub(x[1]);
            y[3] = odd.fma(k(2.), even);
            y[4] = odd.fma(k(-2.), even);
            y[5] = x[1].fma(k(4.), x[3].fma(k(-5.), x[5]));
        }
        y
    }
}

/// `Aᵀ x` for one column; only the first `S - 2` results count.
#[inline(always)]
unsafe fn output_column<V: Vector, const S: usize>(x: [V; S]) -> [V; S] {
    // SAFETY: the caller enables the features of `V`.
    unsafe {
        let mut y = x;
        if S == 4 {
            y[0] = x[0].add(x[1]).add(x[2]);
            y[1] = x[1].sub(x[2]).sub(x[3]);
        } else {
            let k = |c: f32| V::splat(c);
            let (sum, difference) = (x[1].add(x[2]), x[1].sub(x[2]));
            let (sum2, difference2) = (x[3].add(x[4]), x[3].sub(x[4]));
            y[0] = x[0].add(sum).add(sum2);
            y[1] = difference2.fma(k(2.), difference);
            y[2] = sum2.fma(k(4.), sum);
            y[3] = difference2.fma(k(8.), difference).add(x[5]);
        }
        y
    }
}

/// The transform of one input tile of side `S`.
pub(crate) struct Input<'a, const S: usize> {
    /// The tile's pixels, `S × S`; padding is a pixel of zeros.
    pub(crate) pixels: &'a [[*const f32; SIDE_MAX]; SIDE_MAX],
    /// Channels in a row.
    pub(crate) channels: usize,
    /// Where the tile's row of position 0 begins.
    pub(crate) out: *mut f32,
    /// Distance of the positions.
    pub(crate) position: usize,
    /// Channels before the row is interrupted, and the distance of its parts.
    pub(crate) part: (usize, usize),
}

impl<const S: usize> Body for Input<'_, S> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let mut c = 0;
        while c < self.channels {
            let left = self.channels - c;
            // SAFETY: each pixel has `channels` elements, and the rows of the output are as long,
            // rounded up to a register. Parts are a whole number of registers.
            unsafe {
                let zero = V::splat(0.);
                let mut rows = [[zero; S]; S];
                for x in 0..S {
                    let mut column = [zero; S];
                    for (y, column) in column.iter_mut().enumerate() {
                        *column = V::load_up_to(self.pixels[y][x].add(c), left);
                    }
                    let column = input_column::<V, S>(column);
                    for y in 0..S {
                        rows[y][x] = column[y];
                    }
                }
                let out = self.out.add(c / self.part.0 * self.part.1 + c % self.part.0);
                for (y, row) in rows.into_iter().enumerate() {
                    for (x, v) in input_column::<V, S>(row).into_iter().enumerate() {
                        v.store(out.add((y * S + x) * self.position));
                    }
                }
            }
            c += V::LANES;
        }
    }
}

/// Where the outputs of one tile go.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a, const S: usize> {
    /// Output channels.
    pub(crate) maps: usize,
    /// The first output.
    pub(crate) out: *mut f32,
    /// Distance of the outputs' rows.
    pub(crate) row: usize,
    /// Distance of outputs side by side.
    pub(crate) column: usize,
    /// Height and width that are stored, up to `S - 2`.
    pub(crate) size: (usize, usize),
    /// Its residual begins where `out` does.
    pub(crate) epilogue: Epilogue<'a>,
}

impl<const S: usize> Output<'_, S> {
    /// Stores the output at `(y, x)`, the maps from `m` on.
    ///
    /// # Safety
    /// The output lies inside `size` and has `maps` elements.
    #[inline(always)]
    pub(crate) unsafe fn finish<V: Vector>(&self, m: usize, (y, x): (usize, usize), sum: V) {
        let e = &self.epilogue;
        let (left, at) = (self.maps - m, y * self.row + x * self.column + m);
        // SAFETY: as the caller promises; bias and residual reach as far.
        unsafe {
            let mut v = sum;
            if !e.bias.is_null() {
                v = v.add(V::load_up_to(e.bias.add(m), left));
            }
            if !e.residual.is_null() {
                v = v.add(V::load_up_to(e.residual.add(at), left));
            }
            v.clamp(V::splat(e.low), V::splat(e.high)).store_up_to(self.out.add(at), left);
        }
    }

    /// Applies an activation that is no clamp.
    ///
    /// # Safety
    /// All outputs were written.
    #[inline(always)]
    pub(crate) unsafe fn activate<V: Vector>(&self) {
        let Some(activation) = self.epilogue.activation else { return };
        // Outputs that lie side by side are one run.
        let (runs, length) = match self.column == self.maps {
            true => (1, self.size.1 * self.maps),
            false => (self.size.1, self.maps),
        };
        for y in 0..self.size.0 {
            for x in 0..runs {
                // SAFETY: as the caller promises.
                let run = unsafe {
                    let run = self.out.add(y * self.row + x * self.column);
                    std::slice::from_raw_parts_mut(run, length)
                };
                activation.apply(V::FUSED, run);
            }
        }
    }
}

/// The inverse transform of one tile's products to up to `(S - 2)²` outputs.
pub(crate) struct Inverse<'a, const S: usize> {
    /// The tile's row of position 0.
    pub(crate) products: *const f32,
    /// Distance of the positions.
    pub(crate) position: usize,
    pub(crate) output: Output<'a, S>,
    /// Is set when the tile has infinities or NaN. Those of an image are in all maps, so that the
    /// first ones tell.
    pub(crate) spoilt: &'a mut bool,
}

impl<const S: usize> Body for Inverse<'_, S> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let to = &self.output;
        let mut m = 0;
        while m < to.maps {
            let left = to.maps - m;
            // SAFETY: the products have `maps` columns in each position, and the outputs inside
            // `size` have as many.
            unsafe {
                let zero = V::splat(0.);
                let mut rows = [[zero; S]; S];
                for x in 0..S {
                    let mut column = [zero; S];
                    for (y, column) in column.iter_mut().enumerate() {
                        let at = self.products.add((y * S + x) * self.position + m);
                        *column = V::load_up_to(at, left);
                    }
                    let column = output_column::<V, S>(column);
                    for y in 0..S - 2 {
                        rows[y][x] = column[y];
                    }
                }
                for row in rows.iter_mut().take(S - 2) {
                    *row = output_column::<V, S>(*row);
                }
                if m == 0 && !all_finite::<V, S>(&rows) {
                    *self.spoilt = true;
                    return;
                }
                for (y, row) in rows.iter().enumerate().take(S - 2) {
                    for (x, &v) in row.iter().enumerate().take(S - 2) {
                        if y < to.size.0 && x < to.size.1 {
                            to.finish(m, (y, x), v);
                        }
                    }
                }
            }
            m += V::LANES;
        }
        // SAFETY: all outputs were just written.
        unsafe { to.activate::<V>() };
    }
}

/// Whether the outputs are finite.
#[inline(always)]
unsafe fn all_finite<V: Vector, const S: usize>(rows: &[[V; S]; S]) -> bool {
    // SAFETY: the caller enables the features of `V`, and no register is longer than a lane.
    unsafe {
        let mut sum = V::splat(0.);
        for row in &rows[..S - 2] {
            for &v in &row[..S - 2] {
                // Zero, but NaN of what is not finite.
                sum = v.fma(V::splat(0.), sum);
            }
        }
        let mut lanes = [0f32; LANE];
        sum.store(lanes.as_mut_ptr());
        lanes.iter().all(|&x| x == 0.)
    }
}
