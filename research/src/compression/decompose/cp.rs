//! The CP (canonical polyadic, PARAFAC) decomposition by regularised alternating least squares.

use ndarray::{Array2, ArrayD, ArrayViewD, Axis, Slice};
use rand::{Rng, RngExt};

use super::check::{bad, check_rank, check_values};
use super::linear_algebra::solve_positive;
use super::svd::svd;
use super::tensor::{fold, unfold};
use crate::error::{Error, Result};

const METHOD: &str = "take the CP decomposition";

/// A sum of R outer products: T[i, j, …] ≈ Σ_r A₁[i, r]·A₂[j, r]·….
#[derive(Debug, Clone)]
pub struct Cp {
    /// For each mode a matrix [size, R]. The columns of one component have equal norms.
    pub factors: Vec<Array2<f64>>,
    /// ‖T − T̂‖/‖T‖.
    pub relative_error: f64,
}

impl Cp {
    /// The tensor that the factors stand for. They must have one count of columns, as those of
    /// [`cp_als`] do.
    pub fn reconstruct(&self) -> ArrayD<f64> {
        let shape: Vec<usize> = self.factors.iter().map(Array2::nrows).collect();
        let unfolding = match self.factors.first() {
            Some(first) => first.dot(&khatri_rao(&self.factors, 0).t()),
            None => Array2::zeros((1, 1)),
        };
        fold(unfolding, 0, &shape)
    }

    /// The count of numbers in the factors.
    pub fn parameters(&self) -> usize {
        self.factors.iter().map(Array2::len).sum()
    }
}

/// The settings of [`cp_als`].
#[derive(Debug, Clone)]
pub struct CpConfig {
    /// The starts. The first is at the singular vectors of the unfoldings, the others are random.
    pub starts: usize,
    /// The sweeps over all modes for each start.
    pub iterations_max: usize,
    /// A start ends once a sweep changes its relative error by less than this share of it, and all
    /// end once the relative error is below this value.
    pub tolerance: f64,
    /// The weight of the pull towards the last iterate, as a share of the mean of the normal
    /// equations' diagonal, times the relative error.
    pub regularisation: f64,
}

impl Default for CpConfig {
    fn default() -> Self {
        Self { starts: 10, iterations_max: 1000, tolerance: 1e-8, regularisation: 0.1 }
    }
}

/// The CP decomposition of `tensor` with `rank` components: the best of several starts of
/// alternating least squares.
///
/// Each update solves A·(V + μI) = X₍ₙ₎·K + μA_last, with the Khatri-Rao product K of the other
/// factors and V = KᵀK. The pull μ fades with the error, so it keeps rank-deficient steps bounded
/// and leaves the solution unbiased. A tensor may have no best approximation (Kolda and Bader,
/// section 3.3), so the result is a local optimum, not the best one.
///
/// Source: Kolda and Bader, "Tensor decompositions and applications" (2009), section 3.4; Li,
/// Kindermann and Navasca, "Some convergence results on the regularized alternating least-squares
/// method for tensor decomposition" (2013).
///
/// # Errors
///
/// `Compression` if `tensor` is empty or not finite, or `rank` is 0 or above the product of all
/// sizes but the largest, at which every tensor is exact; `Setting` if a count is 0 or a number is
/// negative or not finite.
pub fn cp_als(
    tensor: ArrayViewD<f64>,
    rank: usize,
    config: &CpConfig,
    rng: &mut impl Rng,
) -> Result<Cp> {
    check_values(METHOD, tensor.shape(), tensor.iter().copied())?;
    let largest = tensor.shape().iter().copied().max().unwrap_or(1);
    check_rank(METHOD, "rank", rank, tensor.len() / largest)?;
    check_config(config)?;
    let unfoldings: Vec<Array2<f64>> =
        (0..tensor.ndim()).map(|mode| unfold(tensor.view(), mode)).collect();
    let scale = norm(&unfoldings[0]);
    if scale == 0.0 {
        let zeros = tensor.shape().iter().map(|size| Array2::zeros((*size, rank)));
        return Ok(Cp { factors: zeros.collect(), relative_error: 0.0 });
    }
    let unfoldings: Vec<Array2<f64>> = unfoldings.into_iter().map(|x| x / scale).collect();
    let mut best: Option<Cp> = None;
    for start in 0..config.starts {
        let factors = initial(&unfoldings, rank, start == 0, rng)?;
        let next = descend(&unfoldings, factors, config)?;
        if best.as_ref().is_none_or(|best| next.relative_error < best.relative_error) {
            best = Some(next);
        }
        if best.as_ref().is_some_and(|best| best.relative_error < config.tolerance) {
            break;
        }
    }
    let mut best = best.ok_or_else(|| bad(METHOD, "no start converged, expected one"))?;
    let share = scale.powf(1.0 / best.factors.len() as f64);
    best.factors.iter_mut().for_each(|factor| *factor *= share);
    Ok(best)
}

