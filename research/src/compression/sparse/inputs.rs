//! What the calibration inputs say about a layer: H, the mean of x xᵀ, and gradients if given.

use ndarray::{Array1, Array2, ArrayView2};

use super::refuse;
use crate::error::Result;

const METHOD: &str = "summarise calibration inputs";

/// Statistics of a layer's calibration inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    hessian: Array2<f64>,
    rows: usize,
    gradients: Option<Array2<f32>>,
}

impl Inputs {
    /// Statistics of inputs `x`, `[rows, k]`.
    ///
    /// # Errors
    /// Returns an error if there are no rows or columns, or if a value is not finite.
    pub fn from_rows(x: ArrayView2<'_, f32>) -> Result<Self> {
        let hessian = Array2::zeros((x.ncols(), x.ncols()));
        let mut inputs = Self { hessian, rows: 0, gradients: None };
        inputs.add(x)?;
        Ok(inputs)
    }

    /// Statistics from H, `[k, k]`, the mean of x xᵀ over `rows` inputs.
    ///
    /// # Errors
    /// Returns an error if H is not square, finite and symmetric, if it has a negative diagonal,
    /// or if it or `rows` is empty.
    pub fn from_hessian(hessian: Array2<f64>, rows: usize) -> Result<Self> {
        if hessian.is_empty() || !hessian.is_square() || rows == 0 {
            let shape = hessian.shape();
            let found = format!("H has shape {shape:?} from {rows} rows, expected [k, k] and rows");
            return Err(refuse(METHOD, found));
        }
        let scale = hessian.diag().iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        for ((i, j), value) in hessian.indexed_iter() {
            if !value.is_finite() || (i == j && *value < 0.0) {
                let found = format!("H at [{i}, {j}] is {value}, expected finite, diagonal >= 0");
                return Err(refuse(METHOD, found));
            }
            if (value - hessian[[j, i]]).abs() > 1e-6 * scale {
                let other = hessian[[j, i]];
                let found = format!("H at [{i}, {j}] is {value} but {other} across the diagonal");
                return Err(refuse(METHOD, found));
            }
        }
        Ok(Self { hessian, rows, gradients: None })
    }

    /// Adds inputs `x`, `[rows, k]`, to the mean.
    ///
    /// # Errors
    /// Returns an error if there are no rows, if k differs, or if a value is not finite.
    pub fn add(&mut self, x: ArrayView2<'_, f32>) -> Result<()> {
        if x.is_empty() || x.ncols() != self.features() {
            let found =
                format!("inputs of shape {:?}, expected [rows, {}]", x.shape(), self.features());
            return Err(refuse(METHOD, found));
        }
        if let Some((at, value)) = x.indexed_iter().find(|(_, value)| !value.is_finite()) {
            return Err(refuse(METHOD, format!("the input at {at:?} is {value}, expected finite")));
        }
        let x = x.mapv(f64::from);
        let rows = self.rows + x.nrows();
        self.hessian *= self.rows as f64 / rows as f64;
        self.hessian.scaled_add(1.0 / rows as f64, &x.t().dot(&x));
        self.rows = rows;
        Ok(())
    }

    /// Adds the gradients of a regional loss, root mean square over samples, shaped as the weight.
    ///
    /// # Errors
    /// Returns an error if the columns are not k or a value is not finite.
    pub fn with_gradients(mut self, gradients: Array2<f32>) -> Result<Self> {
        if gradients.ncols() != self.features() || !gradients.iter().all(|g| g.is_finite()) {
            let (shape, k) = (gradients.shape(), self.features());
            let found = format!("gradients of shape {shape:?}, expected [n, {k}] and finite");
            return Err(refuse(METHOD, found));
        }
        self.gradients = Some(gradients);
        Ok(self)
    }

    /// The number of columns, k.
    #[must_use]
    pub fn features(&self) -> usize {
        self.hessian.ncols()
    }

    /// H, the mean of x xᵀ, `[k, k]`.
    #[must_use]
    pub fn hessian(&self) -> ArrayView2<'_, f64> {
        self.hessian.view()
    }

    /// The gradients, if given.
    #[must_use]
    pub fn gradients(&self) -> Option<ArrayView2<'_, f32>> {
        self.gradients.as_ref().map(|gradients| gradients.view())
    }

    /// ‖x_j‖₂ over the rows, `[k]`: √(rows · H_jj).
    #[must_use]
    pub fn column_norms(&self) -> Array1<f64> {
        self.hessian.diag().mapv(|value| (value * self.rows as f64).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::uniform;
    use super::*;
    use ndarray::{Axis, array};

    /// H in two unequal batches is H at once, and equals its definition.
    #[test]
    fn the_mean_is_independent_of_batches() {
        let x = uniform(50, 6, 1);
        let whole = Inputs::from_rows(x.view()).unwrap();
        let mut parts = Inputs::from_rows(x.view().split_at(Axis(0), 7).0).unwrap();
        parts.add(x.view().split_at(Axis(0), 7).1).unwrap();
        for ((i, j), h) in whole.hessian().indexed_iter() {
            let mean: f64 =
                x.rows().into_iter().map(|r| f64::from(r[i]) * f64::from(r[j])).sum::<f64>() / 50.0;
            assert!((h - mean).abs() < 1e-12);
            assert!((parts.hessian()[[i, j]] - mean).abs() < 1e-12);
        }
        let norm = x.column(2).iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        assert!((whole.column_norms()[2] - norm).abs() < 1e-12);
    }

    #[test]
    fn bad_inputs_are_errors() {
        assert!(Inputs::from_rows(Array2::zeros((0, 3)).view()).is_err());
        assert!(Inputs::from_rows(Array2::zeros((3, 0)).view()).is_err());
        assert!(Inputs::from_rows(array![[f32::NAN]].view()).is_err());
        assert!(Inputs::from_hessian(array![[1.0, 0.5], [0.2, 1.0]], 1).is_err());
        assert!(Inputs::from_hessian(array![[-1.0]], 1).is_err());
        assert!(Inputs::from_hessian(array![[1.0, 0.0]], 1).is_err());
        let inputs = Inputs::from_hessian(array![[1.0]], 1).unwrap();
        assert!(inputs.with_gradients(array![[1.0, 2.0]]).is_err());
    }
}
