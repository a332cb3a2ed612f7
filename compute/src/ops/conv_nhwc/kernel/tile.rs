//! Products of a few rows by packed panels of columns, accumulated in registers.
//!
//! With AVX-512 a tile is 14 rows by two registers: per step of the depth it loads two registers
//! of weights and broadcasts 14 elements for 28 multiply-adds, so that the multipliers and not the
//! loads are the bound; 28 accumulators cover four cycles of latency at two a cycle. The rows'
//! distance is a constant: their addresses then need no register each.

use super::vector::Vector;
use super::{Epilogue, GROUP_ROWS, LANE, ROW};

/// Rows that lie [`ROW`] elements apart times packed columns.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// The rows' first elements; as many as there are steps are read.
    pub(crate) a: *const f32,
    /// At most [`GROUP_ROWS`].
    pub(crate) rows: usize,
    /// The packed columns, panels that are `stride` steps deep.
    pub(crate) b: *const f32,
    /// Depth of a whole panel.
    pub(crate) stride: usize,
    /// First step and end of the part of the depth that this call sums.
    pub(crate) steps: (usize, usize),
    /// Columns in all panels, without those that fill up the last.
    pub(crate) columns: usize,
    /// Which panels.
    pub(crate) panels: (usize, usize),
    /// The result's first row at column 0.
    pub(crate) c: *mut f32,
    /// Distance of the result's rows.
    pub(crate) row: usize,
    /// Adds to what `c` holds.
    pub(crate) accumulate: bool,
    /// What is done once the sums are complete.
    pub(crate) epilogue: Option<Epilogue<'a>>,
}

/// Panels of columns: two registers of sixteen wide, the last one to three.
pub(crate) fn panel_count(columns: usize) -> usize {
    (columns.div_ceil(LANE) / 2).max(1)
}

/// Width of a panel with its filling.
pub(crate) fn panel_width(columns: usize, panel: usize) -> usize {
    let lanes = columns.div_ceil(LANE);
    if panel + 1 == panel_count(columns) { (lanes - 2 * panel) * LANE } else { 2 * LANE }
}

/// `MR × NV` registers of the result, from column `at` of the panel that begins at `column`.
#[inline(always)]
unsafe fn tile<V: Vector, const MR: usize, const NV: usize>(
    t: &Block<'_>,
    first: usize,
    b: *const f32,
    width: usize,
    column: usize,
) {
    // SAFETY: the caller's block describes valid memory: rows `first..first + MR` of `a` and `c`,
    // and all steps of `width` packed columns at `b`. Columns beyond `columns` are packed as
    // zeros but neither read nor written in `c`, `bias` and `residual`.
    unsafe {
        let mut acc = [[V::splat(0.); NV]; MR];
        let (mut a, mut b) = (t.a.add(first * ROW), b);
        for _ in t.steps.0..t.steps.1 {
            let mut w = [V::splat(0.); NV];
            for n in 0..NV {
                w[n] = V::load(b.add(n * V::LANES));
            }
            for i in 0..MR {
                let x = V::splat(*a.add(i * ROW));
                for n in 0..NV {
                    acc[i][n] = x.fma(w[n], acc[i][n]);
                }
            }
            a = a.add(1);
            b = b.add(width);
        }
        if t.columns - column >= NV * V::LANES {
            finish::<V, MR, NV, true>(t, first, column, acc);
        } else {
            finish::<V, MR, NV, false>(t, first, column, acc);
        }
    }
}

/// Adds what there is to add to the sums and stores them; `FULL` means that no column of the
/// registers lies beyond the result's.
#[inline(always)]
unsafe fn finish<V: Vector, const MR: usize, const NV: usize, const FULL: bool>(
    t: &Block<'_>,
    first: usize,
    column: usize,
    mut acc: [[V; NV]; MR],
) {
    // SAFETY: as for `tile`.
    unsafe {
        let left = t.columns - column;
        let load = |p: *const f32, n: usize| {
            let left = left.saturating_sub(n * V::LANES);
            if FULL { V::load(p) } else { V::load_up_to(p, left) }
        };
        let c = t.c.add(first * t.row + column);
        if t.accumulate {
            for n in 0..NV {
                for i in 0..MR {
                    acc[i][n] = acc[i][n].add(load(c.wrapping_add(i * t.row + n * V::LANES), n));
                }
            }
        }
        if let Some(e) = &t.epilogue {
            let (low, high) = (V::splat(e.low), V::splat(e.high));
            for n in 0..NV {
                if !e.bias.is_null() {
                    let bias = load(e.bias.wrapping_add(column + n * V::LANES), n);
                    for i in 0..MR {
                        acc[i][n] = acc[i][n].add(bias);
                    }
                }
                if !e.residual.is_null() {
                    for i in 0..MR {
                        let at = (first + i) * t.row + column + n * V::LANES;
                        acc[i][n] = acc[i][n].add(load(e.residual.wrapping_add(at), n));
                    }
                }
                for i in 0..MR {
                    acc[i][n] = acc[i][n].clamp(low, high);
                }
            }
        }
        for i in 0..MR {
            for n in 0..NV {
                let to = c.wrapping_add(i * t.row + n * V::LANES);
                if FULL {
                    acc[i][n].store(to);
                } else {
                    acc[i][n].store_up_to(to, left.saturating_sub(n * V::LANES));
                }
            }
        }
    }
}

