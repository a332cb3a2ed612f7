//! Magnitude pruning: the smallest |w| go.

use ndarray::{Array2, ArrayView2};

use super::pattern::{Pattern, Scope, apply, mask};
use super::{Inputs, Sparsifier, check_weight};
use crate::error::Result;

/// Scores a weight by |w| ("Learning both Weights and Connections for Efficient Neural Networks",
/// Han et al. 2015).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Magnitude {
    /// Which weights are compared.
    pub scope: Scope,
}

impl Sparsifier for Magnitude {
    fn name(&self) -> &'static str {
        "magnitude"
    }

    fn prune(
        &self,
        w: ArrayView2<'_, f32>,
        pattern: Pattern,
        sparsity: f64,
        _inputs: Option<&Inputs>,
    ) -> Result<Array2<f32>> {
        check_weight("prune by magnitude", w)?;
        let scores = w.mapv(|value| f64::from(value.abs()));
        Ok(apply(w, &mask(scores.view(), pattern, sparsity, self.scope)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_scope_decides_which_weights_go() {
        let w = array![[0.1_f32, -0.2, 0.3, 0.4], [-5.0, 6.0, 7.0, 8.0]];
        let cases = [
            (Scope::Row, array![[0.0, 0.0, 0.3, 0.4], [0.0, 0.0, 7.0, 8.0]]),
            (Scope::Matrix, array![[0.0, 0.0, 0.0, 0.0], [-5.0, 6.0, 7.0, 8.0]]),
        ];
        for (scope, expected) in cases {
            let pruned = Magnitude { scope }.prune(w.view(), Pattern::Unstructured, 0.5, None);
            assert_eq!(pruned.unwrap(), expected);
        }
    }
}
