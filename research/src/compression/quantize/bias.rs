//! Correction of the mean error that a rounded weight adds to a layer's outputs. "Data-Free
//! Quantization Through Weight Equalization and Bias Correction" (2019).

use crate::error::{Error, Result};
use ndarray::{ArrayView1, ArrayView2};

/// The correction −(Ŵ − W)·E(x), `[n]`, which is added to the layer's bias: E(Ŵ x + correction) =
/// E(W x).
///
/// # Errors
/// Fails if the shapes do not fit, or a result is not finite.
pub fn bias_correction(
    w: ArrayView2<f32>,
    what: ArrayView2<f32>,
    mean: &[f32],
) -> Result<Vec<f32>> {
    let refuse = |message| Err(Error::Compression { method: "correct a bias", message });
    if what.dim() != w.dim() || mean.len() != w.ncols() {
        let (w, what, mean) = (w.shape(), what.shape(), mean.len());
        return refuse(format!("weights of shapes {w:?} and {what:?} with {mean} means"));
    }
    let correction = (&w - &what).dot(&ArrayView1::from(mean)).to_vec();
    if let Some(value) = correction.iter().find(|v| !v.is_finite()) {
        return refuse(format!("correction {value}, expected finite weights and means"));
    }
    Ok(correction)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng};
    use super::super::grid::{Grid, Scheme};
    use super::super::nearest::round_nearest;
    use super::*;
    use crate::compression::inputs::Inputs;

    /// The mean of Ŵ x + correction over the calibration rows is the mean of W x.
    #[test]
    fn means_agree() {
        let mut rng = rng(51);
        let (w, x) = (gaussian(6, 12, &mut rng), gaussian(40, 12, &mut rng) + 1.0);
        let mut inputs = Inputs::new(12, false);
        inputs.add(x.view(), None).unwrap();
        let grid = Grid::new(2, None, Scheme::Asymmetric).unwrap();
        let what = round_nearest(w.view(), &grid).dequantize();
        let correction = bias_correction(w.view(), what.view(), inputs.mean()).unwrap();
        let mean = |w: &ndarray::Array2<f32>| x.dot(&w.t()).mean_axis(ndarray::Axis(0)).unwrap();
        let rest = mean(&w) - mean(&what) - ndarray::Array1::from(correction.clone());
        assert!(rest.iter().all(|d| d.abs() < 1e-5) && correction.iter().any(|c| c.abs() > 0.1));
        assert!(bias_correction(w.view(), what.view(), &[0.0; 3]).is_err());
        assert!(bias_correction(w.view(), what.view(), &[f32::NAN; 12]).is_err());
    }
}
