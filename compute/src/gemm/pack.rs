//! The right side of a product in the order in which kernels read it: one panel after the other.

use super::kernel::PANEL;

/// A packed right side. Each panel of [`PANEL`] columns has one row of words for each step of the
/// inner dimension; missing columns are zeros. A word is an f32, or two bf16 of neighbouring steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed<'a> {
    pub(crate) words: &'a [f32],
    /// Steps: the length of the inner dimension, or half of it for pairs.
    pub(crate) steps: usize,
    pub(crate) columns: usize,
}

impl<'a> Packed<'a> {
    /// Words that so many steps and columns take; `None` when the number overflows.
    pub(crate) fn words(steps: usize, columns: usize) -> Option<usize> {
        columns.div_ceil(PANEL).checked_mul(PANEL)?.checked_mul(steps)
    }

    /// `None` where the number of words is not [`Packed::words`].
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
        // Blocks of 16 steps stay in the first-level cache while their columns are copied.
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

/// Packs a `k × n` matrix as pairs of bf16, the earlier step in the lower half; an odd last step
/// is paired with zeros.
pub(crate) fn pack_bf16(
    from: &[f32],
    (k, n): (usize, usize),
    (row, column): (usize, usize),
    to: &mut [f32],
) {
    let steps = k.div_ceil(2);
    if k == 0 {
        return;
    }
    for (p, panel) in to.chunks_exact_mut(steps * PANEL).enumerate() {
        let first = p * PANEL;
        for (s, to) in panel.chunks_exact_mut(PANEL).enumerate() {
            for (j, to) in to.iter_mut().enumerate() {
                let at = |i: usize| {
                    let inside = i < k && first + j < n;
                    if inside { from[i * row + (first + j) * column] } else { 0. }
                };
                *to = pair([at(2 * s), at(2 * s + 1)]);
            }
        }
    }
}

/// The words of one row of a left side: one word for two numbers. Callers are inside
/// [`crate::simd::dispatch`].
#[inline(always)]
pub(crate) fn pairs_of_row(from: &[f32], to: &mut [f32]) {
    let (pairs, rest) = from.as_chunks::<2>();
    for (to, from) in to.iter_mut().zip(pairs) {
        *to = pair(*from);
    }
    if let (Some(to), Some(&last)) = (to.get_mut(pairs.len()), rest.first()) {
        *to = pair([last, 0.]);
    }
}

#[inline(always)]
fn pair([low, high]: [f32; 2]) -> f32 {
    f32::from_bits(rounded(low) >> 16 | rounded(high) & 0xffff_0000)
}

/// Rounded to bf16, halves to the even one, in the upper half; NaN stays NaN.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let near = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    if bits & 0x7fff_ffff > 0x7f80_0000 { bits | 0x0040_0000 } else { near }
}
