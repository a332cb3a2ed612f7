//! The thin singular value decomposition, and the best approximation of given rank that it gives.

mod whitened;

use ndarray::{Array1, Array2, ArrayView2, Axis, Slice};

use super::check::{bad, check_rank, check_values};
use super::linear_algebra::{from_faer, to_faer};
use crate::error::Result;

pub use whitened::{WhitenedLowRank, weighted_relative_error, whitened_svd};

/// A thin SVD W = U·diag(σ)·Vᵀ of a matrix W [n, k], with p = min(n, k).
#[derive(Debug, Clone)]
pub struct Svd {
    /// The left singular vectors U as columns, [n, p].
    pub u: Array2<f64>,
    /// The p singular values σ, in falling order.
    pub singular_values: Array1<f64>,
    /// The right singular vectors Vᵀ as rows, [p, k].
    pub vt: Array2<f64>,
}

/// A matrix of rank at most r as the product of two factors.
#[derive(Debug, Clone)]
pub struct LowRank {
    /// U·√Σ, [n, r].
    pub left: Array2<f32>,
    /// √Σ·Vᵀ, [r, k].
    pub right: Array2<f32>,
    /// ‖W − left·right‖/‖W‖ in the Frobenius norm, before the factors are rounded to f32.
    pub relative_error: f64,
}

impl LowRank {
    /// The product left·right, [n, k]. Their shapes must match, as those of [`truncated_svd`] do.
    pub fn reconstruct(&self) -> Array2<f32> {
        self.left.dot(&self.right)
    }
}

/// The thin SVD of `matrix` [n, k], computed in f64.
///
/// # Errors
///
/// `Compression` if `matrix` is empty or has a value that is not finite, or if the iteration does
/// not converge.
pub fn svd<T: Copy + Into<f64>>(matrix: ArrayView2<T>) -> Result<Svd> {
    let method = "take the SVD";
    check_values(method, matrix.shape(), matrix.iter().copied())?;
    let factors = to_faer(matrix).thin_svd().map_err(|_| {
        bad(method, "the iteration does not converge, expected a well-scaled matrix")
    })?;
    let singular_values = factors.S().column_vector();
    Ok(Svd {
        u: from_faer(factors.U()),
        singular_values: Array1::from_shape_fn(singular_values.nrows(), |i| singular_values[i]),
        vt: from_faer(factors.V().transpose()),
    })
}

/// The relative error of the best approximation of rank `rank`: √(Σ_{i > rank} σᵢ²)/‖W‖, or 0 for
/// a zero matrix.
///
/// Source: Eckart and Young, "The approximation of one matrix by another of lower rank" (1936).
pub fn tail_error(singular_values: &[f64], rank: usize) -> f64 {
    let square = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
    let total = square(singular_values);
    if total == 0.0 {
        return 0.0;
    }
    (square(singular_values.get(rank..).unwrap_or_default()) / total).sqrt()
}

/// The best approximation of `weight` [n, k] of rank `rank`, as the factors U·√Σ [n, r] and
/// √Σ·Vᵀ [r, k].
///
/// A zero matrix gives zero factors and error 0.
///
/// Source: Eckart and Young, "The approximation of one matrix by another of lower rank" (1936).
///
/// # Errors
///
/// As [`svd`], and `Compression` if `rank` is 0 or above min(n, k).
pub fn truncated_svd(weight: ArrayView2<f32>, rank: usize) -> Result<LowRank> {
    check_rank("truncate the SVD", "rank", rank, weight.nrows().min(weight.ncols()).max(1))?;
    let factors = svd(weight)?;
    let relative_error = tail_error(&factors.singular_values.to_vec(), rank);
    let (left, right) = balanced(&factors, rank);
    Ok(LowRank {
        left: left.mapv(|value| value as f32),
        right: right.mapv(|value| value as f32),
        relative_error,
    })
}

/// U·√Σ and √Σ·Vᵀ of the first `rank` singular values.
pub(super) fn balanced(factors: &Svd, rank: usize) -> (Array2<f64>, Array2<f64>) {
    let roots = factors
        .singular_values
        .slice_axis(Axis(0), Slice::from(..rank))
        .mapv(|value| value.max(0.0).sqrt());
    let left = &factors.u.slice_axis(Axis(1), Slice::from(..rank)) * &roots;
    let right = &factors.vt.slice_axis(Axis(0), Slice::from(..rank)) * &roots.insert_axis(Axis(1));
    (left, right)
}

