//! Tests of the CP decomposition.

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::super::tensor::relative_error;
use super::*;

fn random(shape: &[usize], seed: u64) -> ArrayD<f64> {
    let mut rng = StdRng::seed_from_u64(seed);
    ArrayD::from_shape_simple_fn(shape, || rng.random_range(-1.0..1.0))
}

/// A tensor of `rank` random components.
fn planted(shape: &[usize], rank: usize, seed: u64) -> ArrayD<f64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let factors = shape
        .iter()
        .map(|size| Array2::from_shape_simple_fn((*size, rank), || rng.random_range(-1.0..1.0)));
    Cp { factors: factors.collect(), relative_error: 0.0 }.reconstruct()
}

/// The tensor of 2×2 matrix multiplication: C = A·B is C[i, k] = Σ_j A[i, j]·B[j, k].
fn matrix_multiplication() -> ArrayD<f64> {
    let mut tensor = ArrayD::zeros(vec![4, 4, 4]);
    for (i, j, k) in (0..8).map(|n| (n / 4, n / 2 % 2, n % 2)) {
        tensor[[2 * i + j, 2 * j + k, 2 * i + k]] = 1.0;
    }
    tensor
}

fn decompose(tensor: &ArrayD<f64>, rank: usize, config: &CpConfig) -> (Cp, f64) {
    let cp = cp_als(tensor.view(), rank, config, &mut StdRng::seed_from_u64(7)).unwrap();
    let error = relative_error(tensor.view(), cp.reconstruct().view());
    (cp, error)
}

// Strassen, "Gaussian elimination is not optimal" (1969): rank 7 is exact. Landsberg, "The border
// rank of the multiplication of 2×2 matrices is seven" (2006): rank 6 stays away from 0, and ends
// at an error of 1 of the norm √8.
#[test]
fn matrix_multiplication_has_rank_seven() {
    let tensor = matrix_multiplication();
    let (cp, error) = decompose(&tensor, 7, &CpConfig::default());
    assert!(error < 1e-7 && (error - cp.relative_error).abs() < 1e-9, "{error}");
    let (_, error) = decompose(&tensor, 6, &CpConfig::default());
    assert!((error * 8.0_f64.sqrt() - 1.0).abs() < 1e-4, "{error}");
}

// Kolda and Bader 2009, section 3.2: a CP decomposition of low rank is unique up to scale and
// order, so a planted one is found to rounding, and one component fewer leaves an error.
#[test]
fn planted_components_are_found() {
    let config = CpConfig { tolerance: 1e-13, ..CpConfig::default() };
    for (shape, rank) in [(vec![5, 4, 6], 1), (vec![3, 4, 2, 5], 1), (vec![6, 5, 7], 3)] {
        let tensor = planted(&shape, rank, 1);
        let (cp, error) = decompose(&tensor, rank, &config);
        assert!(error < 1e-12, "{error} of {shape:?}");
        assert_eq!(cp.parameters(), rank * shape.iter().sum::<usize>());
        if rank > 1 {
            assert!(decompose(&tensor, rank - 1, &config).1 > 1e-2);
        }
    }
}

// Eckart and Young 1936: for a matrix, the best CP is the truncated SVD.
#[test]
fn a_matrix_has_the_error_of_its_svd() {
    let tensor = random(&[6, 5], 2);
    let values = svd(unfold(tensor.view(), 0).view()).unwrap().singular_values.to_vec();
    for rank in [1, 2, 5] {
        let config = CpConfig { tolerance: 1e-12, starts: 1, ..CpConfig::default() };
        let (_, error) = decompose(&tensor, rank, &config);
        let expected = super::super::svd::tail_error(&values, rank);
        assert!((error - expected).abs() < 1e-9, "{error} and {expected} at {rank}");
    }
}

// The same seed gives the same factors, and the scale of the tensor does not matter.
#[test]
fn the_result_depends_on_the_seed_alone() {
    let tensor = random(&[4, 3, 5], 3);
    let config = CpConfig { starts: 2, iterations_max: 50, ..CpConfig::default() };
    let (first, error) = decompose(&tensor, 3, &config);
    assert_eq!(first.factors, decompose(&tensor, 3, &config).0.factors);
    let (_, scaled) = decompose(&(&tensor * 1e-6), 3, &config);
    assert!((error - scaled).abs() < 1e-9, "{error} and {scaled}");
}

#[test]
fn zero_constant_and_deficient_tensors_have_factors() {
    for (tensor, rank) in [
        (ArrayD::zeros(vec![3, 4, 2]), 2),
        (ArrayD::from_elem(vec![3, 4, 2], 5.0), 3),
        (planted(&[4, 3, 3], 2, 4), 5),
        (random(&[4], 5), 1),
    ] {
        let (cp, error) = decompose(&tensor, rank, &CpConfig::default());
        assert!(error < 1e-7, "{error} of {:?}", tensor.shape());
        assert!(cp.factors.iter().flatten().all(|value| value.is_finite()));
    }
}

#[test]
fn bad_input_is_an_error() {
    let good = random(&[3, 4, 2], 6);
    let mut broken = good.clone();
    broken[[0, 0, 1]] = f64::NAN;
    let empty = ArrayD::zeros(vec![3, 0]);
    let default = CpConfig::default();
    for (tensor, rank, config, part) in [
        (&good, 0, default.clone(), "rank is 0, expected 1 to 6"),
        (&good, 7, default.clone(), "rank is 7, expected 1 to 6"),
        (&broken, 1, default.clone(), "value 1 is NaN"),
        (&empty, 1, default.clone(), "shape is [3, 0]"),
        (&good, 1, CpConfig { starts: 0, ..default.clone() }, "starts is 0"),
        (&good, 1, CpConfig { iterations_max: 0, ..default.clone() }, "iterations_max is 0"),
        (&good, 1, CpConfig { tolerance: f64::NAN, ..default.clone() }, "tolerance is NaN"),
        (&good, 1, CpConfig { regularisation: -1.0, ..default }, "regularisation is -1"),
    ] {
        let mut rng = StdRng::seed_from_u64(1);
        let error = cp_als(tensor.view(), rank, &config, &mut rng).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
