//! Folding a slice in independent lanes, which vectorises and keeps rounding errors small.

use lgp_memory::Element;

/// Independent accumulators: two AVX-512 registers of f32.
const LANES: usize = 32;

/// Folds with `combine`, whose result must not depend on the order except by rounding.
#[inline(always)]
pub(crate) fn fold<T: Element>(
    row: &[T],
    start: T,
    map: impl Fn(T) -> T,
    combine: impl Fn(T, T) -> T,
) -> T {
    let mut lanes = [start; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = combine(*lane, map(*x));
        }
    }
    let rest = rest.iter().fold(start, |sum, x| combine(sum, map(*x)));
    lanes.iter().fold(rest, |sum, lane| combine(sum, *lane))
}

/// Sum of `map(x)`.
#[inline(always)]
pub(crate) fn sum<T: crate::matrix::Real>(row: &[T], map: impl Fn(T) -> T) -> T {
    fold(
        row,
        T::zero(),
        map,
        #[inline(always)]
        |a, b| a + b,
    )
}
