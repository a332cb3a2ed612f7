//! Products of bytes with packed 8-bit weights: matrices and channels-last convolutions.
//!
//! The left side is u8 and never copied: each row of the product is a list of pointers, one for
//! each tap of a window. The right side is i8 and packed once. The epilogue works on the 32-bit
//! sums while they are in registers.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod blocks;
mod epilogue;
mod pack;
mod positions;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;

use crate::error::Result;
use crate::isa::{Isa, Simd};
use crate::op::Context;
use crate::par::{Failure, Shared};
use blocks::Block;
use std::ops::Range;

pub(crate) use epilogue::{Epilogue, LARGE, ToBytes, ToFloats, round};
pub(crate) use pack::{PANEL, Packed};
pub(crate) use positions::positions;

/// The instructions that a product may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Any machine.
    Scalar,
    /// AVX2.
    Avx2,
    /// AVX-512 with its byte products.
    Vnni,
}

impl Level {
    /// The best level that a context allows.
    fn of(simd: Simd) -> Self {
        match simd.isa() {
            Isa::Avx512 if simd.vnni() => Self::Vnni,
            Isa::Avx512 | Isa::Avx2 => Self::Avx2,
            Isa::Scalar => Self::Scalar,
        }
    }
}

/// The positions of the rows of the left side.
pub(crate) trait Rows {
    /// Writes the position of each tap of some rows: for each tap, `step` apart, one for each row.
    fn fill(&self, first: usize, count: usize, step: usize, at: &mut [*const u8]);
}

/// The panels of the widest tile.
const WIDE: usize = 4;

/// Rows of a block: their pointers and their bytes stay in the first-level and second-level caches
/// while all weights are read.
const BLOCK: usize = 192;

/// A product with its operands. Their sizes were checked when the product was made, and the `Simd`
/// proves the machine's instructions.
pub(crate) struct Product<'a, E> {
    simd: Simd,
    weights: &'a Packed,
    seeds: &'a [i32],
    epilogue: &'a E,
}

impl<'a, E: Epilogue> Product<'a, E> {
    /// `seeds` are the start of each column's sum, filled up to whole panels.
    ///
    /// # Panics
    /// When there are fewer seeds, scales or biases than columns of whole panels.
    pub(crate) fn new(simd: Simd, weights: &'a Packed, seeds: &'a [i32], epilogue: &'a E) -> Self {
        let columns = weights.panels() * PANEL;
        let lines = weights.panels() * weights.panel();
        assert!(
            seeds.len() >= columns
                && epilogue.reaches(columns, 0, 0)
                && weights.lines.len() == lines,
            "operands for {columns} columns"
        );
        Self { simd, weights, seeds, epilogue }
    }

    /// Computes `m` rows, split between the context's threads. `out` has rows of `stride` elements,
    /// of which the first `n` are written; the last row may have only `n`.
    ///
    /// # Errors
    /// Out of memory.
    ///
    /// # Safety
    /// Each pointer from `rows` points to as many readable bytes as a segment of the weights has,
    /// filled up to a multiple of four.
    ///
    /// # Panics
    /// When `out`, or a tensor that the epilogue adds, is shorter.
    pub(crate) unsafe fn run(
        &self,
        ctx: &Context,
        rows: &(impl Rows + Sync),
        m: usize,
        (out, stride): (&mut [E::Out], usize),
    ) -> Result<()> {
        let (n, panels) = (self.weights.n, self.weights.panels());
        if m == 0 || n == 0 {
            return Ok(());
        }
        let reach = (m - 1).checked_mul(stride).and_then(|r| r.checked_add(n));
        assert!(
            (stride >= n || m == 1)
                && reach.is_some_and(|r| r <= out.len())
                && self.epilogue.reaches(panels * PANEL, m, n),
            "a result of {m}x{n}"
        );
        let operations = m.saturating_mul(n).saturating_mul(self.weights.panel()) / 2;
        let by_rows = m > n.max(64) || panels <= 2;
        let units = if by_rows { m.div_ceil(4) } else { panels.div_ceil(2) };
        let parts = ctx.parts(units, operations);
        let each = units.div_ceil(parts);
        let shared = Shared::new(out);
        let failure = Failure::default();
        ctx.parallel(units.div_ceil(each), |i| {
            let range = i * each..units.min((i + 1) * each);
            let (lines, panels) = if by_rows {
                (range.start * 4..m.min(range.end * 4), 0..panels)
            } else {
                (0..m, range.start * 2..panels.min(range.end * 2))
            };
            // SAFETY: the pointers are as the caller vouches; rows and panels exist, `out` has
            // them, and parts differ in rows or columns.
            failure.note(unsafe { self.part(rows, lines, panels, &shared, stride) });
        });
        failure.result()
    }

    /// Some panels of some rows.
    ///
    /// # Errors
    /// Out of memory.
    ///
    /// # Safety
    /// As [`Self::run`]; the rows and panels exist, `out` has their elements, and no other thread
    /// uses these.
    unsafe fn part(
        &self,
        rows: &impl Rows,
        lines: Range<usize>,
        panels: Range<usize>,
        out: &Shared<'_, E::Out>,
        stride: usize,
    ) -> Result<()> {
        let level = Level::of(self.simd);
        let most = BLOCK.min(lines.len());
        #[cfg(target_arch = "x86_64")]
        let most = match level {
            Level::Avx2 => most.min(avx2::block(self.weights.panel(), most)),
            _ => most,
        };
        let (mut at, step) = positions(self.weights.taps, most)?;
        #[cfg(target_arch = "x86_64")]
        let mut wide = match level {
            Level::Avx2 => {
                positions::filled(step.saturating_mul(self.weights.panel()).saturating_mul(2), 0)?
            }
            _ => Vec::new(),
        };
        for start in lines.clone().step_by(step) {
            let count = step.min(lines.end - start);
            rows.fill(start, count, step, &mut at);
            let panels = panels.clone();
            let block = Block { at: &at, step, row: start, count, panels, out, stride };
            // SAFETY: as the caller vouches; the machine has what the level says.
            unsafe {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => self.by_widened(&block, &mut wide),
                    #[cfg(target_arch = "x86_64")]
                    Level::Vnni => self.by_tiles(&block),
                    _ => self.by_rows(&block),
                }
            }
        }
        Ok(())
    }
}
