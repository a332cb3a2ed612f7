//! The second-order estimate of the loss's change without a channel, from a diagonal Hessian.

use rand::Rng;

use super::{Importance, TiedTensor, refuse};
use crate::error::Result;

/// ½ Σ h·w² of each channel, with h the diagonal of the Hessian ("Optimal Brain Damage", LeCun et
/// al. 1989).
///
/// Without a diagonal, h is the square of the gradients, the Fisher information of one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HessianDiagonal;

impl Importance for HessianDiagonal {
    fn name(&self) -> &'static str {
        "hessian"
    }

    fn scores(&self, tensor: &TiedTensor<'_>, _rng: &mut dyn Rng) -> Result<Vec<f64>> {
        match (&tensor.hessian_diagonal, &tensor.gradients) {
            (Some(diagonal), _) => Ok(tensor.sum_with(diagonal, |w, h| 0.5 * h * w * w)),
            (None, Some(gradients)) => Ok(tensor.sum_with(gradients, |w, g| 0.5 * g * g * w * w)),
            (None, None) => Err(refuse("no Hessian and no gradients, expected one of them")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{filters, rng, tensor};
    use super::*;

    /// At the minimum of ½ Σ h (w − w₀)², the score is what the channel's removal costs.
    #[test]
    fn exact_for_a_diagonal_quadratic() {
        let (minimum, diagonal) = filters();
        let mut tied = tensor(&minimum, 0);
        assert!(HessianDiagonal.scores(&tied, &mut rng()).is_err());
        tied.hessian_diagonal = Some(diagonal.view());
        let scores = HessianDiagonal.scores(&tied, &mut rng()).unwrap();
        for (channel, score) in scores.iter().enumerate() {
            let mut without = minimum.clone();
            without.row_mut(channel).fill(0.0);
            let moved = (&without - &minimum).mapv(|d| d * d).into_dyn();
            assert!((f64::from(0.5 * (moved * &diagonal).sum()) - score).abs() < 1e-6);
        }
    }

    /// The squares of the gradients stand in for the diagonal.
    #[test]
    fn gradients_give_the_fisher_diagonal() {
        let (weights, gradients) = filters();
        let squares = gradients.mapv(|g| g * g);
        let (mut fisher, mut given) = (tensor(&weights, 0), tensor(&weights, 0));
        fisher.gradients = Some(gradients.view());
        given.hessian_diagonal = Some(squares.view());
        let scores = |tied| HessianDiagonal.scores(tied, &mut rng()).unwrap();
        assert_eq!(scores(&fisher), scores(&given));
    }
}
