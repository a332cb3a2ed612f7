//! The outputs of 32-bit sums: bytes with a scale and zero point, or floats.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod vnni;

use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::quantized::Quant;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256i, __m512i};

/// The operations that make outputs of a row's sums.
pub(crate) trait Epilogue: Sync {
    /// An element of the output.
    type Out: Copy + Send;
    /// Whether [`Self::finish`] does anything.
    const FINISHES: bool;

    /// Whether there are scales and biases for so many columns, and residuals for `rows` rows of
    /// `n`.
    fn reaches(&self, columns: usize, rows: usize, n: usize) -> bool;

    /// The output of one sum.
    fn element(&self, sum: i32, column: usize) -> Self::Out;

    /// Finishes a written piece of a row while it is in the cache. `at` is the position of the
    /// piece in a result without gaps. Callers have vector instructions enabled.
    fn finish(&self, at: usize, out: &mut [Self::Out]);

    /// Writes `N` panels of a row; `columns` of them exist.
    ///
    /// # Safety
    /// The machine has AVX-512 with VNNI; `out` may be written for `columns` columns, and the
    /// scales reach to the end of `N` panels from `column` on.
    #[cfg(target_arch = "x86_64")]
    unsafe fn store<const N: usize>(
        &self,
        sums: &[__m512i; N],
        column: usize,
        out: *mut Self::Out,
        columns: usize,
    );

    /// Writes a panel of a row; `columns` of it exist.
    ///
    /// # Safety
    /// The machine has AVX2; `out` may be written for `columns` columns, and the scales reach to
    /// the end of the panel from `column` on.
    #[cfg(target_arch = "x86_64")]
    unsafe fn store_panel(
        &self,
        sums: &[__m256i; 2],
        column: usize,
        out: *mut Self::Out,
        columns: usize,
    );
}

/// Sums times a column's scale, rounded half to even, plus a zero point, limited.
#[derive(Debug, Clone)]
pub(crate) struct ToBytes {
    /// One a column, filled up to whole panels.
    pub(crate) scale: Vec<f32>,
    pub(crate) zero: i32,
    /// The limits of the result after the zero point is added.
    pub(crate) low: i32,
    pub(crate) high: i32,
    /// Xored onto the u8 result, whose limits and zero point are of u8 too: 0x80 turns it into i8.
    pub(crate) flip: u8,
}

/// Sums times a column's scale, plus a bias and a residual, then an activation.
#[derive(Debug, Clone)]
pub(crate) struct ToFloats<'a> {
    /// One a column, filled up to whole panels.
    pub(crate) scale: Vec<f32>,
    /// One a column, filled up to whole panels.
    pub(crate) bias: &'a [f32],
    /// As many elements as the result.
    pub(crate) residual: Option<&'a [f32]>,
    pub(crate) activation: Activation,
}

/// The sum with a number below 2^22 has the number, rounded half to even, in the lowest bits.
const MAGIC: f32 = 12_582_912.;

/// The nearest integer, half to even, of a number of less than 22 bits.
#[inline(always)]
#[allow(clippy::cast_possible_wrap, reason = "the bit patterns are of small positive floats")]
pub(crate) fn round(x: f32) -> i32 {
    (x + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32
}

/// Larger products are limited to this before they are rounded; all output ranges are far smaller.
pub(crate) const LARGE: f32 = 1e6;

const _: () = assert!(LARGE < 4_194_304., "what is rounded has at most 22 bits");

impl ToBytes {
    /// From scales for whole panels.
    ///
    /// # Errors
    /// A scale that is not finite, with which an output could be NaN.
    pub(crate) fn new(scale: Vec<f32>, y: Quant, (low, high): (f32, f32)) -> Result<Self> {
        if scale.iter().all(|s| s.is_finite()) {
            let (low, high) = (y.unsigned(low), y.unsigned(high));
            return Ok(Self { scale, zero: y.unsigned_zero(), low, high, flip: y.flip() });
        }
        Err(Error::unsupported("a scale that is not finite"))
    }
}

impl Epilogue for ToBytes {
    type Out = u8;
    const FINISHES: bool = false;

    fn reaches(&self, columns: usize, _: usize, _: usize) -> bool {
        self.scale.len() >= columns
    }

    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "limited to a byte; sums round to f32 by definition"
    )]
    fn element(&self, sum: i32, column: usize) -> u8 {
        #[expect(clippy::manual_clamp, reason = "scales are finite, so there is no NaN")]
        let scaled = (sum as f32 * self.scale[column]).min(LARGE).max(-LARGE);
        let rounded = round(scaled) + self.zero;
        rounded.max(self.low).min(self.high) as u8 ^ self.flip
    }

    #[inline(always)]
    fn finish(&self, _: usize, _: &mut [u8]) {}

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn store<const N: usize>(
        &self,
        sums: &[__m512i; N],
        column: usize,
        out: *mut u8,
        columns: usize,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { vnni::bytes(self, sums, column, out, columns) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn store_panel(&self, sums: &[__m256i; 2], column: usize, out: *mut u8, columns: usize) {
        // SAFETY: as the caller vouches.
        unsafe { avx2::bytes(self, sums, column, out, columns) }
    }
}

impl Epilogue for ToFloats<'_> {
    type Out = f32;
    const FINISHES: bool = true;

    fn reaches(&self, columns: usize, rows: usize, n: usize) -> bool {
        let enough = |r: &[f32]| rows.checked_mul(n).is_some_and(|all| all <= r.len());
        self.scale.len() >= columns
            && self.bias.len() >= columns
            && self.residual.is_none_or(enough)
    }

    #[inline(always)]
    #[allow(clippy::cast_precision_loss, reason = "sums round to f32 by definition")]
    fn element(&self, sum: i32, column: usize) -> f32 {
        sum as f32 * self.scale[column] + self.bias[column]
    }

    #[inline(always)]
    fn finish(&self, at: usize, out: &mut [f32]) {
        if let Some(residual) = self.residual {
            out.iter_mut().zip(&residual[at..]).for_each(|(out, r)| *out += r);
        }
        self.activation.apply(false, out);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn store<const N: usize>(
        &self,
        sums: &[__m512i; N],
        column: usize,
        out: *mut f32,
        columns: usize,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { vnni::floats(self, sums, column, out, columns) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn store_panel(
        &self,
        sums: &[__m256i; 2],
        column: usize,
        out: *mut f32,
        columns: usize,
    ) {
        // SAFETY: as the caller vouches.
        unsafe { avx2::floats(self, sums, column, out, columns) }
    }
}
