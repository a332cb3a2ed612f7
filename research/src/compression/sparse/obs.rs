//! Optimal Brain Surgeon: what the removal of one weight costs, and how the others make up for it.
//!
//! The loss of a row is ½ δw H δwᵀ, where H is the mean of x xᵀ.

use faer::linalg::solvers::DenseSolveCore;
use faer::{Mat, Side};
use ndarray::{Array2, ArrayView2};

use super::pattern::setting;
use super::refuse;
use crate::error::Result;

const METHOD: &str = "invert the Hessian";

/// Returns H⁻¹, `[k, k]`, of the damped H.
///
/// `damping` times the mean of H's diagonal is added to the diagonal. An input that was always zero
/// gets a diagonal of one.
///
/// # Errors
/// Returns an error if `damping` is negative, if H is empty or not square, or if the damped H is
/// not positive definite.
pub fn inverse_hessian(h: ArrayView2<'_, f64>, damping: f64) -> Result<Array2<f64>> {
    let h = damped(h, damping)?;
    let llt = h.llt(Side::Lower).map_err(|_| indefinite(damping))?;
    let inverse = llt.inverse();
    finite(Array2::from_shape_fn((h.nrows(), h.nrows()), |(i, j)| inverse[(i, j)]), damping)
}

/// Returns the upper triangular U with UᵀU = H⁻¹, `[k, k]`, of the H damped as in
/// [`inverse_hessian`].
///
/// U_jj² is the diagonal of the inverse of H's rows and columns from j on, and row j of U times
/// U_jj is that inverse's first row. One factorisation thus serves a removal in the order of the
/// columns ("SparseGPT", Frantar & Alistarh 2023).
///
/// # Errors
/// Returns the errors of [`inverse_hessian`].
pub fn inverse_cholesky(h: ArrayView2<'_, f64>, damping: f64) -> Result<Array2<f64>> {
    let h = damped(h, damping)?;
    let k = h.nrows();
    // With J the reversal of order and J H J = M Mᵀ, U is J M⁻¹ J, so H itself is never inverted.
    let reversed = Mat::from_fn(k, k, |i, j| h[(k - 1 - i, k - 1 - j)]);
    let llt = reversed.llt(Side::Lower).map_err(|_| indefinite(damping))?;
    let mut inverse = Mat::<f64>::identity(k, k);
    llt.L().solve_lower_triangular_in_place(inverse.as_mut());
    let upper = |(i, j)| if i <= j { inverse[(k - 1 - i, k - 1 - j)] } else { 0.0 };
    finite(Array2::from_shape_fn((k, k), upper), damping)
}

/// The increase of the loss when weight q goes and the others make up for it:
/// ΔL = w_q² / (2 [H⁻¹]_qq) ("Second order derivatives for network pruning: Optimal Brain Surgeon",
/// Hassibi & Stork 1992, equation 5).
#[must_use]
pub fn saliency(weight: f64, inverse_diagonal: f64) -> f64 {
    weight * weight / (2.0 * inverse_diagonal)
}

/// Removes a weight and adds the others' compensation: δw = −w_q / [H⁻¹]_qq · [H⁻¹]_q
/// (the same, equation 5).
///
/// `inverse_row` is row q of H⁻¹, as long as `weights`. A `q` outside of either changes nothing.
pub fn remove_weight(weights: &mut [f64], inverse_row: &[f64], q: usize) {
    let (Some(weight), Some(diagonal)) = (weights.get(q).copied(), inverse_row.get(q)) else {
        return;
    };
    let step = weight / diagonal;
    for (weight, inverse) in weights.iter_mut().zip(inverse_row) {
        *weight -= step * inverse;
    }
    // Rounding must not leave a nonzero.
    weights[q] = 0.0;
}

/// Takes weight q out of H⁻¹: the other rows and columns become the inverse of H without q, and q's
/// become zero ("Optimal Brain Compression", Frantar & Alistarh 2022, lemma 1).
///
/// `inverse` is square. A `q` that is none of its rows changes nothing.
pub fn eliminate(inverse: &mut Array2<f64>, q: usize) {
    if q >= inverse.nrows() || q >= inverse.ncols() {
        return;
    }
    let row = inverse.row(q).to_owned();
    let diagonal = row[q];
    for (mut target, factor) in inverse.rows_mut().into_iter().zip(&row) {
        if *factor != 0.0 {
            target.scaled_add(-factor / diagonal, &row);
        }
    }
    inverse.row_mut(q).fill(0.0);
    inverse.column_mut(q).fill(0.0);
}

/// H with its damping, and one on the diagonal of inputs that were always zero.
fn damped(h: ArrayView2<'_, f64>, damping: f64) -> Result<Mat<f64>> {
    if !damping.is_finite() || damping < 0.0 {
        return Err(setting("damping", damping, "a finite number, 0 or more"));
    }
    if h.is_empty() || !h.is_square() {
        return Err(refuse(METHOD, format!("shape {:?}, expected [k, k]", h.shape())));
    }
    let added = damping * h.diag().mean().unwrap_or(0.0);
    Ok(Mat::from_fn(h.nrows(), h.nrows(), |i, j| match h[[i, j]] {
        0.0 if i == j => 1.0 + added,
        value if i == j => value + added,
        value => value,
    }))
}

fn indefinite(damping: f64) -> crate::error::Error {
    let expected = "a positive definite H, as from more inputs or a higher damping";
    refuse(
        METHOD,
        format!("H with damping {damping} is not positive definite, expected {expected}"),
    )
}

