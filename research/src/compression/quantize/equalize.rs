//! Equalisation of the channels between two layers. "Data-Free Quantization Through Weight
//! Equalization and Bias Correction" (2019).

use super::quantized::check_weight;
use super::scale::{scale_columns, unscale_rows};
use crate::error::{Error, Result};
use ndarray::{Array2, ArrayView1};

/// Divides the outputs of the first layer by s and multiplies the inputs of the second by s, so that
/// channel i has the same range in both: s_i = √(r1 r2) / r2, r1 the largest magnitude of row i of
/// the first weight and r2 that of column i of the second.
///
/// The function of both layers stays the same where the activation between them is positively
/// homogeneous, f(s·x) = s·f(x) for s > 0, as are ReLU and the identity. A channel with a range of 0
/// has s = 1. The result is s.
///
/// # Errors
/// Fails if the first weight has other rows than the second has columns or the bias has values, or a
/// weight is empty or not finite.
pub fn equalize(
    first: &mut Array2<f32>,
    bias: Option<&mut [f32]>,
    second: &mut Array2<f32>,
) -> Result<Vec<f32>> {
    const METHOD: &str = "equalise two layers";
    check_weight(METHOD, first.view())?;
    check_weight(METHOD, second.view())?;
    let channels = first.nrows();
    let biases = bias.as_ref().map_or(channels, |b| b.len());
    if second.ncols() != channels || biases != channels {
        let columns = second.ncols();
        let message = format!("{columns} columns and {biases} biases, expected {channels} of each");
        return Err(Error::Compression { method: METHOD, message });
    }
    let largest = |part: ArrayView1<f32>| part.iter().fold(0f32, |m, v| m.max(v.abs()));
    let ranges =
        first.rows().into_iter().map(largest).zip(second.columns().into_iter().map(largest));
    let factor = |(r1, r2): (f32, f32)| {
        let s = (r1 / r2).sqrt();
        if s.is_normal() { s } else { 1.0 }
    };
    let s: Vec<f32> = ranges.map(factor).collect();
    unscale_rows(first, &s)?;
    scale_columns(second, &s)?;
    if let Some(bias) = bias {
        bias.iter_mut().zip(&s).for_each(|(b, s)| *b /= s);
    }
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng};
    use super::*;

    /// Both ranges of a channel become √(r1 r2), and the layers' function with ReLU between them
    /// stays the same.
    #[test]
    fn same_function_with_equal_ranges() {
        let mut rng = rng(41);
        let (mut first, mut second) = (gaussian(10, 6, &mut rng), gaussian(4, 10, &mut rng));
        first.row_mut(2).mapv_inplace(|v| v * 1000.0);
        second.column_mut(7).mapv_inplace(|v| v * 50.0);
        first.row_mut(5).fill(0.0);
        let mut bias: Vec<f32> = (0..10).map(|i| i as f32 * 0.1 - 0.5).collect();
        let x = gaussian(6, 20, &mut rng);
        let forward = |first: &Array2<f32>, bias: &[f32], second: &Array2<f32>| {
            let bias = Array2::from_shape_fn((10, 20), |(i, _)| bias[i]);
            second.dot(&(first.dot(&x) + bias).mapv(|v| v.max(0.0)))
        };
        let before = forward(&first, &bias, &second);
        let s = equalize(&mut first, Some(&mut bias), &mut second).unwrap();
        let after = forward(&first, &bias, &second);
        let scale = before.fold(0f32, |m, v| m.max(v.abs()));
        assert!((&after - &before).iter().all(|d| d.abs() < 1e-5 * scale));
        let largest = |part: ArrayView1<f32>| part.iter().fold(0f32, |m, v| m.max(v.abs()));
        for i in (0..10).filter(|&i| i != 5) {
            let ratio = largest(first.row(i)) / largest(second.column(i));
            assert!((ratio - 1.0).abs() < 1e-5, "{i} {ratio}");
        }
        assert_eq!(s[5], 1.0);
        // A second time there is nothing left to do.
        let again = equalize(&mut first, None, &mut second).unwrap();
        assert!(again.iter().all(|s| (s - 1.0).abs() < 1e-5));
        assert!(equalize(&mut second, None, &mut first).is_err());
    }
}
