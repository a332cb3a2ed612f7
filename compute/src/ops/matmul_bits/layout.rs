//! How a weight of few bits lies in memory: panels of columns, whose blocks follow each other along
//! the inner dimension.

use crate::gemm::PANEL;

/// The zero points of a packed weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeros {
    /// Every zero point is the middle of the range.
    Middle,
    /// A byte for each block.
    Bytes,
    /// An f32 for each block.
    Floats,
}

/// Steps whose products are summed before the zero points are taken off. The sums stay small, so
/// that little is lost to rounding where the left side's mean is far from 0.
const GROUP: usize = 32;

/// The places of a packed weight of `[k, n]`.
///
/// A line has a word of 32 bits for each column of a panel, with the values of `32 / bits` steps,
/// the first in the lowest bits. A block has the scales of the panel's columns, the zero points and
/// the block's lines. The last block of a panel ends with the last line that has a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) bits: usize,
    /// Steps that share a scale: a multiple of [`Layout::steps`].
    pub(super) block: usize,
    pub(super) zeros: Zeros,
}

impl Layout {
    /// Steps of a line.
    pub(super) fn steps(&self) -> usize {
        32 / self.bits
    }

    /// Lines of a whole block.
    pub(super) fn block_lines(&self) -> usize {
        self.block / self.steps()
    }

    /// Lines of a panel.
    pub(super) fn lines(&self) -> usize {
        self.k.div_ceil(self.steps())
    }

    pub(super) fn blocks(&self) -> usize {
        self.k.div_ceil(self.block)
    }

    /// Lines that are summed at once.
    pub(super) fn group_lines(&self) -> usize {
        (GROUP / self.steps()).min(self.block_lines())
    }

    /// Groups of all blocks; the lines of the last block are fewer.
    pub(super) fn groups(&self) -> usize {
        let all = |lines: usize| lines.div_ceil(self.group_lines());
        let whole = self.lines() / self.block_lines();
        whole * all(self.block_lines()) + all(self.lines() % self.block_lines())
    }

    /// Words of a block's scales and zero points.
    pub(super) fn head(&self) -> usize {
        let zeros = match self.zeros {
            Zeros::Middle => 0,
            Zeros::Bytes => PANEL / 4,
            Zeros::Floats => PANEL,
        };
        PANEL + zeros
    }

    /// Words from a block to the next.
    pub(super) fn block_words(&self) -> usize {
        self.head() + self.block_lines() * PANEL
    }

    pub(super) fn panel_words(&self) -> usize {
        self.blocks() * self.head() + self.lines() * PANEL
    }

    pub(super) fn panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Words of the weight; `None` when the number overflows.
    pub(super) fn words(&self) -> Option<usize> {
        let heads = self.blocks().checked_mul(self.head())?;
        let lines = self.lines().checked_mul(PANEL)?;
        heads.checked_add(lines)?.checked_mul(self.panels())
    }

    /// The middle of the range of values.
    pub(super) fn middle(&self) -> f32 {
        f32::from(1u8 << (self.bits - 1))
    }
}