/// Returns the matrix, or an error if a value overflowed.
fn finite(matrix: Array2<f64>, damping: f64) -> Result<Array2<f64>> {
    if matrix.iter().all(|value| value.is_finite()) { Ok(matrix) } else { Err(indefinite(damping)) }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{correlated, uniform};
    use super::super::{Inputs, hessian as of_inputs};
    use super::*;
    use faer::linalg::solvers::Solve;
    use ndarray::array;

    const K: usize = 10;

    fn hessian() -> Array2<f64> {
        of_inputs(&Inputs::of(correlated(60, K, 0.7, 1).view()).unwrap())
    }

    /// The least ½ δ H δᵀ with w + δ zero on `removed`, and its δ, by a solve over the others.
    fn brute_force(h: &Array2<f64>, w: &[f64], removed: &[usize]) -> (f64, Vec<f64>) {
        let free: Vec<usize> = (0..K).filter(|i| !removed.contains(i)).collect();
        let n = free.len();
        let a = Mat::from_fn(n, n, |i, j| h[[free[i], free[j]]]);
        let b =
            Mat::from_fn(n, 1, |i, _| removed.iter().map(|&q| h[[free[i], q]] * w[q]).sum::<f64>());
        let solved = a.partial_piv_lu().solve(&b);
        let mut delta = vec![0.0; K];
        removed.iter().for_each(|&q| delta[q] = -w[q]);
        free.iter().enumerate().for_each(|(i, &j)| delta[j] = solved[(i, 0)]);
        let d = ndarray::Array1::from(delta.clone());
        (0.5 * d.dot(&h.dot(&d)), delta)
    }

    /// ΔL = w²/(2[H⁻¹]_qq) and δw, exact for every weight of a row.
    #[test]
    fn saliency_and_update_equal_brute_force() {
        let h = hessian();
        let inverse = inverse_hessian(h.view(), 0.0).unwrap();
        let w: Vec<f64> = uniform(1, K, 2).iter().map(|v| f64::from(*v)).collect();
        let mut worst = 0.0_f64;
        for q in 0..K {
            let (loss, delta) = brute_force(&h, &w, &[q]);
            worst = worst.max((saliency(w[q], inverse[[q, q]]) / loss - 1.0).abs());
            let mut updated = w.clone();
            remove_weight(&mut updated, inverse.row(q).as_slice().unwrap(), q);
            assert_eq!(updated[q], 0.0);
            for j in 0..K {
                worst = worst.max((updated[j] - w[j] - delta[j]).abs());
            }
        }
        println!("worst difference {worst:e}");
        assert!(worst < 1e-12, "{worst:e}");
    }

    /// A run of removals ends at the least squares on what is left, and its ΔL add up.
    #[test]
    fn eliminations_add_up_to_the_joint_optimum() {
        let h = hessian();
        let mut inverse = inverse_hessian(h.view(), 0.0).unwrap();
        let w: Vec<f64> = uniform(1, K, 3).iter().map(|v| f64::from(*v)).collect();
        let (mut row, mut total, removed) = (w.clone(), 0.0, [7, 0, 4]);
        for q in removed {
            total += saliency(row[q], inverse[[q, q]]);
            let inverse_row = inverse.row(q).to_vec();
            remove_weight(&mut row, &inverse_row, q);
            eliminate(&mut inverse, q);
        }
        let (loss, delta) = brute_force(&h, &w, &removed);
        assert!((total / loss - 1.0).abs() < 1e-12);
        assert!((0..K).all(|j| (row[j] - w[j] - delta[j]).abs() < 1e-12));
        assert!(removed.iter().all(|q| row[*q] == 0.0 && inverse.row(*q).sum() == 0.0));
    }

    /// UᵀU = H⁻¹, and U_jj² is the diagonal of the inverse of the trailing block.
    #[test]
    fn the_cholesky_factor_serves_a_removal_in_order() {
        let h = hessian();
        let inverse = inverse_hessian(h.view(), 0.01).unwrap();
        let upper = inverse_cholesky(h.view(), 0.01).unwrap();
        let product = upper.t().dot(&upper);
        assert!((&product - &inverse).iter().all(|d| d.abs() < 1e-11));
        let mut trailing = inverse;
        for j in 0..K {
            assert!((trailing[[j, j]] - upper[[j, j]].powi(2)).abs() < 1e-11);
            for l in j..K {
                assert!((trailing[[j, l]] - upper[[j, j]] * upper[[j, l]]).abs() < 1e-11);
            }
            eliminate(&mut trailing, j);
        }
    }

    #[test]
    fn bad_hessians_are_errors() {
        // Rank one: one input row.
        let h = Inputs::of(uniform(1, 4, 4).view()).unwrap();
        assert!(inverse_hessian(of_inputs(&h).view(), 0.01).is_ok());
        for (h, damping) in [
            (array![[1.0, 2.0], [2.0, 1.0]], 0.0),
            (array![[1.0, 0.0]], 0.0),
            (Array2::zeros((0, 0)), 0.0),
            (array![[1.0]], -1.0),
            (array![[1.0]], f64::NAN),
            (array![[f64::NAN]], 0.0),
        ] {
            assert!(inverse_hessian(h.view(), damping).is_err(), "{h:?}");
            assert!(inverse_cholesky(h.view(), damping).is_err(), "{h:?}");
        }
    }
}
