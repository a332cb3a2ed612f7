//! The tensor train decomposition by TT-SVD, with given ranks or a given error.

mod matrix;

use ndarray::{Array2, Array3, ArrayD, ArrayView3, ArrayViewD, Axis, Slice};

use super::check::{bad, check_count, check_rank, check_values};
use super::svd::svd;
use super::tensor::{matrix_from, tensor_from};
use crate::error::Result;

pub use matrix::{TensorTrainMatrix, tensor_train_matrix, tensor_train_matrix_parameters};

const METHOD: &str = "take the tensor train decomposition";

/// A chain of cores: T[i₁, …, i_d] ≈ G₁[·, i₁, ·]·G₂[·, i₂, ·]·…·G_d[·, i_d, ·].
#[derive(Debug, Clone)]
pub struct TensorTrain {
    /// The cores, [r_{k−1}, n_k, r_k], with r₀ = r_d = 1.
    pub cores: Vec<Array3<f64>>,
}

impl TensorTrain {
    /// The tensor that the cores stand for. Their ranks must match, as those of [`tt_svd`] do.
    pub fn reconstruct(&self) -> ArrayD<f64> {
        let mut product = Array2::ones((1, 1));
        for core in &self.cores {
            let (left, size, right) = core.dim();
            let core = matrix_from(left, size * right, core.iter().copied().collect());
            let next = product.dot(&core);
            let rows = next.len() / right.max(1);
            product = matrix_from(rows, right, next.iter().copied().collect());
        }
        let shape: Vec<usize> = self.cores.iter().map(|core| core.len_of(Axis(1))).collect();
        tensor_from(&shape, product.iter().copied().collect())
    }

    /// The inner ranks r₁ to r_{d−1}.
    pub fn ranks(&self) -> Vec<usize> {
        self.cores.iter().skip(1).map(|core| core.len_of(Axis(0))).collect()
    }

    /// The count of numbers in the cores.
    pub fn parameters(&self) -> usize {
        self.cores.iter().map(Array3::len).sum()
    }
}

/// How TT-SVD cuts each SVD.
#[derive(Clone, Copy)]
enum Cut<'a> {
    Ranks(&'a [usize]),
    /// The norm that each cut may lose.
    Norm(f64),
}

/// The TT-SVD of `tensor` with the inner ranks `ranks`, r₁ to r_{d−1}.
///
/// Its error is at most √(d − 1) times that of the best tensor train of these ranks.
///
/// Source: Oseledets, "Tensor-train decomposition" (2011), algorithm 1.
///
/// # Errors
///
/// `Compression` if `tensor` is empty or not finite, if `ranks` has not d − 1 entries, or if a rank
/// is 0, above r_{k−1}·n_k or above the product of the sizes to its right.
pub fn tt_svd(tensor: ArrayViewD<f64>, ranks: &[usize]) -> Result<TensorTrain> {
    check_values(METHOD, tensor.shape(), tensor.iter().copied())?;
    check_count(METHOD, "ranks", ranks.len(), tensor.ndim() - 1)?;
    cut_train(tensor, Cut::Ranks(ranks))
}

/// The TT-SVD of `tensor` with the least ranks that keep its relative error at or below
/// `relative_error`: each of the d − 1 cuts may lose `relative_error`·‖T‖/√(d − 1).
///
/// Source: Oseledets, "Tensor-train decomposition" (2011), theorem 2.2.
///
/// # Errors
///
/// `Compression` if `tensor` is empty or not finite, or `relative_error` is not in 0 to 1.
pub fn tt_svd_to_error(tensor: ArrayViewD<f64>, relative_error: f64) -> Result<TensorTrain> {
    check_values(METHOD, tensor.shape(), tensor.iter().copied())?;
    if !(0.0..=1.0).contains(&relative_error) {
        return Err(bad(METHOD, format!("relative_error is {relative_error}, expected 0 to 1")));
    }
    let norm = tensor.iter().map(|value| value * value).sum::<f64>().sqrt();
    let cuts = (tensor.ndim() - 1).max(1) as f64;
    cut_train(tensor, Cut::Norm(relative_error * norm / cuts.sqrt()))
}

