//! The checks of input that all decompositions share.

use crate::error::{Error, Result};

/// A compression error of `method`.
pub(super) fn bad(method: &'static str, message: impl Into<String>) -> Error {
    Error::Compression { method, message: message.into() }
}

/// The largest magnitude whose square still sums to a finite number.
const MAGNITUDE_MAX: f64 = 1e140;

/// Refuses a tensor without values, or with a value that is NaN, infinite or above
/// [`MAGNITUDE_MAX`].
pub(super) fn check_values<T: Copy + Into<f64>>(
    method: &'static str,
    shape: &[usize],
    values: impl IntoIterator<Item = T>,
) -> Result<()> {
    if shape.is_empty() || shape.contains(&0) {
        return Err(bad(method, format!("shape is {shape:?}, expected every size at least 1")));
    }
    for (index, value) in values.into_iter().enumerate() {
        let value: f64 = value.into();
        if value.is_nan() || value.abs() > MAGNITUDE_MAX {
            let message = format!("value {index} is {value}, expected at most {MAGNITUDE_MAX:e}");
            return Err(bad(method, message));
        }
    }
    Ok(())
}

/// Refuses a rank outside of 1 to `rank_max`.
pub(super) fn check_rank(
    method: &'static str,
    name: &str,
    rank: usize,
    rank_max: usize,
) -> Result<()> {
    if rank == 0 || rank > rank_max {
        return Err(bad(method, format!("{name} is {rank}, expected 1 to {rank_max}")));
    }
    Ok(())
}

/// Refuses a list of the wrong length.
pub(super) fn check_count(
    method: &'static str,
    name: &str,
    count: usize,
    expected: usize,
) -> Result<()> {
    if count != expected {
        return Err(bad(method, format!("{count} {name}, expected {expected}")));
    }
    Ok(())
}
