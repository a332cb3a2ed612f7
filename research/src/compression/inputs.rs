//! Statistics of a layer's inputs over a calibration set, and the error of a rounded weight under
//! them.

use crate::error::{Error, Result};
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, Axis, Zip};

const METHOD: &str = "gather statistics of inputs";

/// Rows of a weight whose error is computed at once; bounds the memory of the product.
const ROWS: usize = 64;

/// Means over the rows x of a calibration set, for a layer of k inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    rows: usize,
    hessian: Array2<f32>,
    cross: Option<Array2<f32>>,
    mean: Vec<f32>,
    mean_abs: Vec<f32>,
    max_abs: Vec<f32>,
}

impl Inputs {
    /// Statistics of no rows yet, for a layer of `k` inputs.
    ///
    /// With `mismatch`, each row comes in two versions: x̃, as the layers before the rounded ones
    /// and rounded activations give it, and x, as the float model gives it.
    pub fn new(k: usize, mismatch: bool) -> Self {
        let square = || Array2::zeros((k, k));
        let zeros = || vec![0f32; k];
        let cross = mismatch.then(square);
        let (mean, mean_abs, max_abs) = (zeros(), zeros(), zeros());
        Self { rows: 0, hessian: square(), cross, mean, mean_abs, max_abs }
    }

    /// Statistics of rows x `[rows, k]`.
    ///
    /// # Errors
    /// Fails if there are no rows or columns, or a value is not finite.
    pub fn of(x: ArrayView2<f32>) -> Result<Self> {
        if x.is_empty() {
            return Err(refuse(format!(
                "inputs of shape {:?}, expected rows and columns",
                x.shape()
            )));
        }
        let mut inputs = Self::new(x.ncols(), false);
        inputs.add(x, None)?;
        Ok(inputs)
    }

    /// Statistics of which only the Hessian is known; `mean_abs` is the root of its diagonal.
    ///
    /// # Errors
    /// Fails unless the Hessian is square, finite and has no negative diagonal value.
    pub fn from_hessian(hessian: Array2<f32>) -> Result<Self> {
        let k = hessian.nrows();
        let diagonal = hessian.diag().to_vec();
        let whole = hessian.is_square() && k > 0 && hessian.iter().all(|v| v.is_finite());
        if !whole || diagonal.iter().any(|&d| d < 0.0) {
            let shape = hessian.shape();
            return Err(refuse(format!(
                "Hessian of shape {shape:?}, expected a square of finite values, none below 0 on the \
                 diagonal"
            )));
        }
        let root: Vec<f32> = diagonal.iter().map(|d| d.sqrt()).collect();
        let (mean, mean_abs, max_abs) = (vec![0.0; k], root.clone(), root);
        Ok(Self { rows: 1, hessian, cross: None, mean, mean_abs, max_abs })
    }

    /// Adds rows x̃ `[rows, k]`, and the same rows x of the float model where the statistics were
    /// made for a mismatch.
    ///
    /// # Errors
    /// Fails if a shape differs, a value is not finite, or x is missing or not expected.
    pub fn add(&mut self, rounded: ArrayView2<f32>, float: Option<ArrayView2<f32>>) -> Result<()> {
        if float.is_some() != self.cross.is_some() {
            let (found, expected) = (float.is_some(), self.cross.is_some());
            return Err(refuse(format!("float inputs given is {found}, expected {expected}")));
        }
        let count = rounded.nrows();
        for x in [Some(rounded), float].into_iter().flatten() {
            if x.dim() != (count, self.width()) {
                let (found, expected) = (x.shape(), [count, self.width()]);
                return Err(refuse(format!("inputs of shape {found:?}, expected {expected:?}")));
            }
            if let Some(value) = x.iter().find(|v| !v.is_finite()) {
                return Err(refuse(format!("input has the value {value}, expected finite values")));
            }
        }
        if count == 0 {
            return Ok(());
        }
        let all = (self.rows + count) as f32;
        let (new, old) = (1.0 / all, self.rows as f32 / all);
        general_mat_mul(new, &rounded.t(), &rounded, old, &mut self.hessian);
        if let (Some(cross), Some(float)) = (&mut self.cross, float) {
            general_mat_mul(new, &rounded.t(), &float, old, cross);
        }
        for (j, column) in rounded.columns().into_iter().enumerate() {
            let (sum, sum_abs) = column.iter().fold((0f64, 0f64), |(sum, sum_abs), &x| {
                (sum + f64::from(x), sum_abs + f64::from(x.abs()))
            });
            self.mean[j] = old * self.mean[j] + new * sum as f32;
            self.mean_abs[j] = old * self.mean_abs[j] + new * sum_abs as f32;
            self.max_abs[j] = column.iter().fold(self.max_abs[j], |max, x| max.max(x.abs()));
        }
        self.rows += count;
        let products = self.hessian.diag();
        if !products.iter().chain(self.cross.iter().flatten()).all(|v| v.is_finite()) {
            return Err(refuse("products of inputs are too large, expected below 3.4e38".into()));
        }
        Ok(())
    }

