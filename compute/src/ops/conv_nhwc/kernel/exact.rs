//! One tile of a Winograd convolution as the plain sum, for images with infinities or NaN: the
//! transforms would spread those to outputs whose windows do not see them.

use super::tile::panel_width;
use super::vector::Vector;
use super::winograd::{Output, SIDE_MAX};
use super::{Body, LANE};

/// The outputs of one tile with inputs of side `S`.
pub(crate) struct Exact<'a, const S: usize> {
    /// The tile's pixels, as its transform read them.
    pub(crate) pixels: &'a [[*const f32; SIDE_MAX]; SIDE_MAX],
    pub(crate) channels: usize,
    /// The transformed weights, and the distance of their positions.
    pub(crate) weight: *const f32,
    pub(crate) position: usize,
    /// Where the results go.
    pub(crate) output: Output<'a, S>,
}

impl<const S: usize> Body for Exact<'_, S> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let to = &self.output;
        for m in (0..to.maps).step_by(V::LANES) {
            let panel = (m / (2 * LANE)).min(super::tile::panel_count(to.maps) - 1);
            let (first, width) = (panel * 2 * LANE, panel_width(to.maps, panel));
            // SAFETY: each position has panels of all channels; columns beyond the last are packed
            // as zeros. Outputs inside `size` are the tile's own.
            unsafe {
                let mut sums = [[V::splat(0.); SIDE_MAX - 2]; SIDE_MAX - 2];
                for c in 0..self.channels {
                    let at = self.weight.add(first * self.channels + c * width + m - first);
                    let w = weights::<V, S>(at, self.position);
                    for y in 0..to.size.0 {
                        for x in 0..to.size.1 {
                            for (tap, &w) in w.as_flattened().iter().enumerate() {
                                let pixel = self.pixels[y + tap / 3][x + tap % 3];
                                let pixel = V::splat(*pixel.add(c));
                                sums[y][x] = pixel.fma(w, sums[y][x]);
                            }
                        }
                    }
                }
                for y in 0..to.size.0 {
                    for x in 0..to.size.1 {
                        to.finish(m, (y, x), sums[y][x]);
                    }
                }
            }
        }
        // SAFETY: all outputs were just written.
        unsafe { to.activate::<V>() };
    }
}

/// The nine weights that were transformed to `u = G w Gᵀ`, whose positions lie so far apart.
#[inline(always)]
unsafe fn weights<V: Vector, const S: usize>(u: *const f32, position: usize) -> [[V; 3]; 3] {
    // SAFETY: as the caller promises.
    unsafe {
        let rows: [[V; 3]; S] = std::array::from_fn(|y| {
            let at = |x: usize| V::load(u.add((y * S + x) * position));
            restored::<V, S>(&at)
        });
        let columns: [[V; 3]; 3] =
            std::array::from_fn(|x| restored::<V, S>(&|y: usize| rows[y][x]));
        std::array::from_fn(|y| std::array::from_fn(|x| columns[x][y]))
    }
}

/// The `w` of `u = G w`.
#[inline(always)]
unsafe fn restored<V: Vector, const S: usize>(u: &impl Fn(usize) -> V) -> [V; 3] {
    // SAFETY: as the caller promises.
    unsafe {
        if S == 4 {
            return [u(0), u(1).sub(u(2)), u(3)];
        }
        let scaled = |by: f32, v: V| V::splat(by).fma(v, V::splat(0.));
        [scaled(4., u(0)), scaled(3., u(2).sub(u(1))), u(5)]
    }
}
