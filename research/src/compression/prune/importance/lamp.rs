//! LAMP for channels: a channel's energy in the units of what is left.

use rand::Rng;

use super::{Importance, TiedTensor};
use crate::compression::sparse::lamp_scores;
use crate::error::Result;

/// The LAMP score of each channel's Σ w² ("Layer-adaptive Sparsity for the Magnitude-based
/// Pruning", Lee et al. 2021).
///
/// The strongest channel scores 1 in each tensor. The scores are already comparable across groups,
/// so they are not normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LampImportance;

impl Importance for LampImportance {
    fn name(&self) -> &'static str {
        "lamp"
    }

    fn scores(&self, tensor: &TiedTensor<'_>, _rng: &mut dyn Rng) -> Result<Vec<f64>> {
        let energy =
            tensor.by_channel(|weights| weights.iter().map(|w| f64::from(*w).powi(2)).sum());
        Ok(lamp_scores(&energy))
    }

    fn normalise(&self, _scores: &mut [f64]) {}
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{filters, rng, tensor};
    use super::super::group_importance;
    use super::*;

    /// Energies [25, 2, 0.25, 8] by hand; the scale has no part.
    #[test]
    fn scores_by_hand() {
        let (weights, _) = filters();
        let scores = LampImportance.scores(&tensor(&weights, 0), &mut rng()).unwrap();
        assert_eq!(scores, [1.0, 2.0 / 35.0, 0.25 / 35.25, 8.0 / 33.0]);
        let scaled = weights.mapv(|w| w * 8.0);
        let group = [tensor(&scaled, 0), tensor(&weights, 0)];
        assert_eq!(group_importance(&LampImportance, &group, &mut rng()).unwrap(), scores);
    }
}
