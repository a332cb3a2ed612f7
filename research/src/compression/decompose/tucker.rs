//! The Tucker decomposition by HOSVD and HOOI, over all modes or some of them.

use ndarray::{Array2, ArrayD, ArrayViewD, Axis, Slice};

use super::check::{bad, check_count, check_rank, check_values};
use super::svd::svd;
use super::tensor::{mode_dot, relative_error, unfold};
use crate::error::Result;

const METHOD: &str = "take the Tucker decomposition";

/// A core tensor and a factor matrix for each decomposed mode:
/// the tensor is about the core, multiplied in each of `modes` by its factor.
#[derive(Debug, Clone)]
pub struct Tucker {
    /// The core. It has a rank in place of each decomposed mode's size.
    pub core: ArrayD<f64>,
    /// For each of `modes` a matrix [size, rank] with orthonormal columns.
    pub factors: Vec<Array2<f64>>,
    /// The decomposed modes.
    pub modes: Vec<usize>,
}

impl Tucker {
    /// The tensor that the core and the factors stand for. Their shapes must match, as those of
    /// [`hosvd`] and [`hooi`] do.
    pub fn reconstruct(&self) -> ArrayD<f64> {
        let mut tensor = self.core.clone();
        for (factor, mode) in self.factors.iter().zip(&self.modes) {
            tensor = mode_dot(tensor.view(), factor.view(), *mode);
        }
        tensor
    }

    /// The count of numbers in the core and the factors.
    pub fn parameters(&self) -> usize {
        self.core.len() + self.factors.iter().map(Array2::len).sum::<usize>()
    }
}

/// The truncated higher-order SVD: each of `modes` gets the leading left singular vectors of its
/// unfolding, as many as its entry in `ranks`.
///
/// The squared error is at most the sum of the squared tails of the unfoldings, so the error is at
/// most √d times the optimum for d decomposed modes.
///
/// Source: De Lathauwer et al., "A multilinear singular value decomposition" (2000).
///
/// # Errors
///
/// `Compression` if `tensor` is empty or not finite, if `modes` repeats a mode or names one that
/// the tensor lacks, if `ranks` has another count than `modes`, or if a rank is 0, above the size
/// of its mode or above the product of the core's other sizes.
pub fn hosvd(tensor: ArrayViewD<f64>, modes: &[usize], ranks: &[usize]) -> Result<Tucker> {
    check(&tensor, modes, ranks)?;
    let mut factors = Vec::with_capacity(modes.len());
    for (mode, rank) in modes.iter().zip(ranks) {
        factors.push(leading(tensor.view(), *mode, *rank)?);
    }
    let core = project(tensor, modes, &factors, None);
    Ok(Tucker { core, factors, modes: modes.to_vec() })
}

/// Higher-order orthogonal iteration: starts at [`hosvd`], and in turn replaces each factor by the
/// optimal one for the others. It never ends with a larger error than HOSVD.
///
/// The iteration ends after `iterations_max` sweeps, or once a sweep lowers the relative error by
/// less than `tolerance`.
///
/// Source: De Lathauwer et al., "On the best rank-1 and rank-(R1, R2, …, RN) approximation of
/// higher-order tensors" (2000).
///
/// # Errors
///
/// As [`hosvd`], and `Compression` if `tolerance` is negative or NaN.
pub fn hooi(
    tensor: ArrayViewD<f64>,
    modes: &[usize],
    ranks: &[usize],
    iterations_max: usize,
    tolerance: f64,
) -> Result<Tucker> {
    if tolerance.is_nan() || tolerance < 0.0 {
        return Err(bad(METHOD, format!("tolerance is {tolerance}, expected at least 0")));
    }
    let mut best = hosvd(tensor.view(), modes, ranks)?;
    let mut error = relative_error(tensor.view(), best.reconstruct().view());
    for _ in 0..iterations_max {
        let mut factors = best.factors.clone();
        for (index, (mode, rank)) in modes.iter().zip(ranks).enumerate() {
            let projected = project(tensor.view(), modes, &factors, Some(index));
            factors[index] = leading(projected.view(), *mode, *rank)?;
        }
        let core = project(tensor.view(), modes, &factors, None);
        let next = Tucker { core, factors, modes: modes.to_vec() };
        let next_error = relative_error(tensor.view(), next.reconstruct().view());
        let gain = error - next_error;
        if gain > 0.0 {
            (best, error) = (next, next_error);
        }
        if gain <= tolerance {
            break;
        }
    }
    Ok(best)
}

