//! The tensor train form of a linear layer's matrix: rows and columns are split into modes, and
//! each core holds one mode of each.

use ndarray::{Array2, ArrayView2, IxDyn};

use super::super::check::{bad, check_count, check_rank, check_values};
use super::super::tensor::{matrix_from, tensor_from};
use super::{TensorTrain, tt_svd};
use crate::error::Result;

const METHOD: &str = "take the tensor train form of a matrix";

/// A matrix W [n, k] with n = Π nᵢ and k = Π kᵢ as a tensor train whose core i has the mode
/// (row i, column i) of size nᵢ·kᵢ, the row varying slowest.
#[derive(Debug, Clone)]
pub struct TensorTrainMatrix {
    /// The cores, [r_{i−1}, nᵢ·kᵢ, rᵢ].
    pub train: TensorTrain,
    /// The row modes nᵢ.
    pub row_modes: Vec<usize>,
    /// The column modes kᵢ.
    pub column_modes: Vec<usize>,
}

impl TensorTrainMatrix {
    /// The matrix that the cores stand for, [n, k]. Their shapes must match the modes, as those of
    /// [`tensor_train_matrix`] do.
    pub fn reconstruct(&self) -> Array2<f64> {
        let count = self.row_modes.len();
        let pairs: Vec<usize> =
            self.row_modes.iter().zip(&self.column_modes).flat_map(|(n, k)| [*n, *k]).collect();
        let values = self.train.reconstruct().iter().copied().collect();
        let axes: Vec<usize> =
            (0..count).map(|i| 2 * i).chain((0..count).map(|i| 2 * i + 1)).collect();
        let tensor = tensor_from(&pairs, values).permuted_axes(IxDyn(&axes));
        let rows = self.row_modes.iter().product();
        let columns = self.column_modes.iter().product();
        matrix_from(rows, columns, tensor.iter().copied().collect())
    }

    /// The count of numbers in the cores.
    pub fn parameters(&self) -> usize {
        self.train.parameters()
    }
}

/// The tensor train form of `weight` [n, k] with the inner ranks `ranks`.
///
/// Source: Novikov et al., "Tensorizing neural networks" (2015), section 3.1.
///
/// # Errors
///
/// `Compression` if `weight` is empty or not finite, if the modes do not multiply to n and k or
/// differ in count, or if a rank is out of bounds as in [`tt_svd`].
pub fn tensor_train_matrix(
    weight: ArrayView2<f32>,
    row_modes: &[usize],
    column_modes: &[usize],
    ranks: &[usize],
) -> Result<TensorTrainMatrix> {
    check_values(METHOD, weight.shape(), weight.iter().copied())?;
    check_count(METHOD, "column modes", column_modes.len(), row_modes.len())?;
    for (name, modes, size) in
        [("row", row_modes, weight.nrows()), ("column", column_modes, weight.ncols())]
    {
        if modes.is_empty() || product(modes) != Some(size) {
            return Err(bad(
                METHOD,
                format!("{name} modes are {modes:?}, expected product {size}"),
            ));
        }
    }
    let count = row_modes.len();
    let shape: Vec<usize> = row_modes.iter().chain(column_modes).copied().collect();
    let axes: Vec<usize> = (0..count).flat_map(|i| [i, count + i]).collect();
    let values = weight.iter().map(|value| f64::from(*value)).collect();
    let tensor = tensor_from(&shape, values).permuted_axes(IxDyn(&axes));
    let merged: Vec<usize> = row_modes.iter().zip(column_modes).map(|(n, k)| n * k).collect();
    let tensor = tensor_from(&merged, tensor.iter().copied().collect());
    Ok(TensorTrainMatrix {
        train: tt_svd(tensor.view(), ranks)?,
        row_modes: row_modes.to_vec(),
        column_modes: column_modes.to_vec(),
    })
}

/// The count of numbers in the cores of a tensor train form: Σ r_{i−1}·nᵢ·kᵢ·rᵢ.
///
/// Source: Novikov et al., "Tensorizing neural networks" (2015), section 3.1.
///
/// # Errors
///
/// `Compression` if the modes differ in count or have a 0, if `ranks` has not one entry fewer than
/// the modes, or if a rank is 0.
pub fn tensor_train_matrix_parameters(
    row_modes: &[usize],
    column_modes: &[usize],
    ranks: &[usize],
) -> Result<usize> {
    check_count(METHOD, "column modes", column_modes.len(), row_modes.len())?;
    check_count(METHOD, "ranks", ranks.len() + 1, row_modes.len())?;
    let mut parameters = 0;
    let mut left = 1;
    for (index, (row, column)) in row_modes.iter().zip(column_modes).enumerate() {
        let right = ranks.get(index).copied().unwrap_or(1);
        for (name, value) in [("row mode", *row), ("column mode", *column), ("rank", right)] {
            check_rank(METHOD, name, value, usize::MAX)?;
        }
        let core = product(&[left, *row, *column, right]);
        let sum = core.and_then(|core| core.checked_add(parameters));
        parameters = sum.ok_or_else(|| bad(METHOD, "the parameter count is too large to hold"))?;
        left = right;
    }
    Ok(parameters)
}

