//! The rank by empirical variational Bayes matrix factorisation, which has a closed form.

use super::super::check::{bad, check_rank};
use super::check_singular_values;
use crate::error::Result;

const METHOD: &str = "choose a rank by EVBMF";

/// The result of [`evbmf`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evbmf {
    /// The count of singular values above the threshold. It is 0 if the matrix looks like noise.
    pub rank: usize,
    /// The estimated variance of each entry's noise.
    pub noise_variance: f64,
    /// The threshold that a singular value must reach.
    pub threshold: f64,
}

/// The rank of a [`rows`, `columns`] matrix that is of low rank plus Gaussian noise of unknown
/// variance, from all its min(rows, columns) singular values.
///
/// With L = min, M = max, α = L/M and τ the zero of Φ(τ) + Φ(τ/α), Φ(z) = ln(z + 1)/z − ½, a
/// singular value counts if γ² ≥ M·σ²·(1 + τ)·(1 + α/τ). The variance σ² minimises the free energy.
///
/// Source: Nakajima et al., "Global analytic solution of fully-observed variational Bayesian matrix
/// factorization" (2013), and Nakajima et al., "Perfect dimensionality recovery by variational
/// Bayesian PCA" (2012) for the threshold and the bounds of σ².
///
/// # Errors
///
/// `Compression` if a size is 0, or the singular values are not min(rows, columns) finite numbers
/// in falling order.
pub fn evbmf(singular_values: &[f64], rows: usize, columns: usize) -> Result<Evbmf> {
    check_singular_values(singular_values)?;
    let (small, large) = (rows.min(columns), rows.max(columns));
    check_rank(METHOD, "the smaller size", small, usize::MAX)?;
    if singular_values.len() != small {
        let found = singular_values.len();
        return Err(bad(METHOD, format!("{found} singular values, expected {small}")));
    }
    let largest = singular_values[0];
    if largest == 0.0 {
        return Ok(Evbmf { rank: 0, noise_variance: 0.0, threshold: 0.0 });
    }
    // Values at rounding level stand for that level, so that a matrix without noise has a logarithm.
    let floor = f64::EPSILON * large as f64;
    let energies: Vec<f64> =
        singular_values.iter().map(|value| (value / largest).max(floor).powi(2)).collect();
    let alpha = small as f64 / large as f64;
    let tau = tau_zero(alpha);
    let edge = (1.0 + tau) * (1.0 + alpha / tau);
    let variance = noise_variance(&energies, large as f64, alpha, edge);
    let threshold = (large as f64 * variance * edge).sqrt();
    let rank = energies.iter().filter(|energy| energy.sqrt() >= threshold).count();
    Ok(Evbmf { rank, noise_variance: variance * largest * largest, threshold: threshold * largest })
}

