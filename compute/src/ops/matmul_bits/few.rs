//! Products of few rows, multiplied straight from the packed words: they wait for the weight's bytes
//! from memory.

use super::columns::{Code, Columns, Work, dispatch, factor, zeros};
use super::layout::Layout;
use crate::gemm::{Epilogue, PANEL};
use crate::op::Context;
use crate::par::Shared;
use std::ops::Range;

/// Up to so many rows, unpacking a panel once for some of them takes less time than unpacking it
/// to memory for all.
pub(super) const FEW: usize = 8;

/// Rows that are multiplied at once.
const AT_ONCE: usize = 4;

/// Floats of a row of the left side as [`multiply`] lays it out: the numbers of all lines, then the
/// sum of each group.
pub(super) fn left_floats(layout: &Layout) -> usize {
    layout.lines().saturating_mul(layout.steps()).saturating_add(layout.groups())
}

/// `c = epilogue(a · w)` for `m` rows. `left` has [`left_floats`] floats for each row; `words` has
/// [`Layout::words`].
///
/// # Panics
/// When an operand is shorter than the sizes say.
pub(super) fn multiply(
    ctx: &Context,
    layout: &Layout,
    (words, a): (&[u32], &[f32]),
    left: &mut [f32],
    c: &mut [f32],
    epilogue: Epilogue<'_>,
) {
    let (k, n) = (layout.k, layout.n);
    let m = c.len().checked_div(n).unwrap_or(0);
    if m == 0 {
        return;
    }
    let row = left_floats(layout);
    for (i, left) in left.chunks_exact_mut(row.max(1)).enumerate().take(m) {
        lay_out(layout, &a[i * k..][..k], left);
    }
    assert!(
        Some(words.len()) == layout.words() && left.len() == m * row && c.len() == m * n,
        "operands of {m}x{k} by {k}x{n}"
    );
    let panels = layout.panels();
    let operations = m.saturating_mul(n).saturating_mul(k) / 8;
    // Several parts for each thread: one that begins late takes fewer.
    let parts = match ctx.parts(panels, operations) {
        1 => 1,
        threads => threads * 4,
    };
    let each = panels.div_ceil(parts);
    let shared = Shared::new(c);
    ctx.parallel(panels.div_ceil(each), |i| {
        let panels = i * each..panels.min((i + 1) * each);
        let part = Part { layout, words, left, row, m, panels, c: &shared, epilogue };
        // SAFETY: the operands were checked, and the parts write different columns of `c`.
        unsafe { dispatch(ctx.simd(), layout, &part) };
    });
}

/// A row of the left side as the kernels read it.
fn lay_out(layout: &Layout, a: &[f32], left: &mut [f32]) {
    let steps = layout.steps();
    let (numbers, sums) = left.split_at_mut(layout.lines() * steps);
    let (real, rest) = numbers.split_at_mut(a.len());
    real.copy_from_slice(a);
    rest.fill(0.);
    let mut sums = sums.iter_mut();
    for block in numbers.chunks_mut(layout.block) {
        for group in block.chunks_mut(layout.group_lines() * steps) {
            // Eight sums, so that the additions need not wait for each other.
            let (eights, rest) = group.as_chunks::<8>();
            let mut partial = [0f32; 8];
            for eight in eights {
                partial.iter_mut().zip(eight).for_each(|(sum, x)| *sum += x);
            }
            let sum = partial.iter().chain(rest).sum::<f32>();
            sums.by_ref().take(1).for_each(|to| *to = -sum);
        }
    }
    let factors: [f32; 16] = std::array::from_fn(|i| factor(layout.bits, i));
    for line in numbers.chunks_exact_mut(steps) {
        line.iter_mut().zip(&factors).for_each(|(x, factor)| *x *= factor);
    }
}

/// Some panels of all rows.
struct Part<'a> {
    layout: &'a Layout,
    words: &'a [u32],
    left: &'a [f32],
    /// Floats from row to row of `left`.
    row: usize,
    m: usize,
    panels: Range<usize>,
    c: &'a Shared<'a, f32>,
    epilogue: Epilogue<'a>,
}