/// The `rank` leading left singular vectors of the mode-`mode` unfolding, [size, rank].
fn leading(tensor: ArrayViewD<f64>, mode: usize, rank: usize) -> Result<Array2<f64>> {
    let factors = svd(unfold(tensor, mode).view())?;
    Ok(factors.u.slice_axis(Axis(1), Slice::from(..rank)).to_owned())
}

/// `tensor` multiplied by each factor's transpose, except for the factor `skipped`.
fn project(
    tensor: ArrayViewD<f64>,
    modes: &[usize],
    factors: &[Array2<f64>],
    skipped: Option<usize>,
) -> ArrayD<f64> {
    let mut projected = tensor.to_owned();
    for (index, (mode, factor)) in modes.iter().zip(factors).enumerate() {
        if skipped != Some(index) {
            projected = mode_dot(projected.view(), factor.t(), *mode);
        }
    }
    projected
}

fn check(tensor: &ArrayViewD<f64>, modes: &[usize], ranks: &[usize]) -> Result<()> {
    check_values(METHOD, tensor.shape(), tensor.iter().copied())?;
    check_count(METHOD, "ranks", ranks.len(), modes.len())?;
    let mut core = tensor.shape().to_vec();
    for (index, (mode, rank)) in modes.iter().zip(ranks).enumerate() {
        if *mode >= core.len() || modes[..index].contains(mode) {
            let count = core.len();
            return Err(bad(
                METHOD,
                format!("mode {mode}, expected each of 0..{count} once at most"),
            ));
        }
        core[*mode] = *rank;
    }
    for (mode, rank) in modes.iter().zip(ranks) {
        let others = core.iter().enumerate().filter(|(other, _)| other != mode);
        let product = others.fold(1_usize, |product, (_, size)| product.saturating_mul(*size));
        let rank_max = tensor.shape()[*mode].min(product.max(1));
        check_rank(METHOD, &format!("the rank of mode {mode}"), *rank, rank_max)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::svd::tail_error;
    use super::super::tensor::tests::{hilbert, sine};
    use super::*;

    fn random(shape: &[usize], seed: u64) -> ArrayD<f64> {
        let mut rng = StdRng::seed_from_u64(seed);
        ArrayD::from_shape_simple_fn(shape, || rng.random_range(-1.0..1.0))
    }

    fn error(tensor: &ArrayD<f64>, tucker: &Tucker) -> f64 {
        relative_error(tensor.view(), tucker.reconstruct().view())
    }

    // Reference errors of the Hilbert tensor 1/(i + j + k + 1) of 20³, to a relative 1e-4.
    #[test]
    fn the_hilbert_tensor_has_its_known_errors() {
        let tensor = hilbert();
        for (rank, expected_hosvd, expected_hooi) in
            [(2, 6.1795e-2, 6.1737e-2), (3, 9.8647e-3, 9.8613e-3)]
        {
            let ranks = [rank; 3];
            let first = error(&tensor, &hosvd(tensor.view(), &[0, 1, 2], &ranks).unwrap());
            let last = error(&tensor, &hooi(tensor.view(), &[0, 1, 2], &ranks, 50, 1e-12).unwrap());
            assert!((first / expected_hosvd - 1.0).abs() < 1e-4, "HOSVD {first} at {rank}");
            assert!((last / expected_hooi - 1.0).abs() < 1e-4, "HOOI {last} at {rank}");
        }
    }

    // sin(x + y + …) = sin(x)·cos(y + …) + cos(x)·sin(y + …): multilinear rank 2 in every mode.
    #[test]
    fn the_sine_of_a_sum_has_rank_two() {
        for shape in [vec![12, 12, 12], vec![6, 7, 5, 4]] {
            let tensor = sine(&shape);
            let modes: Vec<usize> = (0..shape.len()).collect();
            let two = hosvd(tensor.view(), &modes, &vec![2; shape.len()]).unwrap();
            let one = hosvd(tensor.view(), &modes, &vec![1; shape.len()]).unwrap();
            assert!(error(&tensor, &two) < 3e-15, "{}", error(&tensor, &two));
            assert!(error(&tensor, &one) > 0.1);
        }
    }

    // De Lathauwer 2000, property 10: HOSVD² ≤ Σ tail²; each tail bounds the optimum from below,
    // so HOSVD ≤ √d·optimum, and HOOI lies between.
    #[test]
    fn the_errors_keep_their_bounds() {
        for seed in 0..4 {
            let tensor = random(&[6, 5, 7], seed);
            let ranks = [2, 3, 2];
            let tails: Vec<f64> = (0..3)
                .map(|mode| {
                    let factors = svd(unfold(tensor.view(), mode).view()).unwrap();
                    tail_error(&factors.singular_values.to_vec(), ranks[mode])
                })
                .collect();
            let first = error(&tensor, &hosvd(tensor.view(), &[0, 1, 2], &ranks).unwrap());
            let last = error(&tensor, &hooi(tensor.view(), &[0, 1, 2], &ranks, 50, 0.0).unwrap());
            let sum = tails.iter().map(|tail| tail * tail).sum::<f64>().sqrt();
            let lower = tails.iter().copied().fold(0.0, f64::max);
            assert!(first <= sum && first <= 3.0_f64.sqrt() * last);
            assert!(lower <= last && last < first, "{lower} {last} {first}");
        }
    }

    // Tucker-2 of Kim et al., "Compression of deep convolutional neural networks for fast and low
    // power mobile applications" (2016), leaves a kernel's spatial modes alone.
    #[test]
    fn some_modes_can_be_left_alone() {
        let tensor = random(&[6, 5, 3, 3], 5);
        let tucker = hosvd(tensor.view(), &[0, 1], &[4, 2]).unwrap();
        assert_eq!(tucker.core.shape(), [4, 2, 3, 3]);
        assert_eq!(tucker.parameters(), 4 * 2 * 9 + 6 * 4 + 5 * 2);
        let full = hosvd(tensor.view(), &[0, 1], &[6, 5]).unwrap();
        assert!(error(&tensor, &full) < 1e-14);
    }

    #[test]
    fn zero_and_constant_tensors_have_factors() {
        for value in [0.0, 3.0] {
            let tensor = ArrayD::from_elem(vec![3, 4, 2], value);
            let tucker = hooi(tensor.view(), &[0, 1, 2], &[1, 1, 1], 5, 0.0).unwrap();
            assert!(error(&tensor, &tucker) < 1e-15);
            let tucker = hooi(tensor.view(), &[0, 1, 2], &[2, 2, 2], 5, 0.0).unwrap();
            assert!(error(&tensor, &tucker) < 1e-15);
        }
    }

    #[test]
    fn bad_input_is_an_error() {
        let good = random(&[6, 3, 2], 6);
        let mut broken = good.clone();
        broken[[0, 0, 1]] = f64::NAN;
        let empty = ArrayD::zeros(vec![6, 0, 2]);
        for (tensor, modes, ranks, part) in [
            (&good, vec![0, 1, 2], vec![2, 2], "2 ranks, expected 3"),
            (&good, vec![0, 0], vec![2, 2], "mode 0, expected"),
            (&good, vec![3], vec![2], "mode 3, expected"),
            (&good, vec![0, 1], vec![0, 2], "the rank of mode 0 is 0, expected 1 to 4"),
            (&good, vec![0, 1], vec![5, 2], "the rank of mode 0 is 5, expected 1 to 4"),
            (&good, vec![1], vec![4], "the rank of mode 1 is 4, expected 1 to 3"),
            (&broken, vec![0], vec![1], "value 1 is NaN"),
            (&empty, vec![0], vec![1], "shape is [6, 0, 2]"),
        ] {
            let error = hosvd(tensor.view(), &modes, &ranks).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(hooi(good.view(), &[0], &[1], 5, f64::NAN).is_err());
    }
}
