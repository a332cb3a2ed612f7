//! Weights in the order in which the kernels read them.

use crate::error::{Error, Result};

/// Columns of a panel: the 32-bit lanes of an AVX-512 register.
pub(crate) const PANEL: usize = 16;

/// For 16 columns four neighbouring elements of the inner dimension each.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [i8; 64]);

/// An i8 matrix of `n` columns, packed: panels of 16 columns, each its lines one after the other.
///
/// The inner dimension is made of segments, the taps of a window; each is filled up with zeros to
/// a multiple of four.
pub(crate) struct Packed {
    pub(crate) lines: Vec<Line>,
    pub(crate) n: usize,
    /// Segments of the inner dimension.
    pub(crate) taps: usize,
    /// Groups of four in each segment.
    pub(crate) groups: usize,
    /// The sum of each column, filled up with zeros to whole panels.
    pub(crate) sums: Vec<i32>,
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{} packed", self.taps, self.groups * 4, self.n)
    }
}

impl Packed {
    /// Bytes of the weights and their sums.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.lines) + size_of_val(&*self.sums)
    }

    /// Packs `taps` segments of `width` elements; `at` gives the element of a column, a segment
    /// and a position in it.
    pub(crate) fn new(
        n: usize,
        taps: usize,
        width: usize,
        at: impl Fn(usize, usize, usize) -> i8,
    ) -> Result<Self> {
        let (panels, groups) = (n.div_ceil(PANEL), width.div_ceil(4));
        let count = panels.checked_mul(taps).and_then(|c| c.checked_mul(groups));
        let count = count.filter(|c| c.checked_mul(64).is_some());
        let too_large = || Error::unsupported("packing", format!("{n} columns of {taps}x{width}"));
        let mut lines = Vec::new();
        lines.try_reserve_exact(count.ok_or_else(too_large)?).map_err(|_| too_large())?;
        let mut sums = vec![0i32; panels * PANEL];
        for panel in 0..panels {
            for tap in 0..taps {
                for group in 0..groups {
                    let mut line = Line([0; 64]);
                    for (lane, four) in line.0.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                        let column = panel * PANEL + lane;
                        for (i, element) in four.iter_mut().enumerate() {
                            if column < n && group * 4 + i < width {
                                *element = at(column, tap, group * 4 + i);
                                sums[column] = sums[column].wrapping_add((*element).into());
                            }
                        }
                    }
                    lines.push(line);
                }
            }
        }
        Ok(Self { lines, n, taps, groups, sums })
    }

    pub(crate) fn panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    /// Lines of one panel.
    pub(crate) fn panel(&self) -> usize {
        self.taps * self.groups
    }

    /// What each column's sum starts from, filled up to whole panels: a bias, and what the
    /// activations' zero point takes away again.
    pub(crate) fn seeds(&self, bias: Option<&[i32]>, zero: i32) -> Vec<i32> {
        let mut seeds: Vec<i32> =
            self.sums.iter().map(|s| s.wrapping_mul(zero).wrapping_neg()).collect();
        for (seed, bias) in seeds.iter_mut().zip(bias.unwrap_or_default()) {
            *seed = seed.wrapping_add(*bias);
        }
        seeds
    }
}
