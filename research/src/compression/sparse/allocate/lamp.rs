//! LAMP: magnitude in the units of what a layer has left.

use super::{Allocation, Layer, by_scores};
use crate::compression::sparse::pattern::lower_first;
use crate::error::Result;

/// Each layer's share of the lowest LAMP scores of all layers together ("Layer-adaptive Sparsity for
/// the Magnitude-based Pruning", Lee et al. 2021).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lamp;

impl Allocation for Lamp {
    fn name(&self) -> &'static str {
        "lamp"
    }

    fn allocate(&self, layers: &[Layer<'_>], sparsity: f64) -> Result<Vec<f64>> {
        by_scores(layers, sparsity, |weights| {
            let squares: Vec<f64> = weights.iter().map(|value| f64::from(*value).powi(2)).collect();
            lamp_scores(&squares)
        })
    }
}

/// Returns w_u² / Σ_v w_v² over the v that are not smaller than u, from the squares of a layer's
/// weights (the same paper).
///
/// The largest weight scores 1. Where that sum is zero the score is zero. Of equal weights the
/// later counts as smaller.
#[must_use]
pub fn lamp_scores(squares: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..squares.len()).collect();
    order.sort_unstable_by(|a, b| lower_first(squares, *a, *b));
    let mut scores = vec![0.0; squares.len()];
    let mut not_smaller = 0.0;
    for index in order.into_iter().rev() {
        not_smaller += squares[index];
        if not_smaller > 0.0 {
            scores[index] = squares[index] / not_smaller;
        }
    }
    scores
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::sparse::fixtures::uniform;

    /// The definition term by term.
    #[test]
    fn scores_equal_the_definition() {
        let squares: Vec<f64> = uniform(1, 50, 1).iter().map(|v| f64::from(*v).powi(2)).collect();
        let scores = lamp_scores(&squares);
        for (u, score) in squares.iter().zip(&scores) {
            let sum: f64 = squares.iter().filter(|v| *v >= u).sum();
            assert!((score - u / sum).abs() < 1e-14);
        }
        assert_eq!(scores.iter().copied().fold(0.0, f64::max), 1.0);
        assert_eq!(lamp_scores(&[0.0, 0.0]), [0.0, 0.0]);
    }

    /// The largest weight of a layer scores 1, so no layer collapses until one weight each is left,
    /// whatever the layers' scales are.
    #[test]
    fn each_layer_keeps_a_weight() {
        let weights = [uniform(1, 100, 2), uniform(1, 100, 3) * 1e-6, uniform(1, 100, 4) * 1e3];
        let layers: Vec<Layer> = weights
            .iter()
            .map(|w| Layer { shape: &[1, 100], weights: w.as_slice(), dense: false })
            .collect();
        assert_eq!(Lamp.allocate(&layers, 0.99).unwrap(), [0.99, 0.99, 0.99]);
        let half = Lamp.allocate(&layers, 0.5).unwrap();
        let scaled = [weights[0].clone(), uniform(1, 100, 3), uniform(1, 100, 4)];
        let scaled: Vec<Layer> = scaled
            .iter()
            .map(|w| Layer { shape: &[1, 100], weights: w.as_slice(), dense: false })
            .collect();
        assert_eq!(half, Lamp.allocate(&scaled, 0.5).unwrap());
    }
}
