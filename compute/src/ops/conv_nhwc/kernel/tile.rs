//! Products of a few rows by packed panels of columns, accumulated in registers.
//!
//! With AVX-512 a tile is 14 rows by two registers: per step of the depth it loads two registers
//! of weights and broadcasts 14 elements for 28 multiply-adds, so that the multipliers and not the
//! loads are the bound; 28 accumulators cover four cycles of latency at two a cycle. The rows'
//! distance is a constant: their addresses then need no register each.

use super::element::{Element, rounded};
use super::vector::Vector;
use super::{Epilogue, GROUP_ROWS, LANE, ROW};
use crate::simd::prefetch;
use half::bf16;

/// What the words of rows and packed columns are, and thus how two registers of them multiply.
trait Words<V: Vector> {
    /// Whether results and residuals may be bf16.
    const BF16: bool;
    /// `a · b + sum`; sums are f32.
    ///
    /// # Safety
    /// As [`Vector`].
    unsafe fn multiply(a: V, b: V, sum: V) -> V;
}

/// Words are f32.
struct Floats;

impl<V: Vector> Words<V> for Floats {
    const BF16: bool = false;
    #[inline(always)]
    unsafe fn multiply(a: V, b: V, sum: V) -> V {
        // SAFETY: as the caller promises.
        unsafe { a.fma(b, sum) }
    }
}

/// Words are two bf16 of neighbouring steps: twice the products for each load and instruction.
#[cfg(target_arch = "x86_64")]
struct Pairs;

#[cfg(target_arch = "x86_64")]
impl Words<std::arch::x86_64::__m512> for Pairs {
    const BF16: bool = true;
    #[inline(always)]
    unsafe fn multiply(
        a: std::arch::x86_64::__m512,
        b: std::arch::x86_64::__m512,
        sum: std::arch::x86_64::__m512,
    ) -> std::arch::x86_64::__m512 {
        use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps};
        // SAFETY: the caller has AVX-512 BF16; the types are other views of the same bits.
        unsafe {
            let a = std::mem::transmute::<__m512, __m512bh>(a);
            let b = std::mem::transmute::<__m512, __m512bh>(b);
            _mm512_dpbf16_ps(sum, a, b)
        }
    }
}

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
    /// The result's first row at column 0; where results go as bf16, room for what is not complete.
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
unsafe fn tile<V: Vector, W: Words<V>, const MR: usize, const NV: usize>(
    t: &Block<'_>,
    first: usize,
    b: *const f32,
    width: usize,
    column: usize,
) {
    // The panel that comes next, which may still be in memory.
    let mut next = b.wrapping_add(t.stride * width);
    // SAFETY: the caller's block describes valid memory: rows `first..first + MR` of `a` and `c`,
    // and all steps of `width` packed columns at `b`. Columns beyond `columns` are packed as
    // zeros but neither read nor written in `c`, `bias` and `residual`.
    unsafe {
        ahead::<MR>(t, first, column);
        let mut acc = [[V::splat(0.); NV]; MR];
        let (mut a, mut b) = (t.a.add(first * ROW), b);
        for _ in t.steps.0..t.steps.1 {
            let mut w = [V::splat(0.); NV];
            for n in 0..NV {
                w[n] = V::load(b.add(n * V::LANES));
            }
            for line in 0..NV * V::LANES / LANE {
                prefetch(next.wrapping_add(line * LANE));
            }
            next = next.wrapping_add(width);
            for i in 0..MR {
                let x = V::splat(*a.add(i * ROW));
                for n in 0..NV {
                    acc[i][n] = W::multiply(x, w[n], acc[i][n]);
                }
            }
            a = a.add(1);
            b = b.add(width);
        }
        if t.columns - column >= NV * V::LANES {
            finish::<V, W, MR, NV, true>(t, first, column, acc);
        } else {
            finish::<V, W, MR, NV, false>(t, first, column, acc);
        }
    }
}

/// Fetches what the end of a tile overwrites, and the residual that it adds, while the sums are
/// computed: both often lie in memory. Sums that go on elsewhere are in the cache.
#[inline(always)]
fn ahead<const MR: usize>(t: &Block<'_>, first: usize, column: usize) {
    let Some(e) = t.epilogue.as_ref().filter(|e| !e.has_bf16()) else { return };
    for i in 0..MR {
        let at = (first + i) * t.row + column;
        for at in [at, at + LANE] {
            prefetch(t.c.cast_const().wrapping_add(at));
            if !e.residual.is_null() {
                prefetch(e.residual.wrapping_add(at));
            }
        }
    }
}

/// Adds what there is to add to the sums and stores them; `FULL` means that no column of the
/// registers lies beyond the result's.
#[inline(always)]
unsafe fn finish<V: Vector, W: Words<V>, const MR: usize, const NV: usize, const FULL: bool>(
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
            // Where there is more to add, the limits come after that.
            let open = W::BF16 && e.has_bf16();
            let (low, high) =
                if open { (f32::NEG_INFINITY, f32::INFINITY) } else { (e.low, e.high) };
            let (low, high) = (V::splat(low), V::splat(high));
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
    ($rows:expr, ($v:ty, $w:ty), $nv:literal, $args:tt, [$($n:literal)*]) => {
        match $rows {
            $($n => tile::<$v, $w, $n, $nv> $args,)*
            _ => {}
        }
    };
}

