//! How much a channel matters, from the slices of every tensor that loses it.

mod fpgm;
mod hessian;
mod lamp;
mod magnitude;
mod random;
mod taylor;

use ndarray::{ArrayViewD, Axis};
use rand::Rng;

use crate::error::{Error, Result};

pub use fpgm::Fpgm;
pub use hessian::HessianDiagonal;
pub use lamp::LampImportance;
pub use magnitude::MagnitudeImportance;
pub use random::RandomImportance;
pub use taylor::Taylor;

/// A tensor that loses a slice along `axis` with each channel of its group.
#[derive(Clone, Debug)]
pub struct TiedTensor<'a> {
    /// The weights.
    pub weights: ArrayViewD<'a, f32>,
    /// The axis of the group's channels: 0 where the tensor makes them, 1 where it takes them.
    pub axis: usize,
    /// The loss's gradients, shaped as the weights, for a method that needs them.
    pub gradients: Option<ArrayViewD<'a, f32>>,
    /// The diagonal of the loss's Hessian, shaped as the weights, for a method that needs it.
    pub hessian_diagonal: Option<ArrayViewD<'a, f32>>,
}

impl TiedTensor<'_> {
    /// The number of channels.
    fn channels(&self) -> usize {
        self.weights.shape().get(self.axis).copied().unwrap_or(0)
    }

    /// Returns `score` of each channel's slice of the weights.
    fn by_channel(&self, score: impl Fn(ArrayViewD<'_, f32>) -> f64) -> Vec<f64> {
        self.weights.axis_iter(Axis(self.axis)).map(score).collect()
    }

    /// Returns `term` of each weight and its value of `other`, summed over a channel.
    fn sum_with(&self, other: &ArrayViewD<'_, f32>, term: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let pairs = self.weights.axis_iter(Axis(self.axis)).zip(other.axis_iter(Axis(self.axis)));
        pairs
            .map(|(weights, others)| {
                let both = weights.into_iter().zip(others);
                both.map(|(w, o)| term(f64::from(*w), f64::from(*o))).sum()
            })
            .collect()
    }

    /// Checks that the shapes agree and each value is finite.
    fn check(&self) -> Result<()> {
        let shape = self.weights.shape();
        if self.axis >= shape.len() || self.weights.is_empty() {
            let axis = self.axis;
            return Err(refuse(format!("shape {shape:?}, expected values and an axis {axis}")));
        }
        let others = [("gradients", &self.gradients), ("Hessian", &self.hessian_diagonal)];
        let given = others.iter().filter_map(|(name, other)| other.as_ref().map(|o| (*name, o)));
        for (name, values) in [("weights", &self.weights)].into_iter().chain(given) {
            if values.shape() != shape {
                let found = values.shape();
                return Err(refuse(format!("{name} of shape {found:?}, expected {shape:?}")));
            }
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(refuse(format!("{name} hold {value}, expected finite values")));
            }
        }
        Ok(())
    }
}

/// A rule that scores channels; the lowest go first.
pub trait Importance: Sync {
    /// The rule's name in the table.
    fn name(&self) -> &'static str;

    /// Returns the score of each channel of one tensor, whose shapes agree and values are finite.
    ///
    /// # Errors
    /// Returns an error if the rule needs gradients or a Hessian that are absent.
    fn scores(&self, tensor: &TiedTensor<'_>, rng: &mut dyn Rng) -> Result<Vec<f64>>;

    /// Makes the scores of tensors of different sizes comparable: divides them by their mean.
    fn normalise(&self, scores: &mut [f64]) {
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        if mean > 0.0 {
            scores.iter_mut().for_each(|score| *score /= mean);
        }
    }
}

/// Every rule.
pub static IMPORTANCES: &[&dyn Importance] = &[
    &MagnitudeImportance::L1,
    &MagnitudeImportance::L2,
    &Taylor,
    &HessianDiagonal,
    &LampImportance,
    &Fpgm,
    &RandomImportance,
];

/// The rule of that name in [`IMPORTANCES`].
#[must_use]
pub fn importance(name: &str) -> Option<&'static dyn Importance> {
    IMPORTANCES.iter().copied().find(|rule| rule.name() == name)
}