impl Work for Part<'_> {
    #[inline(always)]
    unsafe fn run<V: Columns, C: Code<V>>(&self, code: C) {
        let n = self.layout.n;
        for panel in self.panels.clone() {
            let column = panel * PANEL;
            let mut row = 0;
            while row < self.m {
                let mut sums = [[0f32; PANEL]; AT_ONCE];
                // SAFETY: the rows and the panel exist.
                let rows = unsafe { self.rows::<V, C>(code, panel, row, &mut sums) };
                for (i, sums) in sums.iter_mut().take(rows).enumerate() {
                    let sums = &mut sums[..PANEL.min(n - column)];
                    self.epilogue.apply(V::FUSED, (row + i, n), column, sums);
                    let at = (row + i) * n + column;
                    // SAFETY: the part alone writes these columns.
                    unsafe { self.c.slice(at..at + sums.len()) }.copy_from_slice(sums);
                }
                row += rows;
            }
        }
    }
}

impl Part<'_> {
    /// The sums of a panel for rows from `row` on. The answer is how many rows.
    ///
    /// # Safety
    /// The row and the panel exist, the operands reach as far as the layout says, and the machine
    /// has the vector's instructions.
    #[inline(always)]
    unsafe fn rows<V: Columns, C: Code<V>>(
        &self,
        code: C,
        panel: usize,
        row: usize,
        sums: &mut [[f32; PANEL]; AT_ONCE],
    ) -> usize {
        let words = self.words[panel * self.layout.panel_words()..].as_ptr();
        let left = self.left[row * self.row..].as_ptr();
        // SAFETY: as the caller promises.
        unsafe {
            match (self.m - row, V::LANES) {
                (1, 16) => self.sums::<V, C, 1, 2>(code, words, left, sums),
                (1, _) => self.sums::<V, C, 1, 4>(code, words, left, sums),
                (2 | 3, 16) => self.sums::<V, C, 2, 2>(code, words, left, sums),
                (2 | 3, _) => self.sums::<V, C, 2, 4>(code, words, left, sums),
                _ => self.sums::<V, C, 4, 2>(code, words, left, sums),
            }
        }
    }

    /// The sums of `R` rows, `NV` vectors of columns at once.
    ///
    /// # Safety
    /// As [`Part::rows`]; the panel's words begin at `words`, and the first row at `left`.
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "the indices are also those of the registers")]
    unsafe fn sums<V: Columns, C: Code<V>, const R: usize, const NV: usize>(
        &self,
        code: C,
        words: *const u32,
        left: *const f32,
        to: &mut [[f32; PANEL]; AT_ONCE],
    ) -> usize {
        let layout = self.layout;
        let (lines, block_lines) = (layout.lines(), layout.block_lines());
        let (group_lines, head) = (layout.group_lines(), layout.head());
        for first in (0..PANEL).step_by(NV * V::LANES) {
            // SAFETY: the pointers stay in the panel and in the rows, whose lengths the layout
            // gives.
            unsafe {
                let (mut block, mut x) = (words, left);
                let mut minus = left.add(lines * 32 / C::BITS);
                let mut totals = [[V::zero(); NV]; R];
                for start in (0..lines).step_by(block_lines) {
                    let end = lines.min(start + block_lines);
                    let zeros = zeros::<V, NV>(layout, block, first);
                    let mut line = block.add(head + first);
                    for group in (start..end).step_by(group_lines) {
                        let mut sums = [[V::zero(); NV]; R];
                        for r in 0..R {
                            let minus = V::splat(minus.add(r * self.row));
                            for v in 0..NV {
                                sums[r][v] = zeros[v].times(minus);
                            }
                        }
                        for _ in group..end.min(group + group_lines) {
                            let mut half = [V::words(line); NV];
                            for v in 1..NV {
                                half[v] = V::words(line.add(v * V::LANES));
                            }
                            for _ in 0..2 {
                                for i in 0..16 / C::BITS {
                                    let mut a = [V::zero(); R];
                                    for r in 0..R {
                                        a[r] = V::splat(x.add(r * self.row + i));
                                    }
                                    for v in 0..NV {
                                        let value = code.value(half[v], i);
                                        for r in 0..R {
                                            sums[r][v] = sums[r][v].add_product(a[r], value);
                                        }
                                    }
                                }
                                for v in 0..NV {
                                    half[v] = V::upper(half[v]);
                                }
                                x = x.add(16 / C::BITS);
                            }
                            line = line.add(PANEL);
                        }
                        minus = minus.add(1);
                        let scales = block.add(first).cast::<f32>();
                        for v in 0..NV {
                            let scale = V::load(scales.add(v * V::LANES));
                            for r in 0..R {
                                totals[r][v] = totals[r][v].add_product(sums[r][v], scale);
                            }
                        }
                    }
                    block = block.wrapping_add(layout.block_words());
                }
                for r in 0..R {
                    for v in 0..NV {
                        totals[r][v].store(to[r].as_mut_ptr().add(first + v * V::LANES));
                    }
                }
            }
        }
        R
    }
}
