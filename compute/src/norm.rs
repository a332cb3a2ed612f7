//! Normalising rows to zero mean and unit variance: what the norms share.

use crate::isa::Simd;
use crate::matrix::Real;
use crate::reduction::sum;
use crate::simd::dispatch;
use num_traits::NumCast;

/// Mean and reciprocal standard deviation of a row that is not empty.
pub(crate) fn moments<T: Real>(simd: Simd, row: &[T], epsilon: f32) -> (T, T) {
    let n = <T as NumCast>::from(row.len()).unwrap_or_else(T::infinity);
    let epsilon = <T as NumCast>::from(epsilon).unwrap_or_else(T::zero);
    dispatch(
        simd,
        #[inline(always)]
        || {
            let mean = sum(
                row,
                #[inline(always)]
                |x| x,
            ) / n;
            let variance = sum(
                row,
                #[inline(always)]
                |x| (x - mean) * (x - mean),
            ) / n;
            (mean, (variance + epsilon).sqrt().recip())
        },
    )
}

/// `out = (row - mean) · scale + shift` with one scale and shift for all.
pub(crate) fn affine<T: Real>(simd: Simd, row: &[T], out: &mut [T], mean: T, scale: T, shift: T) {
    dispatch(
        simd,
        #[inline(always)]
        || out.iter_mut().zip(row).for_each(|(o, x)| *o = (*x - mean) * scale + shift),
    );
}
