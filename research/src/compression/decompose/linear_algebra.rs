//! Conversions between ndarray and faer, and the two solves that the decompositions need.

use faer::linalg::solvers::Solve;
use faer::{Mat, MatRef, Side};
use ndarray::{Array2, ArrayView2};

/// A copy of `matrix` for faer, in f64.
pub(super) fn to_faer<T: Copy + Into<f64>>(matrix: ArrayView2<T>) -> Mat<f64> {
    Mat::from_fn(matrix.nrows(), matrix.ncols(), |row, column| matrix[[row, column]].into())
}

/// A copy of `matrix` for ndarray.
pub(super) fn from_faer(matrix: MatRef<f64>) -> Array2<f64> {
    Array2::from_shape_fn((matrix.nrows(), matrix.ncols()), |(row, column)| matrix[(row, column)])
}

/// The lower factor L of `matrix` = L·Lᵀ, or `None` if `matrix` is not positive definite.
pub(super) fn cholesky(matrix: ArrayView2<f64>) -> Option<Array2<f64>> {
    let factor = to_faer(matrix).llt(Side::Lower).ok()?;
    Some(from_faer(factor.L()))
}

/// X of `matrix`·X = `right` for a symmetric positive definite `matrix`, or `None` if it is not.
pub(super) fn solve_positive(
    matrix: ArrayView2<f64>,
    right: ArrayView2<f64>,
) -> Option<Array2<f64>> {
    let factor = to_faer(matrix).llt(Side::Lower).ok()?;
    Some(from_faer(factor.solve(to_faer(right)).as_ref()))
}

/// X of Lᵀ·X = `right` for the lower triangular `lower` = L.
pub(super) fn solve_lower_transposed(
    lower: ArrayView2<f64>,
    right: ArrayView2<f64>,
) -> Array2<f64> {
    let mut solution = to_faer(right);
    let lower = to_faer(lower);
    lower.transpose().solve_upper_triangular_in_place(solution.as_mut());
    from_faer(solution.as_ref())
}
