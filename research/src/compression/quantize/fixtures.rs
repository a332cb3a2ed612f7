//! Weights, inputs and measures that the tests of several files share.

use ndarray::{Array2, ArrayView2};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The generator of a test.
pub(in crate::compression) fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// One sample of N(0, 1) by the transform of Box and Muller.
pub(super) fn normal(rng: &mut StdRng) -> f32 {
    let u: f64 = 1.0 - rng.random::<f64>();
    let v: f64 = rng.random::<f64>();
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}

/// A matrix of samples of N(0, 1).
pub(in crate::compression) fn gaussian(n: usize, k: usize, rng: &mut StdRng) -> Array2<f32> {
    Array2::from_shape_simple_fn((n, k), || normal(rng))
}

/// The covariance of a stationary AR(1) process of variance 1: H_ij = ρ^|i − j|.
pub(super) fn ar1(k: usize, rho: f32) -> Array2<f32> {
    Array2::from_shape_fn((k, k), |(i, j)| rho.powi(i.abs_diff(j) as i32))
}

/// 10·log10 of the signal's power over the error's.
pub(super) fn sqnr_db(w: ArrayView2<f32>, what: ArrayView2<f32>) -> f64 {
    let (mut signal, mut noise) = (0f64, 0f64);
    for (&a, &b) in w.iter().zip(&what) {
        signal += f64::from(a).powi(2);
        noise += (f64::from(a) - f64::from(b)).powi(2);
    }
    10.0 * (signal / noise).log10()
}
