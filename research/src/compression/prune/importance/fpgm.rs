//! How far a filter is from the others: one near their geometric median can be replaced by them.

use ndarray::{ArrayViewD, Axis};
use rand::Rng;

use super::{Importance, TiedTensor};
use crate::error::Result;

/// Σ_j ‖w_c − w_j‖₂ of each channel ("Filter Pruning via Geometric Median", He et al. 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fpgm;

impl Importance for Fpgm {
    fn name(&self) -> &'static str {
        "fpgm"
    }

    fn scores(&self, tensor: &TiedTensor<'_>, _rng: &mut dyn Rng) -> Result<Vec<f64>> {
        let channels: Vec<ArrayViewD<'_, f32>> =
            tensor.weights.axis_iter(Axis(tensor.axis)).collect();
        let mut scores = vec![0.0; channels.len()];
        for (i, a) in channels.iter().enumerate() {
            for (j, b) in channels.iter().enumerate().skip(i + 1) {
                let difference = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
                let distance = a.iter().zip(b).map(difference).sum::<f64>().sqrt();
                scores[i] += distance;
                scores[j] += distance;
            }
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{rng, tensor};
    use super::*;
    use ndarray::array;

    /// Distances by hand: the corners of a 3-4-5 triangle and the middle of its longest side.
    #[test]
    fn the_median_filter_scores_least() {
        let weights = array![[0.0_f32, 0.0], [3.0, 0.0], [0.0, 4.0], [1.5, 2.0]];
        let scores = Fpgm.scores(&tensor(&weights, 0), &mut rng()).unwrap();
        assert_eq!(scores, [3.0 + 4.0 + 2.5, 3.0 + 5.0 + 2.5, 4.0 + 5.0 + 2.5, 7.5]);
        // A shift of every filter has no part, though it changes every norm.
        let shifted = weights.mapv(|w| w + 16.0);
        assert_eq!(Fpgm.scores(&tensor(&shifted, 0), &mut rng()).unwrap(), scores);
    }
}
