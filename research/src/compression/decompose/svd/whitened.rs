//! The truncated SVD that minimises the error of a layer's output instead of that of its weights,
//! from the second moment of its inputs.

use ndarray::{Array2, ArrayView2};

use super::super::check::{bad, check_count, check_rank, check_values};
use super::super::linear_algebra::{cholesky, solve_lower_transposed};
use super::{LowRank, balanced, svd, tail_error};
use crate::error::Result;

const METHOD: &str = "truncate the SVD by its inputs";

/// The damping tried in turn, as shares of the mean of H's diagonal, until H is positive definite.
const DAMPING: [f64; 6] = [0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2];

/// A [`LowRank`] and how far H was moved to get it.
#[derive(Debug, Clone)]
pub struct WhitenedLowRank {
    /// The factors. Their `relative_error` is that of the layer's output,
    /// ‖(W − Ŵ)·X‖/‖W·X‖ under the damped H.
    pub low_rank: LowRank,
    /// What was added to H's diagonal, as a share of its mean: 0 if H is positive definite.
    pub damping: f64,
}

/// The approximation Ŵ of `weight` W [n, k] of rank `rank` that minimises the mean of
/// ‖(W − Ŵ)·x‖² over inputs x with the second moment `second_moment` H = E[x·xᵀ] [k, k].
///
/// With H = L·Lᵀ the error is ‖(W − Ŵ)·L‖², so the truncated SVD of W·L, multiplied by L⁻¹ from
/// the right, is optimal. An H that is only semidefinite, as from fewer inputs than k, is damped.
///
/// Source: Wang et al., "SVD-LLM: truncation-aware singular value decomposition for large language
/// model compression" (2024), section 3.1.
///
/// # Errors
///
/// As [`super::truncated_svd`], and `Compression` if H is not [k, k], not symmetric, zero, or has a
/// clearly negative eigenvalue.
pub fn whitened_svd(
    weight: ArrayView2<f32>,
    second_moment: ArrayView2<f64>,
    rank: usize,
) -> Result<WhitenedLowRank> {
    check_rank(METHOD, "rank", rank, weight.nrows().min(weight.ncols()).max(1))?;
    check_values(METHOD, weight.shape(), weight.iter().copied())?;
    check_second_moment(second_moment, weight.ncols())?;
    let (lower, damping) = whiten(second_moment)?;
    let whitened = weight.mapv(f64::from).dot(&lower);
    let factors = svd(whitened.view())?;
    let relative_error = tail_error(&factors.singular_values.to_vec(), rank);
    let (left, right) = balanced(&factors, rank);
    let right = solve_lower_transposed(lower.view(), right.t()).reversed_axes();
    let low_rank = LowRank {
        left: left.mapv(|value| value as f32),
        right: right.mapv(|value| value as f32),
        relative_error,
    };
    Ok(WhitenedLowRank { low_rank, damping })
}

/// √(tr((W − Ŵ)·H·(W − Ŵ)ᵀ)/tr(W·H·Wᵀ)): the relative error of the layer's output over inputs with
/// the second moment H, or 0 if all outputs are 0.
///
/// # Errors
///
/// `Compression` if the shapes do not match, or H is not symmetric, finite and nonzero.
pub fn weighted_relative_error(
    weight: ArrayView2<f32>,
    approximation: ArrayView2<f32>,
    second_moment: ArrayView2<f64>,
) -> Result<f64> {
    if approximation.shape() != weight.shape() {
        let (found, expected) = (approximation.shape(), weight.shape());
        return Err(bad(METHOD, format!("the approximation is {found:?}, expected {expected:?}")));
    }
    check_second_moment(second_moment, weight.ncols())?;
    let energy = |matrix: Array2<f64>| (&matrix.dot(&second_moment) * &matrix).sum().max(0.0);
    let weight = weight.mapv(f64::from);
    let error = energy(&weight - &approximation.mapv(f64::from));
    let total = energy(weight);
    Ok(if total == 0.0 { 0.0 } else { (error / total).sqrt() })
}

fn check_second_moment(second_moment: ArrayView2<f64>, size: usize) -> Result<()> {
    check_count(METHOD, "rows of the second moment", second_moment.nrows(), size)?;
    check_count(METHOD, "columns of the second moment", second_moment.ncols(), size)?;
    check_values(METHOD, second_moment.shape(), second_moment.iter().copied())?;
    let largest = second_moment.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let skew = &second_moment - &second_moment.t();
    if skew.iter().any(|value| value.abs() > 1e-6 * largest) {
        return Err(bad(METHOD, "the second moment is not symmetric, expected E[x·xᵀ]"));
    }
    if second_moment.diag().sum() <= 0.0 {
        return Err(bad(METHOD, "the second moment's trace is not positive, expected some input"));
    }
    Ok(())
}

