//! Scaling of a weight's rows and columns, the identity behind smoothing, activation-aware scaling
//! and equalisation: W x = (W diag(s)) (diag(1/s) x).

use crate::error::{Error, Result};
use ndarray::Array2;

/// W ← W diag(s) for `s` of one value per column: the layer takes inputs that were divided by s.
///
/// # Errors
/// Fails if the lengths differ, or a value of s is not a normal number above 0.
pub fn scale_columns(w: &mut Array2<f32>, s: &[f32]) -> Result<()> {
    check(s, w.ncols())?;
    for mut row in w.rows_mut() {
        row.iter_mut().zip(s).for_each(|(v, s)| *v *= s);
    }
    Ok(())
}

/// W ← diag(1/s) W for `s` of one value per row: the layer gives outputs that are divided by s.
///
/// # Errors
/// Fails if the lengths differ, or a value of s is not a normal number above 0.
pub fn unscale_rows(w: &mut Array2<f32>, s: &[f32]) -> Result<()> {
    check(s, w.nrows())?;
    w.rows_mut().into_iter().zip(s).for_each(|(mut row, s)| row /= *s);
    Ok(())
}

/// Replaces each positive scale by the nearest power of two on a logarithmic axis; with such scales
/// the identity is exact in floats.
pub fn to_powers_of_two(s: &mut [f32]) {
    s.iter_mut().for_each(|s| *s = s.log2().round().exp2());
}

fn check(s: &[f32], expected: usize) -> Result<()> {
    let refuse = |message| Err(Error::Compression { method: "scale a weight", message });
    if s.len() != expected {
        return refuse(format!("{} scales, expected {expected}", s.len()));
    }
    match s.iter().find(|s| !s.is_normal() || **s < 0.0) {
        Some(s) => refuse(format!("scale {s}, expected a normal number above 0")),
        None => Ok(()),
    }
}