fn cut_train(tensor: ArrayViewD<f64>, cut: Cut) -> Result<TensorTrain> {
    let shape = tensor.shape();
    let mut cores = Vec::with_capacity(shape.len());
    let mut rest: Vec<f64> = tensor.iter().copied().collect();
    let mut left = 1;
    for (index, size) in shape.iter().enumerate() {
        if index + 1 == shape.len() {
            cores.push(core_from(left, *size, 1, rest));
            break;
        }
        let rows = left * size;
        let columns = rest.len() / rows;
        let unfolding = matrix_from(rows, columns, rest);
        let factors = svd(unfolding.view())?;
        let rank = match cut {
            Cut::Ranks(ranks) => ranks[index],
            Cut::Norm(norm) => rank_within(&factors.singular_values.to_vec(), norm),
        };
        check_rank(METHOD, &format!("rank {}", index + 1), rank, rows.min(columns))?;
        let u = factors.u.slice_axis(Axis(1), Slice::from(..rank));
        cores.push(core_from(left, *size, rank, u.iter().copied().collect()));
        // Uᵀ·X equals Σ·Vᵀ, without the rounding errors of V.
        rest = u.t().dot(&unfolding).iter().copied().collect();
        left = rank;
    }
    Ok(TensorTrain { cores })
}

/// The least rank, at least 1, whose tail has at most the norm `norm`.
fn rank_within(singular_values: &[f64], norm: f64) -> usize {
    let mut tail = 0.0;
    for (index, value) in singular_values.iter().enumerate().skip(1).rev() {
        tail += value * value;
        if tail > norm * norm {
            return index + 1;
        }
    }
    1
}

