//! A random score: the baseline of the others.

use rand::{Rng, RngExt};

use super::{Importance, TiedTensor};
use crate::error::Result;

/// A value uniform in [0, 1) for each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomImportance;

impl Importance for RandomImportance {
    fn name(&self) -> &'static str {
        "random"
    }

    fn scores(&self, tensor: &TiedTensor<'_>, rng: &mut dyn Rng) -> Result<Vec<f64>> {
        Ok((0..tensor.channels()).map(|_| rng.random()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{rng, tensor};
    use super::*;

    /// The seed decides the scores, and the weights do not.
    #[test]
    fn the_seed_decides() {
        let (a, b) = (ndarray::Array2::<f32>::zeros((50, 2)), ndarray::Array2::ones((50, 3)));
        fn scores(tied: &TiedTensor, rng: &mut dyn Rng) -> Vec<f64> {
            RandomImportance.scores(tied, rng).unwrap()
        }
        let mut generator = rng();
        let first = scores(&tensor(&a, 0), &mut generator);
        assert_eq!(first, scores(&tensor(&b, 0), &mut rng()));
        assert_ne!(first, scores(&tensor(&a, 0), &mut generator));
    }
}
