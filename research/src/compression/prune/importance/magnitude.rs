//! The norm of a channel's weights.

use rand::Rng;

use super::{Importance, TiedTensor};
use crate::error::Result;

/// ‖w_c‖ of each channel ("Pruning Filters for Efficient ConvNets", Li et al. 2017).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MagnitudeImportance {
    /// Σ |w|.
    L1,
    /// √Σ w².
    L2,
}

impl Importance for MagnitudeImportance {
    fn name(&self) -> &'static str {
        match self {
            Self::L1 => "magnitude_l1",
            Self::L2 => "magnitude_l2",
        }
    }

    fn scores(&self, tensor: &TiedTensor<'_>, _rng: &mut dyn Rng) -> Result<Vec<f64>> {
        Ok(tensor.by_channel(|weights| {
            let values = weights.iter().map(|value| f64::from(*value));
            match self {
                Self::L1 => values.map(f64::abs).sum(),
                Self::L2 => values.map(|value| value * value).sum::<f64>().sqrt(),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{filters, rng, tensor};
    use super::*;

    /// Norms by hand, over the filters and across them.
    #[test]
    fn norms_by_hand() {
        let (weights, _) = filters();
        let scores = |rule: MagnitudeImportance, axis| {
            rule.scores(&tensor(&weights, axis), &mut rng()).unwrap()
        };
        assert_eq!(scores(MagnitudeImportance::L1, 0), [7.0, 2.0, 0.5, 4.0]);
        assert_eq!(scores(MagnitudeImportance::L1, 1), [6.0, 7.5]);
        let expected = [5.0, 2_f64.sqrt(), 0.5, 8_f64.sqrt()];
        assert_eq!(scores(MagnitudeImportance::L2, 0), expected);
    }
}