/// The lower Cholesky factor of H with the least damping of [`DAMPING`] that makes it positive
/// definite, and that damping.
fn whiten(second_moment: ArrayView2<f64>) -> Result<(Array2<f64>, f64)> {
    let mean = second_moment.diag().sum() / second_moment.nrows() as f64;
    for damping in DAMPING {
        let mut damped = second_moment.to_owned();
        damped.diag_mut().mapv_inplace(|value| value + damping * mean);
        // A pivot at rounding level would make L⁻¹ meaningless, so it counts as not definite.
        let usable =
            |lower: &Array2<f64>| lower.diag().iter().all(|pivot| pivot * pivot > 1e-13 * mean);
        if let Some(lower) = cholesky(damped.view()).filter(usable) {
            return Ok((lower, damping));
        }
    }
    Err(bad(METHOD, "the second moment has negative eigenvalues, expected E[x·xᵀ]"))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::truncated_svd;
    use super::*;

    fn random(rows: usize, columns: usize, seed: u64) -> Array2<f32> {
        let mut rng = StdRng::seed_from_u64(seed);
        Array2::from_shape_simple_fn((rows, columns), || rng.random_range(-1.0..1.0))
    }

    /// Correlated inputs of uneven size, [k, samples], and their second moment.
    fn inputs(size: usize, samples: usize) -> (Array2<f64>, Array2<f64>) {
        let mixing = random(size, size, 11).mapv(f64::from);
        let mut inputs = mixing.dot(&random(size, samples, 12).mapv(f64::from));
        for (row, mut values) in inputs.outer_iter_mut().enumerate() {
            values *= 1.0 + row as f64;
        }
        let second_moment = inputs.dot(&inputs.t()) / samples as f64;
        (inputs, second_moment)
    }

    fn norm(matrix: &Array2<f64>) -> f64 {
        matrix.iter().map(|value| value * value).sum::<f64>().sqrt()
    }

    // SVD-LLM 2024, section 3.1: the output's error is the tail of σ(W·L), and no larger than that
    // of the plain truncated SVD, on the inputs themselves.
    #[test]
    fn the_output_error_is_the_tail_and_below_the_plain_one() {
        let weight = random(10, 8, 13);
        let (x, h) = inputs(8, 200);
        for rank in [1, 2, 4, 7] {
            let WhitenedLowRank { low_rank, damping } =
                whitened_svd(weight.view(), h.view(), rank).unwrap();
            let plain = truncated_svd(weight.view(), rank).unwrap().reconstruct();
            let exact = weight.mapv(f64::from);
            let error = |approximation: &Array2<f32>| {
                norm(&(&exact - &approximation.mapv(f64::from)).dot(&x)) / norm(&exact.dot(&x))
            };
            let ours = error(&low_rank.reconstruct());
            assert_eq!(damping, 0.0);
            assert!((ours - low_rank.relative_error).abs() < 1e-5, "{ours} at {rank}");
            assert!(ours < 0.95 * error(&plain), "{ours} and {} at {rank}", error(&plain));
            let closed =
                weighted_relative_error(weight.view(), low_rank.reconstruct().view(), h.view());
            assert!((closed.unwrap() - ours).abs() < 1e-6);
        }
    }

    // With H = I the whitening does nothing, so the plain truncated SVD comes out.
    #[test]
    fn the_identity_gives_the_plain_svd() {
        let weight = random(10, 8, 14);
        for rank in [1, 3, 8] {
            let plain = truncated_svd(weight.view(), rank).unwrap();
            let ours = whitened_svd(weight.view(), Array2::eye(8).view(), rank).unwrap().low_rank;
            assert!((ours.relative_error - plain.relative_error).abs() < 1e-12);
            let difference = &ours.reconstruct() - &plain.reconstruct();
            assert!(difference.iter().all(|value| value.abs() < 1e-6));
        }
    }

    // W = diag(1, 2), H = diag(9, 1): W·L = diag(3, 2), so the column with the smaller weight stays.
    #[test]
    fn large_inputs_outweigh_large_weights() {
        let weight = Array2::from_diag(&ndarray::array![1.0_f32, 2.0]);
        let second_moment = Array2::from_diag(&ndarray::array![9.0, 1.0]);
        let low_rank = whitened_svd(weight.view(), second_moment.view(), 1).unwrap().low_rank;
        let kept = low_rank.reconstruct();
        assert!((kept[[0, 0]] - 1.0).abs() < 1e-6 && kept[[1, 1]].abs() < 1e-6);
        assert!((low_rank.relative_error - 2.0 / 13.0_f64.sqrt()).abs() < 1e-12);
    }

    // Three inputs span three directions, so rank 3 reproduces their outputs although H is singular.
    #[test]
    fn a_singular_second_moment_is_damped() {
        let weight = random(10, 8, 15);
        let (x, h) = inputs(8, 3);
        let result = whitened_svd(weight.view(), h.view(), 3).unwrap();
        assert!(result.damping > 0.0 && result.damping < 1e-3, "{}", result.damping);
        let exact = weight.mapv(f64::from);
        let kept = result.low_rank.reconstruct().mapv(f64::from);
        let error = norm(&(&exact - &kept).dot(&x)) / norm(&exact.dot(&x));
        assert!(error < 1e-3, "{error}");
    }

    #[test]
    fn bad_input_is_an_error() {
        let weight = random(3, 2, 16);
        let mut skew = Array2::eye(2);
        skew[[0, 1]] = 0.5;
        let mut broken = Array2::eye(2);
        broken[[1, 1]] = f64::NAN;
        let mut indefinite = Array2::eye(2);
        indefinite[[0, 0]] = -0.5;
        for (second_moment, part) in [
            (Array2::eye(3), "3 rows of the second moment, expected 2"),
            (Array2::zeros((2, 2)), "trace"),
            (skew, "not symmetric"),
            (broken, "value 3 is NaN"),
            (indefinite, "negative eigenvalues"),
        ] {
            let error = whitened_svd(weight.view(), second_moment.view(), 1).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = whitened_svd(weight.view(), Array2::eye(2).view(), 3).unwrap_err();
        assert!(error.to_string().contains("rank is 3, expected 1 to 2"), "{error}");
    }
}