#[cfg(test)]
mod tests {
    use ndarray::array;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn random(rows: usize, columns: usize, seed: u64) -> Array2<f32> {
        let mut rng = StdRng::seed_from_u64(seed);
        Array2::from_shape_simple_fn((rows, columns), || rng.random_range(-1.0..1.0))
    }

    fn distance(a: &Array2<f32>, b: &Array2<f32>) -> f64 {
        let square = |m: &Array2<f32>| m.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        (square(&(a - b)) / square(a)).sqrt()
    }

    // Eckart and Young 1936: the error of the truncated SVD is the tail of the singular values.
    #[test]
    fn the_error_is_the_tail() {
        for (rows, columns, rank) in [(12, 7, 3), (7, 12, 3), (9, 9, 1), (9, 9, 8), (1, 5, 1)] {
            let weight = random(rows, columns, 1);
            let low_rank = truncated_svd(weight.view(), rank).unwrap();
            assert_eq!(low_rank.left.dim(), (rows, rank));
            assert_eq!(low_rank.right.dim(), (rank, columns));
            let measured = distance(&weight, &low_rank.reconstruct());
            assert!((measured - low_rank.relative_error).abs() < 1e-6, "{rows}x{columns} {rank}");
        }
    }

    // Eckart and Young 1936: no other matrix of that rank is nearer, in particular none near the
    // optimum.
    #[test]
    fn no_neighbour_is_nearer() {
        let weight = random(10, 8, 2);
        let best = truncated_svd(weight.view(), 3).unwrap();
        for (seed, step) in [(3, 1e-1), (4, 1e-2), (5, 1e-2)] {
            let left = &best.left + &(random(10, 3, seed) * step);
            let right = &best.right + &(random(3, 8, seed + 10) * step);
            let other = distance(&weight, &left.dot(&right));
            assert!(other > best.relative_error, "{other} at step {step}");
        }
    }

    // diag(4, 3): σ = 4, 3, so rank 1 leaves 3/5.
    #[test]
    fn a_diagonal_matrix_by_hand() {
        let low_rank = truncated_svd(array![[0.0, 4.0], [3.0, 0.0]].view(), 1).unwrap();
        assert!((low_rank.relative_error - 0.6).abs() < 1e-12);
        assert!((low_rank.reconstruct()[[0, 1]] - 4.0).abs() < 1e-6);
    }

    // U and V are orthonormal, and U·Σ·Vᵀ is the matrix.
    #[test]
    fn the_factors_multiply_to_the_matrix() {
        for (rows, columns) in [(6, 4), (4, 6), (30, 30)] {
            let weight = random(rows, columns, 6).mapv(f64::from);
            let Svd { u, singular_values, vt } = svd(weight.view()).unwrap();
            let identity = Array2::<f64>::eye(rows.min(columns));
            let near = |a: &Array2<f64>, b: &Array2<f64>| {
                (a - b).iter().all(|difference| difference.abs() < 1e-12)
            };
            assert!(near(&u.t().dot(&u), &identity));
            assert!(near(&vt.dot(&vt.t()), &identity));
            assert!(near(&(&u * &singular_values).dot(&vt), &weight));
            assert!(singular_values.windows(2).into_iter().all(|pair| pair[0] >= pair[1]));
        }
    }

    #[test]
    fn zero_constant_and_deficient_matrices_have_factors() {
        let deficient = random(8, 2, 7).dot(&random(2, 6, 8));
        for (weight, rank) in
            [(Array2::zeros((3, 4)), 1), (Array2::from_elem((5, 4), 2.5), 1), (deficient, 2)]
        {
            for rank in [rank, 3] {
                let low_rank = truncated_svd(weight.view(), rank).unwrap();
                assert!(low_rank.relative_error < 1e-7, "{}", low_rank.relative_error);
                let difference = &low_rank.reconstruct() - &weight;
                assert!(difference.iter().all(|value| value.abs() < 1e-5));
            }
        }
    }

    #[test]
    fn bad_input_is_an_error() {
        let good = Array2::<f32>::ones((3, 4));
        let mut broken = good.clone();
        broken[[1, 2]] = f32::NAN;
        let mut infinite = good.clone();
        infinite[[0, 0]] = f32::INFINITY;
        for (weight, rank, part) in [
            (good.clone(), 0, "rank is 0, expected 1 to 3"),
            (good, 4, "rank is 4, expected 1 to 3"),
            (broken, 1, "value 6 is NaN"),
            (infinite, 1, "value 0 is inf"),
            (Array2::zeros((0, 4)), 1, "shape is [0, 4]"),
        ] {
            let message = truncated_svd(weight.view(), rank).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