fn core_from(left: usize, size: usize, right: usize, values: Vec<f64>) -> Array3<f64> {
    let view = ArrayView3::from_shape((left, size, right), &values);
    view.map_or_else(|_| Array3::zeros((left, size, right)), |view| view.to_owned())
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::svd::tail_error;
    use super::super::tensor::relative_error;
    use super::super::tensor::tests::{hilbert, sine};
    use super::*;

    fn random(shape: &[usize], seed: u64) -> ArrayD<f64> {
        let mut rng = StdRng::seed_from_u64(seed);
        ArrayD::from_shape_simple_fn(shape, || rng.random_range(-1.0..1.0))
    }

    fn error(tensor: &ArrayD<f64>, train: &TensorTrain) -> f64 {
        relative_error(tensor.view(), train.reconstruct().view())
    }

    // Reference errors of the Hilbert tensor 1/(i + j + k + 1) of 20³, to a relative 1e-4.
    #[test]
    fn the_hilbert_tensor_has_its_known_errors() {
        let tensor = hilbert();
        for (rank, expected) in [(2, 5.6316e-2), (3, 8.5599e-3)] {
            let measured = error(&tensor, &tt_svd(tensor.view(), &[rank; 2]).unwrap());
            assert!((measured / expected - 1.0).abs() < 1e-4, "{measured} at {rank}");
        }
    }

    // sin(x + y) = sin(x)·cos(y) + cos(x)·sin(y) for every split of the sum: all TT ranks are 2.
    #[test]
    fn the_sine_of_a_sum_has_rank_two() {
        for shape in [vec![12, 12, 12], vec![6, 7, 5, 4, 3]] {
            let tensor = sine(&shape);
            let train = tt_svd(tensor.view(), &vec![2; shape.len() - 1]).unwrap();
            assert!(error(&tensor, &train) < 3e-15, "{}", error(&tensor, &train));
            let train = tt_svd_to_error(tensor.view(), 1e-12).unwrap();
            assert_eq!(train.ranks(), vec![2; shape.len() - 1]);
            let train = tt_svd(tensor.view(), &vec![1; shape.len() - 1]).unwrap();
            assert!(error(&tensor, &train) > 0.1);
        }
    }

    // Oseledets 2011, theorem 2.2: TT-SVD² ≤ Σ tail² over the unfoldings that cut the chain; each
    // tail bounds the optimum from below, so TT-SVD ≤ √(d − 1)·optimum.
    #[test]
    fn the_error_keeps_its_bound() {
        for seed in 0..4 {
            let tensor = random(&[4, 5, 3, 4], seed);
            let ranks = [2, 4, 3];
            let mut sum = 0.0;
            let mut rows = 1;
            let mut lower: f64 = 0.0;
            for (size, rank) in tensor.shape().iter().zip(ranks) {
                rows *= size;
                let values = tensor.iter().copied().collect();
                let factors = svd(matrix_from(rows, tensor.len() / rows, values).view()).unwrap();
                let tail = tail_error(&factors.singular_values.to_vec(), rank);
                sum += tail * tail;
                lower = lower.max(tail);
            }
            let measured = error(&tensor, &tt_svd(tensor.view(), &ranks).unwrap());
            assert!(lower <= measured && measured <= sum.sqrt(), "{lower} {measured}");
            assert!(measured <= 3.0_f64.sqrt() * lower);
        }
    }

    // Oseledets 2011, theorem 2.2: the relative error stays within the given one, and is not far
    // below it.
    #[test]
    fn the_error_bound_is_kept() {
        let tensor = hilbert();
        let mut parameters = usize::MAX;
        for bound in [0.0, 1e-6, 1e-3, 1e-2, 1e-1, 1.0] {
            let train = tt_svd_to_error(tensor.view(), bound).unwrap();
            let measured = error(&tensor, &train);
            assert!(measured <= bound + 1e-13, "{measured} above {bound}");
            assert!(train.parameters() <= parameters);
            parameters = train.parameters();
        }
        assert_eq!(parameters, 60);
    }

    #[test]
    fn the_full_ranks_are_exact() {
        for (shape, ranks) in [(vec![3, 4, 5, 2], vec![3, 10, 2]), (vec![5], vec![])] {
            let tensor = random(&shape, 5);
            let train = tt_svd(tensor.view(), &ranks).unwrap();
            assert!(error(&tensor, &train) < 1e-14);
            let sizes = train.cores.iter().map(|core| core.dim().0).collect::<Vec<_>>();
            assert_eq!(sizes[1..], ranks);
        }
    }

    #[test]
    fn zero_and_constant_tensors_have_rank_one() {
        for value in [0.0, -2.0] {
            let tensor = ArrayD::from_elem(vec![3, 4, 2], value);
            assert!(error(&tensor, &tt_svd(tensor.view(), &[2, 2]).unwrap()) < 1e-15);
            let train = tt_svd_to_error(tensor.view(), 1e-12).unwrap();
            assert_eq!(train.ranks(), [1, 1]);
        }
    }

    #[test]
    fn bad_input_is_an_error() {
        let good = random(&[3, 4, 2], 6);
        let mut broken = good.clone();
        broken[[0, 0, 1]] = f64::INFINITY;
        for (tensor, ranks, part) in [
            (&good, vec![2], "1 ranks, expected 2"),
            (&good, vec![0, 1], "rank 1 is 0, expected 1 to 3"),
            (&good, vec![4, 1], "rank 1 is 4, expected 1 to 3"),
            (&good, vec![1, 3], "rank 2 is 3, expected 1 to 2"),
            (&broken, vec![1, 1], "value 1 is inf"),
            (&ArrayD::zeros(vec![3, 0]), vec![1], "shape is [3, 0]"),
            (&ArrayD::zeros(vec![]), vec![], "shape is []"),
        ] {
            let error = tt_svd(tensor.view(), &ranks).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for bound in [-0.1, 1.1, f64::NAN] {
            assert!(tt_svd_to_error(good.view(), bound).is_err());
        }
    }
}
