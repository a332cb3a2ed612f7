//! Products of many rows: some panels of the weight at a time become floats, which the product of
//! floats reads from the cache.

use super::columns::{Code, Columns, Work, dispatch, factor, zeros};
use super::layout::Layout;
use crate::error::{Error, Result};
use crate::gemm::{self, Epilogue, PANEL, Packed, Rows, Target};
use crate::op::Context;
use crate::par::Shared;
use std::ops::Range;

/// Steps and panels that are unpacked at once, to 256 KiB: they stay in the second-level cache. A
/// part's rows are copied for each set of panels where they lie badly in the cache, so that one
/// panel at a time would cost more.
const STEPS: usize = 512;
const PANELS: usize = 4;

/// Floats of the scratch memory of a thread: a small weight takes no more than it has.
fn thread(layout: &Layout, panels: usize) -> usize {
    STEPS.min(layout.k) * PANELS.min(panels) * PANEL
}

/// Panels of each part, and the number of parts.
fn parts(layout: &Layout, threads: usize) -> (usize, usize) {
    let panels = layout.panels();
    let each = panels.div_ceil(threads.clamp(1, panels.max(1))).max(1);
    (each, panels.div_ceil(each))
}

/// Floats of scratch memory for so many threads.
pub(super) fn scratch_floats(layout: &Layout, threads: usize) -> usize {
    let (each, parts) = parts(layout, threads);
    parts.saturating_mul(thread(layout, each))
}

/// `c = epilogue(a · w)` for `m` rows. `scratch` has [`scratch_floats`] floats, `words` has
/// [`Layout::words`].
///
/// # Errors
/// Operands shorter than the sizes say.
pub(super) fn multiply(
    ctx: &Context,
    layout: &Layout,
    (words, a): (&[u32], &[f32]),
    scratch: &mut [f32],
    c: &mut [f32],
    epilogue: Epilogue<'_>,
) -> Result<()> {
    let m = c.len().checked_div(layout.n).unwrap_or(0);
    let (each, parts) = parts(layout, ctx.threads());
    let thread = thread(layout, each);
    let fits = Some(words.len()) == layout.words() && scratch.len() >= parts * thread;
    if !fits || c.len() != m * layout.n || a.len() != m * layout.k {
        let (k, n) = (layout.k, layout.n);
        return Err(Error::invalid(format!("operands of {m}x{k} by {k}x{n}")));
    }
    let (shared, scratch) = (Shared::new(c), Shared::new(scratch));
    ctx.parallel(parts, |i| {
        let panels = i * each..layout.panels().min((i + 1) * each);
        // SAFETY: each part has its own scratch memory.
        let floats = unsafe { scratch.slice(i * thread..(i + 1) * thread) };
        let rows = Rows { words: a, row: layout.k };
        for first in (0..layout.k.max(1)).step_by(STEPS) {
            let steps = first..layout.k.min(first + STEPS);
            let is_last = steps.end == layout.k;
            let epilogue = if is_last { epilogue } else { Epilogue::default() };
            for start in panels.clone().step_by(PANELS) {
                let panels = start..panels.end.min(start + PANELS);
                let columns = layout.n.min(panels.end * PANEL) - start * PANEL;
                let floats = &mut floats[..panels.len() * PANEL * steps.len()];
                let rows = Rows { words: rows.words.get(first..).unwrap_or(&[]), ..rows };
                unpack(ctx, layout, words, panels, steps.clone(), floats);
                let b = Packed { words: floats, steps: steps.len(), columns };
                let column = start * PANEL;
                let c = Target { c: &shared, row: layout.n, column, add: first > 0 };
                // SAFETY: the parts write different columns of `c`.
                unsafe { gemm::multiply_columns(ctx.simd(), m, rows, b, c, epilogue) };
            }
        }
    });
    Ok(())
}

