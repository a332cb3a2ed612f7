//! Activation-aware weight quantisation: columns that meet large inputs are scaled up before they
//! are rounded, and the largest weights of a group are clipped. "AWQ: Activation-aware Weight
//! Quantization for LLM Compression and Acceleration" (2023).

use super::grid::Grid;
use super::nearest::round_nearest;
use super::quantized::check_weight;
use super::rounding::needed;
use super::scale::{scale_columns, unscale_rows};
use crate::compression::inputs::{Inputs, output_error};
use crate::error::Result;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Slice};

/// Exponents tried are i/20; clippings tried are 1 − i/20 down to a half.
const STEPS: u8 = 20;

/// What the search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Awq {
    /// The exponent a of s = E|x|^a; at 0 no column is scaled.
    pub exponent: f32,
    /// s, `[k]`, normalised so that √(max·min) = 1. The layer before divides its outputs by s.
    pub scales: Vec<f32>,
    /// W diag(s) with clipped groups, `[n, k]`, to be rounded to nearest.
    pub weight: Array2<f32>,
    /// tr(D H Dᵀ) of the rounded weight, in terms of the inputs before the scaling.
    pub error: f64,
}

/// Searches the exponent of the scales, then a clipping for each group, for the least error of
/// round to nearest. The result is never worse than the weight as it is.
///
/// # Errors
/// Fails if the weight is empty or not finite, or the inputs are of another width.
pub fn awq(w: ArrayView2<f32>, grid: &Grid, inputs: &Inputs) -> Result<Awq> {
    const METHOD: &str = "search scales by AWQ";
    check_weight(METHOD, w)?;
    needed(METHOD, Some(inputs), w.ncols())?;
    let mut best = attempt(w, grid, inputs, 0.0)?;
    for i in 1..=STEPS {
        let found = attempt(w, grid, inputs, f32::from(i) / f32::from(STEPS))?;
        if found.error < best.error {
            best = found;
        }
    }
    let mut clipped = best.clone();
    clip(&mut clipped, grid, inputs.hessian());
    clipped.error = rounding_error(w, &clipped, grid, inputs)?;
    Ok(if clipped.error < best.error { clipped } else { best })
}

fn attempt(w: ArrayView2<f32>, grid: &Grid, inputs: &Inputs, exponent: f32) -> Result<Awq> {
    let scales = scales(inputs.mean_abs(), exponent);
    let mut weight = w.to_owned();
    scale_columns(&mut weight, &scales)?;
    let mut found = Awq { exponent, scales, weight, error: 0.0 };
    found.error = rounding_error(w, &found, grid, inputs)?;
    Ok(found)
}

fn scales(mean_abs: &[f32], exponent: f32) -> Vec<f32> {
    let largest = mean_abs.iter().fold(0f32, |m, &v| m.max(v));
    if largest == 0.0 {
        return vec![1.0; mean_abs.len()];
    }
    // Inputs that are almost always 0 must not have a scale of almost 0.
    let powers = mean_abs.iter().map(|&v| (v / largest).max(1e-4).powf(exponent));
    let least = powers.clone().fold(1f32, f32::min);
    powers.map(|s| s / least.sqrt()).collect()
}

fn rounding_error(w: ArrayView2<f32>, found: &Awq, grid: &Grid, inputs: &Inputs) -> Result<f64> {
    let mut rounded = round_nearest(found.weight.view(), grid).dequantize().reversed_axes();
    unscale_rows(&mut rounded, &found.scales)?;
    output_error(w, rounded.t(), inputs.hessian())
}

/// Clips each group to that share of its largest magnitude which has the least error under the
/// group's own block of diag(1/s) H diag(1/s).
fn clip(found: &mut Awq, grid: &Grid, h: &Array2<f32>) {
    let len = grid.group_len(found.weight.ncols());
    for (group, mut columns) in found.weight.axis_chunks_iter_mut(Axis(1), len).enumerate() {
        let range = Slice::from(group * len..group * len + columns.ncols());
        let block = h.slice_axis(Axis(0), range);
        let mut block = block.slice_axis(Axis(1), range).to_owned();
        let part = ArrayView1::from(&found.scales);
        let part = part.slice_axis(Axis(0), range);
        block.rows_mut().into_iter().for_each(|mut row| row /= &part);
        block.columns_mut().into_iter().for_each(|mut column| column /= &part);
        for mut row in columns.rows_mut() {
            let limit = best_limit(row.view(), grid, &block);
            row.mapv_inplace(|v| v.clamp(-limit, limit));
        }
    }
}

fn best_limit(row: ArrayView1<f32>, grid: &Grid, block: &Array2<f32>) -> f32 {
    let largest = row.iter().fold(0f32, |m, v| m.max(v.abs()));
    let mut best = (f32::INFINITY, largest);
    for i in 0..=STEPS / 2 {
        let limit = largest * (1.0 - f32::from(i) / f32::from(STEPS));
        let clipped = row.mapv(|v| v.clamp(-limit, limit));
        let params = grid.fit(clipped.iter().copied());
        let d: Array1<f32> = &row - &clipped.mapv(|v| params.value(params.code(v)));
        let error = d.dot(&block.dot(&d));
        if error < best.0 {
            best = (error, limit);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng};
    use super::super::grid::Scheme;
    use super::*;

    /// With a few inputs that are 30 times larger, scaling lowers the error of 3 and 4 bits by more
    /// than half of round to nearest's; the reported error is that of the returned weight.
    #[test]
    fn outlier_inputs() {
        let mut rng = rng(31);
        let (w, mut x) = (gaussian(32, 64, &mut rng), gaussian(256, 64, &mut rng));
        for j in [5, 40] {
            x.column_mut(j).mapv_inplace(|v| v * 30.0);
        }
        let mut inputs = Inputs::new(64, false);
        inputs.add(x.view(), None).unwrap();
        for bits in [3, 4] {
            let grid = Grid::new(bits, Some(32), Scheme::Asymmetric).unwrap();
            let plain = round_nearest(w.view(), &grid).dequantize();
            let plain = output_error(w.view(), plain.view(), inputs.hessian()).unwrap();
            let found = awq(w.view(), &grid, &inputs).unwrap();
            println!(
                "awq {bits} bits: {:.3} of nearest, a {}",
                found.error / plain,
                found.exponent
            );
            assert!(found.error < 0.5 * plain && found.exponent > 0.0);
            let product = found.scales.iter().fold(f32::MIN, |m, &s| m.max(s))
                * found.scales.iter().fold(f32::MAX, |m, &s| m.min(s));
            assert!((product - 1.0).abs() < 1e-4);
            let again = rounding_error(w.view(), &found, &grid, &inputs).unwrap();
            assert_eq!(again, found.error);
        }
    }

    /// Where all inputs are alike, clipping remains, and the result is at least as good as nearest.
    #[test]
    fn white_inputs() {
        let w = gaussian(16, 64, &mut rng(32));
        let inputs = Inputs::from_hessian(Array2::eye(64)).unwrap();
        let grid = Grid::new(3, None, Scheme::Restricted).unwrap();
        let plain = round_nearest(w.view(), &grid).error(w.view()).unwrap();
        let found = awq(w.view(), &grid, &inputs).unwrap();
        assert!(found.scales.iter().all(|&s| s == 1.0) && found.error < 0.9 * plain);
        assert!(awq(w.view(), &grid, &Inputs::new(3, false)).is_err());
        // Without any input there is nothing to weigh by.
        assert_eq!(awq(w.view(), &grid, &Inputs::new(64, false)).unwrap().exponent, 0.0);
    }
}