/// Calls the tile of so many rows.
macro_rules! by_rows {
    ($rows:expr, $v:ty, $nv:literal, $args:tt, [$($n:literal)*]) => {
        match $rows {
            $($n => tile::<$v, $n, $nv> $args,)*
            _ => {}
        }
    };
}

/// All rows of one strip of columns, in equal parts of at most `most`.
macro_rules! strip {
    ($t:expr, $v:ty, $nv:literal, $b:expr, $width:expr, $column:expr, $most:literal, $list:tt) => {
        let parts = $t.rows.div_ceil($most);
        let mut first = 0;
        for part in 0..parts {
            let rows = ($t.rows - first).div_ceil(parts - part);
            by_rows!(rows, $v, $nv, ($t, first, $b, $width, $column), $list);
            first += rows;
        }
    };
}

/// For each panel, its packed columns, its width and its first column.
#[inline(always)]
unsafe fn each_panel(t: &Block<'_>, mut f: impl FnMut(*const f32, usize, usize)) {
    debug_assert!(t.rows <= GROUP_ROWS);
    for panel in t.panels.0..t.panels.1 {
        let column = panel * 2 * LANE;
        let width = panel_width(t.columns, panel);
        // SAFETY: the panels before this one are two registers wide.
        let b = unsafe { t.b.add(column * t.stride + t.steps.0 * width) };
        f(b, width, column);
    }
}

/// The result's rows after an activation that is no clamp.
#[inline(always)]
unsafe fn activate(t: &Block<'_>) {
    let Some(Epilogue { activation: Some(activation), .. }) = &t.epilogue else { return };
    let from = t.panels.0 * 2 * LANE;
    let to = if t.panels.1 == panel_count(t.columns) { t.columns } else { t.panels.1 * 2 * LANE };
    for i in 0..t.rows {
        // SAFETY: these elements were just written, and belong to this call alone.
        let row = unsafe { std::slice::from_raw_parts_mut(t.c.add(i * t.row + from), to - from) };
        activation.apply(row);
    }
}

/// Computes a block.
///
/// # Safety
/// The block's pointers are valid for what its fields say, `c` exclusively.
pub(crate) unsafe fn portable(t: &Block<'_>) {
    use super::vector::Four;
    // SAFETY: as the caller promises; the vectors need no feature.
    unsafe {
        each_panel(t, |b, width, column| {
            for at in (0..width).step_by(8) {
                if column + at < t.columns {
                    let (b, column) = (b.add(at), column + at);
                    strip!(t, Four, 2, b, width, column, 6, [1 2 3 4 5 6]);
                }
            }
        });
        activate(t);
    }
}

/// As [`portable`].
///
/// # Safety
/// As [`portable`], on a machine with AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
pub(crate) unsafe fn avx2(t: &Block<'_>) {
    use std::arch::x86_64::__m256;
    // SAFETY: as the caller promises; the features are enabled here.
    unsafe {
        each_panel(t, |b, width, column| {
            for at in (0..width).step_by(16) {
                if column + at < t.columns {
                    let (b, column) = (b.add(at), column + at);
                    strip!(t, __m256, 2, b, width, column, 6, [1 2 3 4 5 6]);
                }
            }
        });
        activate(t);
    }
}

/// As [`portable`].
///
/// # Safety
/// As [`portable`], on a machine with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(crate) unsafe fn avx512(t: &Block<'_>) {
    use std::arch::x86_64::__m512;
    // SAFETY: as the caller promises; the features are enabled here.
    unsafe {
        each_panel(t, |b, width, column| match width / LANE {
            1 => {
                strip!(t, __m512, 1, b, 16, column, 14, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]);
            }
            2 => {
                strip!(t, __m512, 2, b, 32, column, 14, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]);
            }
            _ => {
                strip!(t, __m512, 3, b, 48, column, 7, [1 2 3 4 5 6 7]);
            }
        });
        activate(t);
    }
}
