//! Weights that make up for inputs that they lose, by least squares.

use crate::error::{Error, Result};
use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use ndarray::{Array2, Axis};
use std::collections::BTreeSet;

/// The share of H's mean diagonal that is added before it is solved with.
const DAMPING: f64 = 0.01;

/// The weight `[n, k · taps]` whose kept columns K make up for the lost columns L of inputs:
/// W_K + W_L H_LK (H_KK + λI)⁻¹, the least squares of W x that stay near W_K. The lost columns are
/// as they were.
pub(super) fn refit(
    w: &Array2<f32>,
    h: &Array2<f32>,
    lost: &BTreeSet<usize>,
) -> Result<Array2<f32>> {
    let columns = w.ncols();
    if h.dim() != (columns, columns) || columns == 0 {
        let message =
            format!("a weight {:?} with H {:?}, expected [n, k], [k, k]", w.dim(), h.dim());
        return Err(Error::compression("refit a weight", message));
    }
    let (kept, gone): (Vec<usize>, Vec<usize>) =
        (0..w.ncols()).partition(|column| !lost.contains(column));
    let mean = kept.iter().map(|&k| f64::from(h[[k, k]])).sum::<f64>() / kept.len().max(1) as f64;
    let lambda = DAMPING * mean;
    // Inputs that are always zero have nothing to make up with.
    if kept.is_empty() || lambda <= 0. {
        return Ok(w.clone());
    }
    let at = |i: usize, j: usize| f64::from(h[[i, j]]);
    let square = Mat::from_fn(kept.len(), kept.len(), |i, j| {
        at(kept[i], kept[j]) + if i == j { lambda } else { 0. }
    });
    let lost_rows: Array2<f32> = w.select(Axis(1), &gone);
    let cross = h.select(Axis(0), &gone).select(Axis(1), &kept);
    let product = lost_rows.dot(&cross);
    let right = Mat::from_fn(kept.len(), w.nrows(), |k, n| f64::from(product[[n, k]]));
    let factor = square.llt(Side::Lower).map_err(|_| {
        Error::compression("refit a weight", "H is not positive definite, expected finite inputs")
    })?;
    let added = factor.solve(&right);
    let mut out = w.clone();
    for (k, &column) in kept.iter().enumerate() {
        for n in 0..w.nrows() {
            out[[n, column]] += added[(k, n)] as f32;
        }
    }
    if !out.iter().all(|value| value.is_finite()) {
        let message = "the weight is not finite, expected smaller inputs";
        return Err(Error::compression("refit a weight", message));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The normal equations, by hand: inputs 0 and 1 are the same but for the damping, so that
    /// input 0 takes the weight of input 1, and input 2 is independent of both.
    #[test]
    fn the_refit_solves_the_normal_equations() {
        let h = ndarray::array![[1f32, 1., 0.], [1., 1., 0.], [0., 0., 1.]];
        let w = ndarray::array![[2f32, 3., 5.]];
        let refitted = refit(&w, &h, &[1].into()).unwrap();
        let damped = 1. + DAMPING as f32;
        assert!((refitted[[0, 0]] - (2. + 3. / damped)).abs() < 1e-5, "{refitted}");
        assert_eq!(refitted[[0, 2]], 5.);
        assert_eq!(refit(&w, &h, &BTreeSet::new()).unwrap(), w);
        assert!(refit(&w, &ndarray::Array2::eye(2), &[1].into()).is_err());
    }
}