/// Some panels and steps as floats, laid out as [`Packed`]. The first step is that of a line.
fn unpack(
    ctx: &Context,
    layout: &Layout,
    words: &[u32],
    panels: Range<usize>,
    steps: Range<usize>,
    floats: &mut [f32],
) {
    let size = layout.panel_words();
    let panels = words[panels.start * size..panels.end * size].chunks_exact(size.max(1));
    for (words, to) in panels.zip(floats.chunks_exact_mut((steps.len() * PANEL).max(1))) {
        let panel = Panel { layout, words, steps: steps.clone(), to: to.as_mut_ptr() };
        // SAFETY: the panel has all its words, and `to` has a row of floats for each step.
        unsafe { dispatch(ctx.simd(), layout, &panel) };
    }
}

/// Some steps of a panel, and where they go.
struct Panel<'a> {
    layout: &'a Layout,
    words: &'a [u32],
    steps: Range<usize>,
    to: *mut f32,
}

impl Work for Panel<'_> {
    #[inline(always)]
    unsafe fn run<V: Columns, C: Code<V>>(&self, code: C) {
        let (layout, per_line) = (self.layout, 32 / C::BITS);
        let factors: [f32; 16] = std::array::from_fn(|i| factor(C::BITS, i));
        let lines = self.steps.start / per_line..self.steps.end.div_ceil(per_line);
        let mut start = lines.start;
        let mut to = self.to;
        while start < lines.end {
            let number = start / layout.block_lines();
            let end = lines.end.min((number + 1) * layout.block_lines());
            // SAFETY: the lines are some of the panel's, and the steps some of `to`'s.
            unsafe {
                let block = self.words.as_ptr().add(number * layout.block_words());
                let head = Head::<V>::of(layout, block);
                for line in start..end {
                    let at = layout.head() + line % layout.block_lines() * PANEL;
                    let steps = self.steps.end - line * per_line;
                    if steps >= per_line {
                        unpack_line(code, block.add(at), &factors, &head, to);
                    } else {
                        // The steps that are missing are in the words, but have no place.
                        let mut all = [[0f32; PANEL]; 16];
                        let from = all.as_mut_ptr().cast::<f32>();
                        unpack_line(code, block.add(at), &factors, &head, from);
                        std::ptr::copy_nonoverlapping(from, to, steps * PANEL);
                    }
                    to = to.wrapping_add(per_line * PANEL);
                }
            }
            start = end;
        }
    }
}

/// The negative zero points and the scales of a block, a vector for each of at most eight parts of
/// the panel.
struct Head<V> {
    minus: [V; 8],
    scales: [V; 8],
}

impl<V: Columns> Head<V> {
    /// # Safety
    /// As of [`Columns`]; the block's words begin at `block`.
    #[inline(always)]
    unsafe fn of(layout: &Layout, block: *const u32) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let mut head = Self { minus: [V::zero(); 8], scales: [V::zero(); 8] };
            for v in 0..PANEL / V::LANES {
                let [zero] = zeros::<V, 1>(layout, block, v * V::LANES);
                head.minus[v] = zero.times(V::splat(&MINUS));
                head.scales[v] = V::load(block.cast::<f32>().add(v * V::LANES));
            }
            head
        }
    }
}

/// The numbers of a line, a row of the panel's columns for each step.
///
/// # Safety
/// As of [`Columns`]; the line's words begin at `words`, and `to` may be written for all its steps.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the compiler unrolls the constant range")]
unsafe fn unpack_line<V: Columns, C: Code<V>>(
    code: C,
    words: *const u32,
    factors: &[f32; 16],
    head: &Head<V>,
    to: *mut f32,
) {
    let steps = 16 / C::BITS;
    for v in 0..PANEL / V::LANES {
        // SAFETY: as the caller promises.
        unsafe {
            let mut half = V::words(words.add(v * V::LANES));
            let mut to = to.add(v * V::LANES);
            for _ in 0..2 {
                for i in 0..steps {
                    let factor = V::splat(&raw const factors[i]);
                    let value = head.minus[v].add_product(code.value(half, i), factor);
                    value.times(head.scales[v]).store(to.add(i * PANEL));
                }
                half = V::upper(half);
                to = to.wrapping_add(steps * PANEL);
            }
        }
    }
}

/// A place to take the number from, in any function.
static MINUS: f32 = -1.;