/// Returns the importance of each channel of a group: the mean over its tensors of the normalised
/// scores ("DepGraph: Towards Any Structural Pruning", Fang et al. 2023).
///
/// # Errors
/// Returns an error if the group is empty, if tensors differ in channels, if shapes disagree, if a
/// value is not finite, or if the rule needs what is absent.
pub fn group_importance(
    rule: &dyn Importance,
    group: &[TiedTensor<'_>],
    rng: &mut impl Rng,
) -> Result<Vec<f64>> {
    let first = group.first().ok_or_else(|| refuse("no tensors, expected one or more"))?;
    let mut total = vec![0.0; first.channels()];
    for tensor in group {
        tensor.check()?;
        if tensor.channels() != total.len() {
            let (found, expected) = (tensor.channels(), total.len());
            return Err(refuse(format!("a tensor of {found} channels, expected {expected}")));
        }
        let mut scores = rule.scores(tensor, rng)?;
        rule.normalise(&mut scores);
        total.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score / group.len() as f64);
    }
    Ok(total)
}

fn refuse(message: impl Into<String>) -> Error {
    Error::Compression { method: "score channels", message: message.into() }
}

#[cfg(test)]
mod fixtures {
    use super::TiedTensor;
    use ndarray::{Array, Array2, ArrayD, Dimension};
    use rand::{SeedableRng, rngs::StdRng};

    pub(super) fn tensor<D: Dimension>(weights: &Array<f32, D>, axis: usize) -> TiedTensor<'_> {
        let weights = weights.view().into_dyn();
        TiedTensor { weights, axis, gradients: None, hessian_diagonal: None }
    }

    pub(super) fn rng() -> StdRng {
        StdRng::seed_from_u64(7)
    }

    /// Four filters of two weights, and values of the same shape.
    pub(super) fn filters() -> (Array2<f32>, ArrayD<f32>) {
        let weights = ndarray::array![[3.0, -4.0], [1.0, 1.0], [0.0, 0.5], [-2.0, 2.0]];
        let others = ndarray::array![[1.0, 1.0], [2.0, -1.0], [9.0, 4.0], [0.5, 1.0]].into_dyn();
        (weights, others)
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{filters, rng, tensor};
    use super::*;
    use ndarray::{Array1, Array2, Array4, array};

    fn l1(group: &[TiedTensor]) -> Result<Vec<f64>> {
        group_importance(&MagnitudeImportance::L1, group, &mut rng())
    }

    /// A convolution that makes three channels and one that takes them, by hand.
    #[test]
    fn tied_slices_are_averaged_after_normalisation() {
        let makes = Array4::from_shape_fn((3, 2, 1, 2), |(o, ..)| (o + 1) as f32);
        let takes = array![[10.0_f32, -20.0, 90.0], [0.0, 0.0, 0.0]];
        // L1 sums [4, 8, 12] and [10, 20, 90], of means 8 and 40.
        let expected = [(0.5 + 0.25) / 2.0, (1.0 + 0.5) / 2.0, (1.5 + 2.25) / 2.0];
        let group = [tensor(&makes, 0), tensor(&takes, 1)];
        assert_eq!(l1(&group).unwrap(), expected);
        // The scale of a tensor has no part.
        let scaled = makes.mapv(|v| v * 64.0);
        assert_eq!(l1(&[tensor(&scaled, 0), tensor(&takes, 1)]).unwrap(), expected);
    }

    #[test]
    fn every_rule_scores_every_channel() {
        let (weights, others) = filters();
        let mut full = tensor(&weights, 0);
        full.gradients = Some(others.view());
        full.hessian_diagonal = Some(others.view());
        for rule in IMPORTANCES {
            let scores =
                group_importance(*rule, &[full.clone(), full.clone()], &mut rng()).unwrap();
            assert_eq!(scores.len(), 4, "{}", rule.name());
            assert!(scores.iter().all(|score| score.is_finite() && *score >= 0.0));
            assert_eq!(importance(rule.name()).unwrap().name(), rule.name());
        }
    }

    #[test]
    fn bad_groups_are_errors() {
        let (weights, others) = filters();
        let (narrow, nan) = (Array2::<f32>::ones((3, 2)), array![f32::NAN]);
        assert!(l1(&[]).is_err());
        assert!(l1(&[tensor(&weights, 0), tensor(&narrow, 0)]).is_err());
        assert!(l1(&[tensor(&weights, 2)]).is_err());
        assert!(l1(&[tensor(&nan, 0)]).is_err());
        assert!(l1(&[tensor(&Array1::<f32>::zeros(0), 0)]).is_err());
        let mut wrong = tensor(&narrow, 0);
        wrong.gradients = Some(others.view());
        assert!(l1(&[wrong]).is_err());
        let zeros = Array2::<f32>::zeros((2, 2));
        assert_eq!(l1(&[tensor(&zeros, 0)]).unwrap(), [0.0, 0.0]);
    }
}