/// All rows of one strip of columns, in equal parts of at most `most`.
macro_rules! strip {
    ($t:expr, $v:tt, $nv:literal, $b:expr, $width:expr, $column:expr, $most:literal, $list:tt) => {
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

/// What is left to do with the sums of all rows once they lie in memory: what is bf16, and
/// activations that are no clamp. In the tiles it would cost the accumulators their registers.
#[inline(always)]
unsafe fn complete<V: Vector, W: Words<V>>(t: &Block<'_>) {
    let Some(e) = &t.epilogue else { return };
    if e.activation.is_none() && !(W::BF16 && e.has_bf16()) {
        return;
    }
    let from = t.panels.0 * 2 * LANE;
    let to = if t.panels.1 == panel_count(t.columns) { t.columns } else { t.panels.1 * 2 * LANE };
    for i in 0..t.rows {
        let at = i * t.row + from;
        // SAFETY: these elements were just written, and belong to this call alone; results and
        // residuals that are bf16 lie as the rows do.
        unsafe {
            if W::BF16 && e.has_bf16() {
                narrow::<V>(t.c.add(at), at, to - from, e);
            }
            let Some(activation) = &e.activation else { continue };
            let row = std::slice::from_raw_parts_mut(t.c.add(at), to - from);
            activation.apply(V::FUSED, row);
            if !e.out_bf16.is_null() {
                let to = std::slice::from_raw_parts_mut(e.out_bf16.add(at), to - from);
                to.iter_mut().zip(&*row).for_each(|(to, &x)| *to = rounded(x));
            }
        }
    }
}

/// Adds a residual of bf16 to `len` sums and clamps them; they go where results of bf16 go, unless
/// there is an activation to come. `at` is their place in residual and result.
#[inline(always)]
unsafe fn narrow<V: Vector>(sums: *mut f32, at: usize, len: usize, e: &Epilogue<'_>) {
    // SAFETY: as the caller promises.
    unsafe {
        let (low, high) = (V::splat(e.low), V::splat(e.high));
        for n in (0..len).step_by(V::LANES) {
            let left = len - n;
            let mut x = <f32 as Element>::load_up_to::<V>(sums.add(n), left);
            if !e.residual_bf16.is_null() {
                x = x.add(bf16::load_up_to(e.residual_bf16.add(at + n), left));
            }
            x = x.clamp(low, high);
            if e.out_bf16.is_null() || e.activation.is_some() {
                <f32 as Element>::store_up_to(x, sums.add(n), left);
            } else {
                bf16::store_up_to(x, e.out_bf16.add(at + n), left);
            }
        }
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
                    strip!(t, (Four, Floats), 2, b, width, column, 6, [1 2 3 4 5 6]);
                }
            }
        });
        complete::<Four, Floats>(t);
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
                let (b, column) = (b.add(at), column + at);
                match t.columns.saturating_sub(column) {
                    0 => {}
                    1..=8 => {
                        strip!(t, (__m256, Floats), 1, b, width, column, 9, [1 2 3 4 5 6 7 8 9]);
                    }
                    _ => {
                        strip!(t, (__m256, Floats), 2, b, width, column, 6, [1 2 3 4 5 6]);
                    }
                }
            }
        });
        complete::<__m256, Floats>(t);
    }
}

/// As [`portable`].
///
/// # Safety
/// As [`portable`], on a machine with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(crate) unsafe fn avx512(t: &Block<'_>) {
    // SAFETY: as the caller promises; the features are enabled here.
    unsafe { wide::<Floats>(t) }
}

/// As [`portable`], of words that are pairs of bf16.
///
/// # Safety
/// As [`portable`], on a machine with AVX-512 and its BF16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma")]
pub(crate) unsafe fn bf16(t: &Block<'_>) {
    // SAFETY: as the caller promises; the features are enabled here.
    unsafe { wide::<Pairs>(t) }
}

/// A block in registers of sixteen.
///
/// # Safety
/// As [`portable`]; the caller enables the features.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn wide<W: Words<std::arch::x86_64::__m512>>(t: &Block<'_>) {
    use std::arch::x86_64::__m512;
    // SAFETY: as the caller promises.
    unsafe {
        // Left out of line, the closure would be compiled without the features.
        each_panel(
            t,
            #[inline(always)]
            |b, width, column| match width / LANE {
                1 => {
                    strip!(t, (__m512, W), 1, b, 16, column, 14, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]);
                }
                2 => {
                    strip!(t, (__m512, W), 2, b, 32, column, 14, [1 2 3 4 5 6 7 8 9 10 11 12 13 14]);
                }
                _ => {
                    strip!(t, (__m512, W), 3, b, 48, column, 7, [1 2 3 4 5 6 7]);
                }
            },
        );
        complete::<__m512, W>(t);
    }
}
