//! What becomes of 32-bit sums: bytes with a scale and zero point, or floats.

/// What a row's sums become.
pub(crate) trait Epilogue: Sync {
    /// Element of the output.
    type Out: Copy + Send;

    /// The output of one sum.
    fn element(&self, sum: i32, column: usize) -> Self::Out;

    /// Writes `N` panels of a row; `columns` of them exist.
    ///
    /// # Safety
    /// The machine has the instructions; `out` may be written for as many columns, and `column`
    /// begins a panel inside the scales.
    #[cfg(target_arch = "x86_64")]
    unsafe fn store<const N: usize>(
        &self,
        sums: &[std::arch::x86_64::__m512i; N],
        column: usize,
        out: *mut Self::Out,
        columns: usize,
    );
}

#[cfg(not(target_arch = "x86_64"))]
impl Epilogue for ToBytes {
    type Out = u8;
    fn element(&self, sum: i32, column: usize) -> u8 {
        self.one(sum, column)
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Epilogue for ToFloats {
    type Out = f32;
    fn element(&self, sum: i32, column: usize) -> f32 {
        self.one(sum, column)
    }
}

/// Sums times a column's scale, rounded half to even, plus a zero point, limited.
#[derive(Debug, Clone)]
pub(crate) struct ToBytes {
    /// One a column, filled up to whole panels.
    pub(crate) scale: Vec<f32>,
    pub(crate) zero: i32,
    /// Limits of the result after the zero point was added.
    pub(crate) low: i32,
    pub(crate) high: i32,
    /// What is xored onto the byte: limits and zero point are those of u8, and 0x80 makes i8.
    pub(crate) flip: u8,
}

/// Sums times a column's scale, plus a bias, limited.
#[derive(Debug, Clone)]
pub(crate) struct ToFloats {
    /// One a column, filled up to whole panels.
    pub(crate) scale: Vec<f32>,
    /// One a column, filled up to whole panels.
    pub(crate) bias: Vec<f32>,
    pub(crate) low: f32,
    pub(crate) high: f32,
}

/// Adding this to a number below 2^22 leaves the number, rounded half to even, in the lowest bits.
const MAGIC: f32 = 12_582_912.;

/// The nearest integer, half to even, of a number of less than 22 bits.
#[inline(always)]
#[allow(clippy::cast_possible_wrap, reason = "the bit patterns are of small positive floats")]
pub(crate) fn round(x: f32) -> i32 {
    (x + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32
}

/// Larger products are cut before they are rounded: all output ranges lie far inside.
pub(crate) const LARGE: f32 = 1e6;

impl ToBytes {
    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "limited to a byte; sums round to f32 by definition"
    )]
    pub(crate) fn one(&self, sum: i32, column: usize) -> u8 {
        #[expect(clippy::manual_clamp, reason = "a NaN must become a number")]
        let scaled = (sum as f32 * self.scale[column]).min(LARGE).max(-LARGE);
        let rounded = round(scaled) + self.zero;
        rounded.max(self.low).min(self.high) as u8 ^ self.flip
    }
}

impl ToFloats {
    #[inline(always)]
    #[allow(clippy::cast_precision_loss, reason = "sums round to f32 by definition")]
    pub(crate) fn one(&self, sum: i32, column: usize) -> f32 {
        (sum as f32).mul_add(self.scale[column], self.bias[column]).max(self.low).min(self.high)
    }
}
