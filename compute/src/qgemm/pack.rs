//! Weights in the order in which the kernels read them.

use crate::error::{Error, Result};

/// Columns of a panel: the 32-bit lanes of an AVX-512 register.
pub(crate) const PANEL: usize = 16;

/// Four neighbouring elements of the inner dimension for each of 16 columns.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [i8; 64]);

/// A packed i8 matrix of `n` columns, in panels of 16 columns. The lines of a panel follow each
/// other.
///
/// The inner dimension is made of segments, one for each tap of a window. A segment is filled up
/// with zeros to a multiple of four.
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

    /// Packs `taps` segments of `width` elements. `strides` are the distances in `from` between
    /// columns, between segments and between the elements of a segment. Panics where `from` is
    /// shorter.
    pub(crate) fn new(
        n: usize,
        taps: usize,
        width: usize,
        from: &[i8],
        strides: [usize; 3],
    ) -> Result<Self> {
        let (panels, groups) = (n.div_ceil(PANEL), width.div_ceil(4));
        let count = panels.checked_mul(taps).and_then(|c| c.checked_mul(groups));
        let count = count.filter(|c| c.checked_mul(64).is_some());
        let too_large =
            || Error::unsupported(format!("{n} columns of {taps}x{width}")).of("packing");
        let count = count.ok_or_else(too_large)?;
        let mut lines = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| too_large())?;
        lines.resize(count, Line([0; 64]));
        let mut sums = vec![0i32; panels * PANEL];
        let [by_column, by_tap, by_step] = strides;
        for (segment, lines) in lines.chunks_exact_mut(groups.max(1)).enumerate() {
            let (panel, tap) = (segment / taps, segment % taps);
            let first = panel * PANEL;
            let columns = PANEL.min(n - first);
            let from = &from[first * by_column + tap * by_tap..];
            if by_column == 1 {
                across(lines, from, (columns, width), by_step);
            } else {
                along(lines, from, (columns, width), (by_column, by_step));
            }
            add_up(&mut sums[first..][..PANEL], lines);
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

    /// The start of each column's sum, filled up to whole panels: the bias minus the zero point of
    /// the activations times the sum of the column's weights.
    pub(crate) fn seeds(&self, bias: Option<&[i32]>, zero: i32) -> Vec<i32> {
        let mut seeds: Vec<i32> =
            self.sums.iter().map(|s| s.wrapping_mul(zero).wrapping_neg()).collect();
        for (seed, bias) in seeds.iter_mut().zip(bias.unwrap_or_default()) {
            *seed = seed.wrapping_add(*bias);
        }
        seeds
    }
}

/// Packs columns that lie side by side: a line interleaves four of their rows.
fn across(lines: &mut [Line], from: &[i8], (columns, width): (usize, usize), step: usize) {
    for (group, line) in lines.iter_mut().enumerate() {
        let mut rows = [[0i8; PANEL]; 4];
        for (i, row) in (group * 4..width).zip(&mut rows) {
            row[..columns].copy_from_slice(&from[i * step..][..columns]);
        }
        for (lane, four) in line.0.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *four = [rows[0][lane], rows[1][lane], rows[2][lane], rows[3][lane]];
        }
    }
}

/// Packs columns whose elements are `step` apart, column by column.
fn along(
    lines: &mut [Line],
    from: &[i8],
    (columns, width): (usize, usize),
    (column, step): (usize, usize),
) {
    for lane in 0..columns {
        let from = &from[lane * column..];
        for (group, line) in lines.iter_mut().enumerate() {
            let four = &mut line.0[lane * 4..][..4];
            let rest = &from[group * 4 * step..];
            match rest.first_chunk::<4>().filter(|_| step == 1 && group * 4 + 4 <= width) {
                Some(whole) => four.copy_from_slice(whole),
                None => {
                    let elements = rest.iter().step_by(step).take(width - group * 4);
                    four.iter_mut().zip(elements).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
}

/// Adds the elements of each column.
fn add_up(sums: &mut [i32], lines: &[Line]) {
    for line in lines {
        for (sum, four) in sums.iter_mut().zip(line.0.as_chunks::<4>().0) {
            for &w in four {
                *sum = sum.wrapping_add(w.into());
            }
        }
    }
}