/// The product of `sizes`, or `None` if it is too large to hold.
fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size))
}

#[cfg(test)]
mod tests {
    use ndarray::linalg::kron;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn random(rows: usize, columns: usize, seed: u64) -> Array2<f32> {
        let mut rng = StdRng::seed_from_u64(seed);
        Array2::from_shape_simple_fn((rows, columns), || rng.random_range(-1.0..1.0))
    }

    fn error(weight: &Array2<f32>, approximation: &Array2<f64>) -> f64 {
        let weight = weight.mapv(f64::from);
        let square = |matrix: &Array2<f64>| matrix.iter().map(|value| value * value).sum::<f64>();
        (square(&(&weight - approximation)) / square(&weight)).sqrt()
    }

    // Novikov et al. 2015, table 2, TT4, TT2 and TT1 of VGG's 25088×4096 layer, with the modes
    // (2, 7, 8, 8, 7, 4) and (4, 4, 4, 4, 4, 4).
    #[test]
    fn the_vgg_layer_shrinks_as_published() {
        for (rank, parameters, ratio) in [(4, 2016, 50_972), (2, 528, 194_622), (1, 144, 713_614)] {
            let counted =
                tensor_train_matrix_parameters(&[2, 7, 8, 8, 7, 4], &[4; 6], &[rank; 5]).unwrap();
            assert_eq!(counted, parameters);
            assert_eq!((25_088.0 * 4096.0 / counted as f64).round() as usize, ratio);
        }
    }

    // The count by arithmetic is the count in the cores.
    #[test]
    fn the_count_is_that_of_the_cores() {
        let weight = random(24, 30, 1);
        for ranks in [[1, 1], [2, 3], [6, 5]] {
            let form = tensor_train_matrix(weight.view(), &[2, 3, 4], &[3, 5, 2], &ranks).unwrap();
            let counted = tensor_train_matrix_parameters(&[2, 3, 4], &[3, 5, 2], &ranks).unwrap();
            assert_eq!(form.parameters(), counted);
            assert_eq!(form.reconstruct().dim(), (24, 30));
        }
    }

    // The entries of a Kronecker product A⊗B⊗C are products of one entry of each, so its TT ranks
    // are 1; full ranks are exact for any matrix.
    #[test]
    fn kronecker_products_have_rank_one() {
        let (a, b, c) = (random(2, 3, 2), random(3, 5, 3), random(4, 2, 4));
        let product = kron(&kron(&a, &b), &c);
        let any = random(24, 30, 5);
        for (weight, ranks, exact) in
            [(&product, [1, 1], true), (&any, [6, 8], true), (&any, [1, 1], false)]
        {
            let form = tensor_train_matrix(weight.view(), &[2, 3, 4], &[3, 5, 2], &ranks).unwrap();
            assert_eq!(error(weight, &form.reconstruct()) < 1e-6, exact, "{ranks:?}");
        }
    }

    #[test]
    fn bad_input_is_an_error() {
        let weight = random(6, 4, 6);
        for (rows, columns, ranks, part) in [
            (vec![2, 3], vec![4], vec![1], "1 column modes, expected 2"),
            (vec![2, 2], vec![2, 2], vec![1], "row modes are [2, 2], expected product 6"),
            (vec![2, 3], vec![2, 3], vec![1], "column modes are [2, 3], expected product 4"),
            (vec![2, 3], vec![2, 2], vec![], "0 ranks, expected 1"),
            (vec![2, 3], vec![2, 2], vec![5], "rank 1 is 5, expected 1 to 4"),
            (vec![], vec![], vec![], "row modes are [], expected product 6"),
        ] {
            let error = tensor_train_matrix(weight.view(), &rows, &columns, &ranks).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!(tensor_train_matrix_parameters(&[2, 3], &[2, 2], &[0]).is_err());
        assert!(tensor_train_matrix_parameters(&[usize::MAX, 3], &[2, 2], &[1]).is_err());
    }
}
