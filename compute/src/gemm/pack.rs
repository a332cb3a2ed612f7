//! The right side of a product as kernels read it: panels of columns that follow each other.

use super::kernel::PANEL;
use half::bf16;

/// A packed right side: for each panel of [`PANEL`] columns one row of words for each step of the
/// inner dimension; missing columns are zeros. A word is an f32, or two bf16 of neighbouring
/// steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed<'a> {
    pub(crate) words: &'a [f32],
    /// Steps: the inner dimension, or half of it for pairs.
    pub(crate) steps: usize,
    pub(crate) columns: usize,
}

impl<'a> Packed<'a> {
    /// Words that so many steps and columns take; `None` when that overflows.
    pub(crate) fn words(steps: usize, columns: usize) -> Option<usize> {
        columns.div_ceil(PANEL).checked_mul(PANEL)?.checked_mul(steps)
    }

    /// `None` where the words are not as many as they have to be.
    pub(crate) fn new(words: &'a [f32], steps: usize, columns: usize) -> Option<Self> {
        (Self::words(steps, columns)? == words.len()).then_some(Self { words, steps, columns })
    }

    pub(crate) fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }
}

/// Packs a `k × n` matrix whose element `(i, j)` is at `i · row + j · column`.
///
/// `to` has [`Packed::words`] words; `from` reaches as far as the sizes say, or this panics.
pub(crate) fn pack(
    from: &[f32],
    (k, n): (usize, usize),
    (row, column): (usize, usize),
    to: &mut [f32],
) {
    if k == 0 {
        return;
    }
    for (p, panel) in to.chunks_exact_mut(k * PANEL).enumerate() {
        let first = p * PANEL;
        let width = PANEL.min(n - first);
        if column == 1 {
            for (i, to) in panel.chunks_exact_mut(PANEL).enumerate() {
                let (real, rest) = to.split_at_mut(width);
                real.copy_from_slice(&from[i * row + first..][..width]);
                rest.fill(0.);
            }
            continue;
        }
        // Column by column in blocks that stay in the first-level cache.
        for (block, to) in panel.chunks_mut(16 * PANEL).enumerate() {
            let steps = to.len() / PANEL;
            for j in 0..width {
                let from = &from[block * 16 * row + (first + j) * column..];
                for i in 0..steps {
                    to[i * PANEL + j] = from[i * row];
                }
            }
            for to in to.chunks_exact_mut(PANEL) {
                to[width..].fill(0.);
            }
        }
    }
}

/// Packs a `k × n` matrix as pairs of bf16; an odd last step is paired with zeros. The numbers
/// come in the order of [`Packed`]'s words.
pub(crate) fn pack_bf16(
    from: &[f32],
    (k, n): (usize, usize),
    (row, column): (usize, usize),
    to: &mut [bf16],
) {
    let steps = k.div_ceil(2);
    if k == 0 {
        return;
    }
    for (p, panel) in to.chunks_exact_mut(steps * PANEL * 2).enumerate() {
        let first = p * PANEL;
        let width = PANEL.min(n - first);
        for (s, to) in panel.chunks_exact_mut(PANEL * 2).enumerate() {
            for (j, to) in to.chunks_exact_mut(2).enumerate() {
                for (half, to) in to.iter_mut().enumerate() {
                    let i = s * 2 + half;
                    let inside = i < k && j < width;
                    *to = if inside {
                        bf16::from_f32(from[i * row + (first + j) * column])
                    } else {
                        bf16::ZERO
                    };
                }
            }
        }
    }
}
