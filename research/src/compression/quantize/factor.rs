//! The triangular factor of a damped inverse Hessian, in one working copy of the matrix.

use crate::error::{Error, Result};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{
    LltParams, LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::{MatMut, Par, Spec, get_global_parallelism};
use ndarray::Array2;

/// Columns below which a triangle is inverted by plain loops.
const SMALL: usize = 16;

/// The damping λ = fraction · mean of the Hessian's diagonal.
pub(super) fn damping(h: &Array2<f32>, fraction: f32) -> f32 {
    let sum: f64 = h.diag().iter().map(|&d| f64::from(d)).sum();
    (f64::from(fraction) * sum / h.nrows() as f64) as f32
}

/// The upper triangular U with (H + λI)⁻¹ = Uᵀ U, where H's rows and columns are taken in the given
/// order. The lower half of the result is 0.
///
/// # Errors
/// Fails if H + λI is not positive definite.
pub(super) fn inverse_factor(
    method: &'static str,
    h: &Array2<f32>,
    order: &[usize],
    lambda: f32,
) -> Result<Array2<f32>> {
    let k = order.len();
    // With J the reversal of an order, J (H + λI) J = L Lᵀ gives U = J L⁻¹ J.
    let mut work = Array2::from_shape_fn((k, k), |(i, j)| {
        h[[order[k - 1 - i], order[k - 1 - j]]] + if i == j { lambda } else { 0.0 }
    });
    let not_definite = || {
        let message = format!(
            "Hessian with damping {lambda} is not positive definite, expected more rows of inputs \
             or more damping"
        );
        Error::Compression { method, message }
    };
    let slice = work.as_slice_mut().ok_or_else(not_definite)?;
    let par = get_global_parallelism();
    let params = Spec::<LltParams, f32>::default();
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f32>(k, par, params));
    let mut lower = MatMut::from_column_major_slice_mut(slice, k, k);
    let regularization = LltRegularization::default();
    let stack = MemStack::new(&mut memory);
    cholesky_in_place(lower.as_mut(), regularization, par, stack, params)
        .map_err(|_| not_definite())?;
    invert_lower(lower, par);
    // The column-major L⁻¹ is the row-major transpose; reversing both axes and transposing is a
    // reflection at the other diagonal.
    for i in 0..k {
        for j in 0..k {
            let (a, b) = (k - 1 - j, k - 1 - i);
            if (i, j) < (a, b) {
                work.swap([i, j], [a, b]);
            }
            if i > j {
                work[[i, j]] = 0.0;
            }
        }
    }
    if !work.iter().all(|v| v.is_finite()) {
        return Err(not_definite());
    }
    Ok(work)
}

/// Replaces the lower triangle by its inverse: with blocks A, B, C the block B becomes −C⁻¹ B A⁻¹.
fn invert_lower(mut l: MatMut<'_, f32>, par: Par) {
    let k = l.nrows();
    if k <= SMALL {
        for j in 0..k {
            l[(j, j)] = 1.0 / l[(j, j)];
            for i in j + 1..k {
                let sum: f32 = (j..i).map(|m| l[(i, m)] * l[(m, j)]).sum();
                l[(i, j)] = -sum / l[(i, i)];
            }
        }
        return;
    }
    let (a, _, mut b, c) = l.split_at_mut(k / 2, k / 2);
    solve_lower_triangular_in_place(c.as_ref(), b.as_mut(), par);
    solve_upper_triangular_in_place(a.as_ref().transpose(), b.as_mut().transpose_mut(), par);
    for j in 0..b.ncols() {
        for i in 0..b.nrows() {
            b[(i, j)] = -b[(i, j)];
        }
    }
    invert_lower(a, par);
    invert_lower(c, par);
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{ar1, gaussian, rng};
    use super::*;

    /// U (H + λI) Uᵀ = I for a permuted H, at sizes around the block that plain loops invert.
    #[test]
    fn factors_the_inverse() {
        for k in [1, 2, 16, 17, 33, 100] {
            let x = gaussian(3 * k, k, &mut rng(k as u64));
            let h = x.t().dot(&x) / (3 * k) as f32;
            let order: Vec<usize> = (0..k).map(|i| (i * 7 + 3) % k).collect();
            let order = if k % 7 == 0 { (0..k).collect() } else { order };
            let u = inverse_factor("test", &h, &order, 0.1).unwrap();
            let permuted = Array2::from_shape_fn((k, k), |(i, j)| {
                h[[order[i], order[j]]] + if i == j { 0.1 } else { 0.0 }
            });
            let identity = u.dot(&permuted).dot(&u.t()) - Array2::<f32>::eye(k);
            assert!(identity.iter().all(|v| v.abs() < 1e-4), "{k}");
            assert!((0..k).all(|i| (0..i).all(|j| u[[i, j]] == 0.0)));
        }
    }

    /// The inverse of an AR(1) covariance has the known variance of x_i given the later values:
    /// 1/U_ii² = 1 − ρ², and 1 for the last.
    #[test]
    fn diagonal_is_the_conditional_variance() {
        let order: Vec<usize> = (0..20).collect();
        let u = inverse_factor("test", &ar1(20, 0.5), &order, 0.0).unwrap();
        for i in 0..20 {
            let expected = if i == 19 { 1.0 } else { 0.75 };
            assert!((1.0 / u[[i, i]].powi(2) - expected).abs() < 1e-5, "{i}");
        }
    }

    #[test]
    fn refuses_what_is_not_definite() {
        let h = Array2::<f32>::zeros((3, 3));
        assert!(inverse_factor("test", &h, &[0, 1, 2], damping(&h, 0.01)).is_err());
    }
}
