//! The first-order estimate of the loss's change without a channel.

use rand::Rng;

use super::{Importance, TiedTensor, refuse};
use crate::error::Result;

/// |Σ g·w| of each channel ("Importance Estimation for Neural Network Pruning", Molchanov et al.
/// 2019, there squared).
///
/// It is exact for a loss that is linear in the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taylor;

impl Importance for Taylor {
    fn name(&self) -> &'static str {
        "taylor"
    }

    fn scores(&self, tensor: &TiedTensor<'_>, _rng: &mut dyn Rng) -> Result<Vec<f64>> {
        let gradients =
            tensor.gradients.as_ref().ok_or_else(|| refuse("no gradients, expected gradients"))?;
        Ok(tensor.sum_with(gradients, |w, g| w * g).into_iter().map(f64::abs).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{filters, rng, tensor};
    use super::*;

    /// The loss Σ g·w is linear, so the score is how far it moves when the channel goes.
    #[test]
    fn exact_for_a_linear_loss() {
        let (weights, gradients) = filters();
        let loss = |w: &ndarray::Array2<f32>| f64::from((&w.view().into_dyn() * &gradients).sum());
        let mut tied = tensor(&weights, 0);
        assert!(Taylor.scores(&tied, &mut rng()).is_err());
        tied.gradients = Some(gradients.view());
        let scores = Taylor.scores(&tied, &mut rng()).unwrap();
        for (channel, score) in scores.iter().enumerate() {
            let mut without = weights.clone();
            without.row_mut(channel).fill(0.0);
            assert!(((loss(&weights) - loss(&without)).abs() - score).abs() < 1e-6);
        }
        assert_eq!(scores, [1.0, 1.0, 2.0, 1.0]);
    }
}