/// The zero of Φ(τ) + Φ(τ/α), by bisection. It lies between 2.5129·α and 2.5129, as Φ falls.
fn tau_zero(alpha: f64) -> f64 {
    let phi = |z: f64| z.ln_1p() / z - 0.5;
    let (mut low, mut high) = (alpha, 3.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if phi(middle) + phi(middle / alpha) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// The variance σ² that minimises the free energy Σ ψ(γ²/(M·σ²)). At most ⌈L/(1 + α)⌉ − 1 singular
/// values can count, so the others bound σ² from below, and all of them from above.
///
/// A grid over ln σ² finds the lowest valley, as the energy may have several.
fn noise_variance(energies: &[f64], large: f64, alpha: f64, edge: f64) -> f64 {
    let count = energies.len();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / (large * values.len() as f64);
    let upper = mean(energies);
    let first_noise = ((count as f64 / (1.0 + alpha)).ceil() as usize).clamp(1, count) - 1;
    let lower = (energies[first_noise] / (large * edge)).max(mean(&energies[first_noise..]));
    let energy = |log: f64| {
        let variance = log.exp();
        energies.iter().map(|value| psi(value / (large * variance), alpha, edge)).sum::<f64>()
    };
    let (low, high) = (lower.ln(), upper.ln());
    let steps = 200;
    let step = (high - low) / f64::from(steps);
    let at = |index: i32| low + step * f64::from(index);
    let best = (0..=steps).min_by(|a, b| energy(at(*a)).total_cmp(&energy(at(*b)))).unwrap_or(0);
    golden_section(energy, at((best - 1).max(0)), at((best + 1).min(steps))).exp()
}

/// ψ(x) = x − ln x, plus ln(τ + 1) + α·ln(τ/α + 1) − τ where a component of that strength counts.
fn psi(x: f64, alpha: f64, edge: f64) -> f64 {
    let base = x - x.ln();
    if x <= edge {
        return base;
    }
    let shifted = x - (1.0 + alpha);
    let tau = 0.5 * (shifted + (shifted * shifted - 4.0 * alpha).max(0.0).sqrt());
    base + tau.ln_1p() + alpha * (tau / alpha).ln_1p() - tau
}

/// A minimum of `function` between `low` and `high`.
fn golden_section(function: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    let ratio = 0.5 * (5.0_f64.sqrt() - 1.0);
    for _ in 0..60 {
        let (left, right) = (high - ratio * (high - low), low + ratio * (high - low));
        if function(left) < function(right) {
            high = right;
        } else {
            low = left;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::super::svd::svd;
    use super::*;

    fn normal(rows: usize, columns: usize, rng: &mut StdRng) -> Array2<f64> {
        Array2::from_shape_simple_fn((rows, columns), || {
            let (radius, angle): (f64, f64) = (rng.random(), rng.random());
            (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        })
    }

    fn planted(rows: usize, columns: usize, rank: usize, noise: f64, seed: u64) -> Array2<f64> {
        let mut rng = StdRng::seed_from_u64(seed);
        let signal = normal(rows, rank, &mut rng).dot(&normal(rank, columns, &mut rng));
        signal + normal(rows, columns, &mut rng) * noise
    }

    // Nakajima 2012: at α = 1 the zero of Φ is 2.5129, and τ is about 2.5129·√α.
    #[test]
    fn the_threshold_constant_is_the_published_one() {
        assert!((tau_zero(1.0) - 2.5129).abs() < 1e-4, "{}", tau_zero(1.0));
        for alpha in [0.1, 0.3, 0.6] {
            let ratio = tau_zero(alpha) / (2.5129 * alpha.sqrt());
            assert!((ratio - 1.0).abs() < 0.05, "{ratio} at {alpha}");
        }
    }

    // Nakajima 2012: EVBMF recovers the rank and the noise of low rank plus noise.
    #[test]
    fn a_planted_rank_is_found() {
        for (rows, columns, rank, noise) in [
            (60, 100, 5, 0.5),
            (100, 60, 5, 0.5),
            (80, 80, 10, 1.0),
            (40, 200, 1, 2.0),
            (60, 100, 0, 1.0),
        ] {
            let matrix = planted(rows, columns, rank, noise, 1);
            let values = svd(matrix.view()).unwrap().singular_values.to_vec();
            let result = evbmf(&values, rows, columns).unwrap();
            assert_eq!(result.rank, rank, "{rows}x{columns}");
            let ratio = result.noise_variance / (noise * noise);
            assert!((ratio - 1.0).abs() < 0.1, "{ratio} of {rows}x{columns}");
        }
    }

    // A component below the threshold is not told from noise.
    #[test]
    fn a_weak_component_is_noise() {
        let matrix = planted(60, 100, 5, 100.0, 2);
        let values = svd(matrix.view()).unwrap().singular_values.to_vec();
        assert_eq!(evbmf(&values, 60, 100).unwrap().rank, 0);
    }

    #[test]
    fn matrices_without_noise_have_their_rank() {
        let exact = planted(20, 30, 3, 0.0, 3);
        for (matrix, rank) in
            [(exact, 3), (Array2::from_elem((5, 4), 2.0), 1), (Array2::zeros((5, 4)), 0)]
        {
            let values = svd(matrix.view()).unwrap().singular_values.to_vec();
            let (rows, columns) = matrix.dim();
            assert_eq!(evbmf(&values, rows, columns).unwrap().rank, rank);
        }
    }

    #[test]
    fn bad_input_is_an_error() {
        for (values, rows, columns) in
            [(&[][..], 0, 4), (&[1.0], 2, 2), (&[1.0, f64::NAN], 2, 2), (&[1.0, 2.0], 2, 2)]
        {
            assert!(evbmf(values, rows, columns).is_err(), "{values:?}");
        }
    }
}
