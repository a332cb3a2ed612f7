//! A tile of the result: the microkernel for its number of rows, and tiles at the last columns.

use super::PANEL;
use super::kernel::{Vector, tile};

/// Some rows and a panel.
pub(super) struct Tile {
    pub(super) height: usize,
    pub(super) steps: usize,
    /// Whether the sums are added to the result's.
    pub(super) add: bool,
    /// The first row, and the distance from row to row.
    pub(super) a: (*const f32, usize),
    pub(super) b: *const f32,
    /// The words that a later tile reads, to be prefetched, and how many of them at each step.
    pub(super) next: (*const f32, usize),
}

impl Tile {
    /// # Safety
    /// The machine has the vectors' instructions, and the operands reach as far as the sizes say.
    #[inline(always)]
    pub(super) unsafe fn compute<V: Vector, const MR: usize, const NV: usize>(
        &self,
        c: (*mut f32, usize),
    ) {
        let (k, add) = (self.steps, self.add);
        let (mut next, ahead) = self.next;
        for j in (0..PANEL).step_by(NV * V::LANES) {
            // SAFETY: as the caller promises.
            unsafe {
                let (b, c) = (self.b.add(j), (c.0.add(j), c.1));
                rows_of::<V, MR, NV>(self.height, k, self.a, b, c, add, (next, ahead));
            }
            next = next.wrapping_add(k * ahead);
        }
    }

    /// A tile of which the result has only the first `width` columns.
    ///
    /// # Safety
    /// As [`Tile::compute`].
    #[inline(always)]
    pub(super) unsafe fn compute_edge<V: Vector, const MR: usize, const NV: usize>(
        &self,
        (c, c_row): (*mut f32, usize),
        width: usize,
    ) {
        let mut edge = [0f32; 12 * PANEL];
        let to = edge.as_mut_ptr();
        let copy = std::ptr::copy_nonoverlapping::<f32>;
        // SAFETY: as the caller promises; the edge has room for all columns.
        unsafe {
            for i in 0..self.height {
                copy(c.add(i * c_row), to.add(i * PANEL), width);
            }
            self.compute::<V, MR, NV>((to, PANEL));
            for i in 0..self.height {
                copy(to.add(i * PANEL), c.add(i * c_row), width);
            }
        }
    }
}

/// A tile of so many rows, at most `MR`.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn rows_of<V: Vector, const MR: usize, const NV: usize>(
    height: usize,
    k: usize,
    a: (*const f32, usize),
    b: *const f32,
    c: (*mut f32, usize),
    add: bool,
    next: (*const f32, usize),
) {
    macro_rules! by_height {
        ($($n:literal)*) => {
            match height {
                // SAFETY: as the caller promises.
                $($n if $n <= MR => unsafe { tile::<V, $n, NV>(k, a, b, c, add, next) },)*
                _ => {}
            }
        };
    }
    by_height!(1 2 3 4 5 6 7 8 9 10 11 12);
}