fn check_config(config: &CpConfig) -> Result<()> {
    for (name, value) in [("starts", config.starts), ("iterations_max", config.iterations_max)] {
        if value == 0 {
            return Err(Error::Setting { name, value: "0".into(), expected: "at least 1" });
        }
    }
    let numbers = [("tolerance", config.tolerance), ("regularisation", config.regularisation)];
    for (name, value) in numbers {
        if !value.is_finite() || value < 0.0 {
            let expected = "a finite number of at least 0";
            return Err(Error::Setting { name, value: value.to_string(), expected });
        }
    }
    Ok(())
}

/// Factors for a start: the leading left singular vectors of each unfolding, filled up with random
/// columns, or random columns alone.
fn initial(
    unfoldings: &[Array2<f64>],
    rank: usize,
    singular: bool,
    rng: &mut impl Rng,
) -> Result<Vec<Array2<f64>>> {
    let mut factors = Vec::with_capacity(unfoldings.len());
    for unfolding in unfoldings {
        let shape = (unfolding.nrows(), rank);
        let mut factor = Array2::from_shape_simple_fn(shape, || rng.random_range(-1.0..1.0));
        if singular {
            let u = svd(unfolding.view())?.u;
            let shared = rank.min(u.ncols());
            let columns = Slice::from(..shared);
            factor.slice_axis_mut(Axis(1), columns).assign(&u.slice_axis(Axis(1), columns));
        }
        factors.push(factor);
    }
    Ok(factors)
}

/// Alternating least squares from `factors` on, for a tensor of norm 1.
fn descend(
    unfoldings: &[Array2<f64>],
    mut factors: Vec<Array2<f64>>,
    config: &CpConfig,
) -> Result<Cp> {
    let mut error = 1.0_f64;
    for _ in 0..config.iterations_max {
        let mut next_error = error;
        for (mode, unfolding) in unfoldings.iter().enumerate() {
            let other = khatri_rao(&factors, mode);
            factors[mode] =
                update(unfolding, &other, &factors[mode], config.regularisation * error.min(1.0))?;
            if mode + 1 == unfoldings.len() {
                next_error = norm(&(unfolding - &factors[mode].dot(&other.t())));
            }
        }
        balance(&mut factors);
        let gain = error - next_error;
        error = next_error;
        if error < config.tolerance || gain.abs() < config.tolerance * error {
            break;
        }
    }
    Ok(Cp { factors, relative_error: error })
}

/// The factor A of A·(V + μI) = X·K + μ·`last`, with V = KᵀK and μ = `pull`·mean(diag V).
fn update(
    unfolding: &Array2<f64>,
    other: &Array2<f64>,
    last: &Array2<f64>,
    pull: f64,
) -> Result<Array2<f64>> {
    let normal = other.t().dot(other);
    let mean = (normal.diag().sum() / normal.nrows() as f64).max(f64::MIN_POSITIVE);
    let right = unfolding.dot(other);
    // The floor keeps the solve possible when components coincide. It does not move the solution.
    let mut pull = pull.max(1e-14);
    while pull < 1e3 {
        let mut damped = normal.clone();
        damped.diag_mut().mapv_inplace(|value| value + pull * mean);
        let pulled = &right + &(last * (pull * mean));
        if let Some(solution) = solve_positive(damped.view(), pulled.t())
            && solution.iter().all(|value| value.is_finite())
        {
            return Ok(solution.reversed_axes());
        }
        pull *= 100.0;
    }
    Err(bad(METHOD, "the least-squares step has no solution, expected a well-scaled tensor"))
}

/// The column-wise Kronecker product of all factors but `skipped`, [product of their sizes, R].
/// Its rows are in the order of the unfolding's columns.
fn khatri_rao(factors: &[Array2<f64>], skipped: usize) -> Array2<f64> {
    let rank = factors.first().map_or(1, Array2::ncols);
    let mut product = Array2::ones((1, rank));
    for (mode, factor) in factors.iter().enumerate() {
        if mode != skipped {
            let size = factor.nrows();
            product = Array2::from_shape_fn((product.nrows() * size, rank), |(row, column)| {
                product[[row / size, column]] * factor[[row % size, column]]
            });
        }
    }
    product
}

/// Gives the columns of each component equal norms, so that the pull weighs all modes alike.
fn balance(factors: &mut [Array2<f64>]) {
    let count = factors.len() as f64;
    let rank = factors.first().map_or(0, Array2::ncols);
    for component in 0..rank {
        let norms: Vec<f64> = factors
            .iter()
            .map(|factor| factor.column(component).iter().map(|value| value * value).sum::<f64>())
            .map(f64::sqrt)
            .collect();
        if norms.iter().any(|norm| *norm < 1e-100) {
            continue;
        }
        let mean = (norms.iter().map(|norm| norm.ln()).sum::<f64>() / count).exp();
        for (factor, norm) in factors.iter_mut().zip(norms) {
            factor.column_mut(component).mapv_inplace(|value| value * (mean / norm));
        }
    }
}

fn norm(matrix: &Array2<f64>) -> f64 {
    matrix.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests;