    /// The rows that were added; 1 where only the Hessian is known.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs k of the layer.
    pub fn width(&self) -> usize {
        self.mean.len()
    }

    /// H = E[x̃ x̃ᵀ], `[k, k]`.
    pub fn hessian(&self) -> &Array2<f32> {
        &self.hessian
    }

    /// G = E[x̃ xᵀ], `[k, k]`; `None` where x̃ and x are the same.
    pub fn cross(&self) -> Option<&Array2<f32>> {
        self.cross.as_ref()
    }

    /// E[x̃], `[k]`.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// E|x̃|, `[k]`.
    pub fn mean_abs(&self) -> &[f32] {
        &self.mean_abs
    }

    /// max|x̃|, `[k]`.
    pub fn max_abs(&self) -> &[f32] {
        &self.max_abs
    }
}

/// tr(D H Dᵀ) of the difference D = W − Ŵ: the mean squared error of the layer's outputs, summed
/// over the outputs.
///
/// # Errors
/// Fails if the shapes do not fit.
pub fn output_error(w: ArrayView2<f32>, what: ArrayView2<f32>, h: &Array2<f32>) -> Result<f64> {
    let k = w.ncols();
    if what.dim() != w.dim() || h.dim() != (k, k) {
        let (w, what, h) = (w.shape(), what.shape(), h.shape());
        return Err(refuse(format!("weights of shapes {w:?} and {what:?} with a Hessian {h:?}")));
    }
    let mut total = 0f64;
    for (w, what) in w.axis_chunks_iter(Axis(0), ROWS).zip(what.axis_chunks_iter(Axis(0), ROWS)) {
        let d = &w - &what;
        Zip::from(&d.dot(h)).and(&d).for_each(|&a, &b| total += f64::from(a) * f64::from(b));
    }
    Ok(total)
}

fn refuse(message: String) -> Error {
    Error::Compression { method: METHOD, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::quantize::fixtures::{gaussian, rng};
    use ndarray::Slice;

    /// Rows in two parts have the means of all rows, and tr(D H Dᵀ) is the mean of |D x|².
    #[test]
    fn means_over_rows() {
        let mut rng = rng(1);
        let (x, float) = (gaussian(50, 7, &mut rng), gaussian(50, 7, &mut rng));
        let mut inputs = Inputs::new(7, true);
        for part in [Slice::from(..20), Slice::from(20..)] {
            let [x, float] = [&x, &float].map(|x| x.slice_axis(Axis(0), part));
            inputs.add(x, Some(float)).unwrap();
        }
        let close = |a: &Array2<f32>, b: Array2<f32>| (a - b).iter().all(|d| d.abs() < 1e-5);
        assert!(close(inputs.hessian(), x.t().dot(&x) / 50.0));
        assert!(close(inputs.cross().unwrap(), x.t().dot(&float) / 50.0));
        let column = x.column(3);
        assert!((inputs.mean()[3] - column.sum() / 50.0).abs() < 1e-6);
        assert!((inputs.mean_abs()[3] - column.mapv(f32::abs).sum() / 50.0).abs() < 1e-6);
        assert_eq!(inputs.max_abs()[3], column.iter().fold(0f32, |m, v| m.max(v.abs())));

        let (w, what) = (gaussian(100, 7, &mut rng), gaussian(100, 7, &mut rng));
        let outputs = x.dot(&(&w - &what).t());
        let expected = f64::from(outputs.mapv(|v| v * v).sum()) / 50.0;
        let found = output_error(w.view(), what.view(), inputs.hessian()).unwrap();
        assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let x = Array2::<f32>::ones((2, 3));
        let mut plain = Inputs::new(3, false);
        assert!(plain.add(x.view(), Some(x.view())).is_err());
        assert!(Inputs::new(3, true).add(x.view(), None).is_err());
        assert!(plain.add(Array2::ones((2, 4)).view(), None).is_err());
        assert!(plain.add((x.clone() * f32::NAN).view(), None).is_err());
        assert!(Inputs::new(3, false).add((x.clone() * 1e30).view(), None).is_err());
        assert!(Inputs::from_hessian(Array2::ones((2, 3))).is_err());
        assert!(Inputs::from_hessian(Array2::eye(2) * -1.0).is_err());
        assert!(output_error(x.view(), x.view(), &Array2::eye(2)).is_err());
    }
}
