//! The shared parts of norms, which normalise rows to zero mean and unit variance.

use crate::Axes;
use crate::args::axis;
use crate::isa::Simd;
use crate::matrix::Real;
use crate::op::ValueInfo;
use crate::reduction::sum;
use crate::simd::dispatch;
use lgp_memory::Dim;
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

/// `out = (row - mean) · scale + shift`, with one scale and one shift for the row.
pub(crate) fn affine<T: Real>(simd: Simd, row: &[T], out: &mut [T], mean: T, scale: T, shift: T) {
    dispatch(
        simd,
        #[inline(always)]
        || out.iter_mut().zip(row).for_each(|(o, x)| *o = (*x - mean) * scale + shift),
    );
}

/// The axes of a norm over the axes of input 0 from `first` on; a negative `first` counts from the
/// back. The other inputs are parameters that broadcast to the normalised axes.
pub(crate) fn axes(first: i64, inputs: &[Option<&ValueInfo>]) -> Axes {
    let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
    let Ok(first) = axis(first, rank) else { return Axes::new() };
    let normalised: Vec<usize> = (first..rank).collect();
    let axes = Axes::each_but(&normalised, inputs, 1);
    normalised.iter().fold(axes, |axes, &at| {
        match parameters(inputs, at, |own| (at + own).checked_sub(rank)) {
            Some(own) => axes.all(own, [(0, at)]),
            None => axes,
        }
    })
}

/// The axes of a norm of `[n, c, …]` over all places of a sample's channels, without the axis of
/// channels.
pub(crate) fn sample_axes(inputs: &[Option<&ValueInfo>]) -> Axes {
    let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
    let samples = Axes::new().each([(0, 0)], [(0, 0)]);
    (2..rank).fold(samples, |axes, at| axes.all([(0, at)], [(0, at)]))
}

/// Axis `at` of input 0, and the same axis of the other inputs, the parameters. `place` answers the
/// number of the axis in a parameter of a rank. `None` where it is unknown whether a parameter has
/// the axis or is broadcast along it.
pub(crate) fn parameters(
    inputs: &[Option<&ValueInfo>],
    at: usize,
    place: impl Fn(usize) -> Option<usize>,
) -> Option<Vec<(usize, usize)>> {
    let length = inputs.first().copied().flatten()?.dim(at)?;
    let mut own = vec![(0, at)];
    for (i, parameter) in inputs.iter().enumerate().skip(1) {
        let Some(parameter) = parameter else { continue };
        let Some(axis) = place(parameter.rank()?) else { continue };
        match parameter.dim(axis)? {
            Dim::Known(1) => {}
            Dim::Unknown => return None,
            Dim::Symbol(_) if parameter.dim(axis) != Some(length) => return None,
            _ => own.push((i, axis)),
        }
    }
    Some(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::info;

    #[test]
    fn parameters_share_the_axes_that_they_are_not_broadcast_along() {
        let each = |rank: usize| (0..rank).fold(Axes::new(), |a, i| a.each([(0, i)], [(0, i)]));
        for (x, first, scale, bias, want) in [
            ("n s 8", -1, "8", "1", each(2).all([(0, 2), (1, 0)], [(0, 2)])),
            ("n ? 8", 1, "8", "", each(1).all([(0, 1)], [(0, 1)]).all([(0, 2), (1, 0)], [(0, 2)])),
            ("n s", 1, "s", "s", each(1).all([(0, 1), (1, 0), (2, 0)], [(0, 1)])),
            ("n s", 1, "s", "?", each(1)),
            ("n s", 1, "m", "1", each(1)),
            ("n s", 2, "s", "1", Axes::new()),
        ] {
            let given = [x, scale, bias].map(|dims| info(&format!("f32 {dims}")));
            let given: Vec<Option<&ValueInfo>> = given.iter().map(Some).collect();
            assert_eq!(axes(first, &given), want, "{x} from {first} by {scale} and {bias}");
        }
    }
}
