//! Wanda: the smallest |w|·‖x_j‖₂ of each output go.

use ndarray::{Array2, ArrayView2};

use super::pattern::{Pattern, Scope, apply, mask};
use super::{Inputs, Sparsifier, check_inputs, check_weight};
use crate::error::Result;

/// Scores a weight by |w_ij|·‖x_j‖₂ and compares within an output ("A Simple and Effective Pruning
/// Approach for Large Language Models", Sun et al. 2023, equation 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanda;

impl Sparsifier for Wanda {
    fn name(&self) -> &'static str {
        "wanda"
    }

    fn prune(
        &self,
        w: ArrayView2<'_, f32>,
        pattern: Pattern,
        sparsity: f64,
        inputs: Option<&Inputs>,
    ) -> Result<Array2<f32>> {
        const METHOD: &str = "prune by Wanda";
        check_weight(METHOD, w)?;
        let diagonal = check_inputs(METHOD, w, inputs)?.hessian().diag();
        // The number of rows scales all norms alike.
        let norms = diagonal.mapv(|square| f64::from(square).sqrt());
        let scores = w.mapv(|value| f64::from(value.abs())) * &norms;
        Ok(apply(w, &mask(scores.view(), pattern, sparsity, Scope::Row)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Magnitude;
    use super::super::fixtures::uniform;
    use super::*;
    use ndarray::array;

    const PATTERNS: [(Pattern, f64); 4] = [
        (Pattern::Unstructured, 0.3),
        (Pattern::Unstructured, 0.8),
        (Pattern::NOfM { n: 2, m: 4 }, 0.5),
        (Pattern::Block { rows: 2, cols: 4 }, 0.5),
    ];

    /// Equal column norms make equation 1 the magnitude within an output.
    #[test]
    fn equal_norms_are_magnitude_per_row() {
        let w = uniform(10, 40, 1);
        let inputs = Inputs::from_hessian(Array2::eye(40) * 3.7).unwrap();
        for (pattern, sparsity) in PATTERNS {
            let wanda = Wanda.prune(w.view(), pattern, sparsity, Some(&inputs)).unwrap();
            let magnitude = Magnitude { scope: Scope::Row };
            let expected = magnitude.prune(w.view(), pattern, sparsity, None).unwrap();
            assert_eq!(wanda, expected, "{pattern:?}");
        }
    }

    /// Equation 1 by hand, scores [4,0,8,3], [3,4,8,9], [3,2,0,6]: magnitude chooses otherwise.
    #[test]
    fn norms_weigh_the_magnitudes() {
        let w = array![[4.0_f32, 0.0, 1.0, -1.0], [3.0, -2.0, -1.0, -3.0], [-3.0, 1.0, 0.0, 2.0]];
        let norms = array![1.0, 2.0, 8.0, 3.0];
        let hessian = Array2::from_diag(&norms.mapv(|v: f32| v * v));
        let inputs = Inputs::from_hessian(hessian).unwrap();
        let pruned = Wanda.prune(w.view(), Pattern::Unstructured, 0.5, Some(&inputs)).unwrap();
        let expected = array![[4.0, 0.0, 1.0, 0.0], [0.0, 0.0, -1.0, -3.0], [-3.0, 0.0, 0.0, 2.0]];
        assert_eq!(pruned, expected);
    }
}
