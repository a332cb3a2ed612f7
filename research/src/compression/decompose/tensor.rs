//! Unfolding, folding and products of dense N-way tensors, as TensorLy defines them: the mode-n
//! unfolding has mode n as rows and the other modes, in their order, as columns.

use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewD, Axis, IxDyn};

/// The axes with `mode` moved to the front.
fn mode_first(dimensions: usize, mode: usize) -> Vec<usize> {
    std::iter::once(mode).chain((0..dimensions).filter(|axis| *axis != mode)).collect()
}

/// The mode-`mode` unfolding: [n_mode, product of the other sizes].
pub(super) fn unfold(tensor: ArrayViewD<f64>, mode: usize) -> Array2<f64> {
    let rows = tensor.len_of(Axis(mode));
    let columns = tensor.len() / rows.max(1);
    let axes = mode_first(tensor.ndim(), mode);
    let values: Vec<f64> = tensor.permuted_axes(IxDyn(&axes)).iter().copied().collect();
    matrix_from(rows, columns, values)
}

/// The tensor of `shape` whose mode-`mode` unfolding is `unfolding`.
pub(super) fn fold(unfolding: Array2<f64>, mode: usize, shape: &[usize]) -> ArrayD<f64> {
    let axes = mode_first(shape.len(), mode);
    let front: Vec<usize> = axes.iter().map(|axis| shape[*axis]).collect();
    let mut back = vec![0; axes.len()];
    for (position, axis) in axes.iter().enumerate() {
        back[*axis] = position;
    }
    let moved = tensor_from(&front, unfolding.iter().copied().collect());
    moved.permuted_axes(IxDyn(&back)).as_standard_layout().into_owned()
}

/// The mode-`mode` product: `matrix` [m, n_mode] applied to each fibre of `tensor`.
pub(super) fn mode_dot(
    tensor: ArrayViewD<f64>,
    matrix: ArrayView2<f64>,
    mode: usize,
) -> ArrayD<f64> {
    let mut shape = tensor.shape().to_vec();
    shape[mode] = matrix.nrows();
    fold(matrix.dot(&unfold(tensor, mode)), mode, &shape)
}

/// `values` in row-major order as a matrix. The caller guarantees rows·columns values.
pub(super) fn matrix_from(rows: usize, columns: usize, values: Vec<f64>) -> Array2<f64> {
    debug_assert_eq!(values.len(), rows * columns);
    Array2::from_shape_vec((rows, columns), values)
        .unwrap_or_else(|_| Array2::zeros((rows, columns)))
}

/// `values` in row-major order as a tensor. The caller guarantees as many values as `shape` has.
pub(super) fn tensor_from(shape: &[usize], values: Vec<f64>) -> ArrayD<f64> {
    debug_assert_eq!(values.len(), shape.iter().product::<usize>());
    ArrayD::from_shape_vec(IxDyn(shape), values).unwrap_or_else(|_| ArrayD::zeros(IxDyn(shape)))
}

/// ‖`tensor` − `approximation`‖/‖`tensor`‖ in the Frobenius norm: 0 if both are zero, infinite if
/// only `tensor` is. The caller guarantees equal shapes.
pub(super) fn relative_error(tensor: ArrayViewD<f64>, approximation: ArrayViewD<f64>) -> f64 {
    let norm = tensor.iter().map(|value| value * value).sum::<f64>().sqrt();
    let pairs = tensor.iter().zip(approximation.iter());
    let error = pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    if error == 0.0 { 0.0 } else { error / norm }
}

#[cfg(test)]
pub(super) mod tests {
    use ndarray::Dimension;

    use super::*;

    /// The Hilbert tensor 1/(i + j + k + 1) of 20³.
    pub(in super::super) fn hilbert() -> ArrayD<f64> {
        ArrayD::from_shape_fn(IxDyn(&[20; 3]), |index| {
            1.0 / (index.slice().iter().sum::<usize>() + 1) as f64
        })
    }

    /// sin(x₁ + x₂ + …) on the grid xᵢ = 0, 1, ….
    pub(in super::super) fn sine(shape: &[usize]) -> ArrayD<f64> {
        ArrayD::from_shape_fn(IxDyn(shape), |index| {
            (index.slice().iter().sum::<usize>() as f64).sin()
        })
    }

    // TensorLy's documented example: unfoldings of arange(24) as [3, 4, 2].
    #[test]
    fn unfoldings_are_those_of_tensorly() {
        let tensor = tensor_from(&[3, 4, 2], (0..24).map(f64::from).collect());
        let first_rows: [&[f64]; 3] = [
            &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
            &[0.0, 1.0, 8.0, 9.0, 16.0, 17.0],
            &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0],
        ];
        for (mode, expected) in first_rows.iter().enumerate() {
            let unfolding = unfold(tensor.view(), mode);
            assert_eq!(unfolding.row(0).to_vec(), *expected);
            assert_eq!(fold(unfolding, mode, &[3, 4, 2]), tensor);
        }
    }

    // Kolda and Bader, "Tensor decompositions and applications" (2009), section 2.5: Y = X ×ₙ U
    // means Y₍ₙ₎ = U·X₍ₙ₎.
    #[test]
    fn mode_products_sum_over_the_mode() {
        let tensor = tensor_from(&[2, 3, 2], (0..12).map(f64::from).collect());
        let matrix = matrix_from(1, 3, vec![1.0, 10.0, 100.0]);
        let product = mode_dot(tensor.view(), matrix.view(), 1);
        assert_eq!(product.shape(), [2, 1, 2]);
        assert_eq!(product.iter().copied().collect::<Vec<_>>(), [420.0, 531.0, 1086.0, 1197.0]);
    }
}
