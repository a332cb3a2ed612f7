//! SmoothQuant: a factor per input that moves the difficulty of rounding from activations with
//! outliers to weights. "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large
//! Language Models" (2022).

use super::quantized::check_weight;
use crate::error::{Error, Result};
use ndarray::ArrayView2;

const METHOD: &str = "smooth activations";

/// s_j = max|x_j|^α / max|w_j|^(1−α) (equation 4 of the paper), `[k]`. The layer before divides its
/// outputs by s, and every weight `[n, k]` that reads them takes W diag(s)
/// ([`scale_columns`](super::scale_columns)); the columns' maxima are over all these weights.
///
/// An input or a column that is always 0 has s = 1.
///
/// # Errors
/// Fails if α is not in 0..=1, there is no weight, a width is not that of `max_abs`, or a value is
/// not finite.
pub fn smooth_quant(max_abs: &[f32], weights: &[ArrayView2<f32>], alpha: f32) -> Result<Vec<f32>> {
    if !(0.0..=1.0).contains(&alpha) {
        let value = alpha.to_string();
        return Err(Error::Setting { name: "alpha", value, expected: "0 to 1" });
    }
    let refuse = |message| Err(Error::Compression { method: METHOD, message });
    if weights.is_empty() {
        return refuse("no weights, expected at least one".to_string());
    }
    if let Some(value) = max_abs.iter().find(|v| !v.is_finite() || **v < 0.0) {
        return refuse(format!("input magnitude {value}, expected finite values, at least 0"));
    }
    let mut columns = vec![0f32; max_abs.len()];
    for w in weights {
        check_weight(METHOD, *w)?;
        if w.ncols() != max_abs.len() {
            let (found, expected) = (w.ncols(), max_abs.len());
            return refuse(format!("weight of {found} columns, expected {expected}"));
        }
        for row in w.rows() {
            columns.iter_mut().zip(row).for_each(|(m, v)| *m = m.max(v.abs()));
        }
    }
    let factor = |(&x, w): (&f32, f32)| {
        let s = x.powf(alpha) / w.powf(1.0 - alpha);
        if x > 0.0 && w > 0.0 && s.is_normal() { s } else { 1.0 }
    };
    Ok(max_abs.iter().zip(columns).map(factor).collect())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng};
    use super::super::scale::{scale_columns, to_powers_of_two, unscale_rows};
    use super::*;

    /// W diag(s) (diag(1/s) x) equals W x: bit for bit for powers of two, else within roundings.
    #[test]
    fn identity_before_rounding() {
        let mut rng = rng(21);
        let (w, mut x) = (gaussian(8, 16, &mut rng), gaussian(16, 5, &mut rng));
        x.row_mut(3).mapv_inplace(|v| v * 100.0);
        let max: Vec<f32> =
            x.rows().into_iter().map(|r| r.iter().fold(0f32, |m, v| m.max(v.abs()))).collect();
        let exact = w.dot(&x);
        for power in [true, false] {
            let mut s = smooth_quant(&max, &[w.view()], 0.5).unwrap();
            if power {
                to_powers_of_two(&mut s);
            }
            let (mut scaled, mut smooth) = (w.clone(), x.clone());
            scale_columns(&mut scaled, &s).unwrap();
            unscale_rows(&mut smooth, &s).unwrap();
            assert_ne!(scaled, w);
            let error = (scaled.dot(&smooth) - &exact).fold(0f32, |m, v| m.max(v.abs()));
            assert!(if power { error == 0.0 } else { error < 1e-3 }, "{power} {error}");
        }
    }

    /// At α = ½ the maxima of x_j / s_j and of column j of W diag(s) are equal.
    #[test]
    fn half_splits_the_range_evenly() {
        let mut rng = rng(22);
        let weights = [gaussian(4, 6, &mut rng), gaussian(7, 6, &mut rng) * 3.0];
        let max = [0.5, 1.0, 2.0, 80.0, 0.01, 4.0];
        let s = smooth_quant(&max, &weights.each_ref().map(|w| w.view()), 0.5).unwrap();
        for j in 0..6 {
            let column = weights.iter().flat_map(|w| w.column(j).to_vec());
            let column = column.fold(0f32, |m, v| m.max(v.abs())) * s[j];
            assert!((max[j] / s[j] / column - 1.0).abs() < 1e-5, "{j}");
        }
    }

    #[test]
    fn edges() {
        let w = ndarray::arr2(&[[1.0f32, 0.0, 2.0]]);
        assert_eq!(smooth_quant(&[0.0, 3.0, 4.0], &[w.view()], 1.0).unwrap(), [1.0, 1.0, 4.0]);
        assert!(smooth_quant(&[1.0; 3], &[w.view()], 1.5).is_err());
        assert!(smooth_quant(&[1.0; 2], &[w.view()], 0.5).is_err());
        assert!(smooth_quant(&[f32::NAN; 3], &[w.view()], 0.5).is_err());
        assert!(smooth_quant(&[], &[], 0.5).is_err());
        assert!(scale_columns(&mut w.clone(), &[1.0, 0.0, 1.0]).is_err());
        assert!(unscale_rows(&mut w.clone(), &[1.0, 1.0]).is_err());
    }
}
