//! Wanda++: Wanda's score with the gradients of a regional loss.

use ndarray::{Array2, ArrayView2, Zip};

use super::pattern::{Pattern, Scope, apply, mask, setting};
use super::{Inputs, Sparsifier, check_inputs, check_weight, refuse};
use crate::error::Result;

/// Scores a weight by (α·G_ij + ‖x_j‖₂)·|w_ij| within an output, where G is the root mean square
/// of a regional gradient ("Wanda++: Pruning Large Language Models via Regional Gradients", Yang et
/// al. 2025, the regional gradient score).
///
/// The caller gives G by [`Inputs::with_gradients`]. The paper's second half, regional
/// optimisation, trains and is absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WandaPlusPlus {
    /// α, 0 or more: 100 in the paper.
    pub alpha: f64,
}

impl Sparsifier for WandaPlusPlus {
    fn name(&self) -> &'static str {
        "wanda_plus_plus"
    }

    fn prune(
        &self,
        w: ArrayView2<'_, f32>,
        pattern: Pattern,
        sparsity: f64,
        inputs: Option<&Inputs>,
    ) -> Result<Array2<f32>> {
        const METHOD: &str = "prune by Wanda++";
        check_weight(METHOD, w)?;
        if !self.alpha.is_finite() || self.alpha < 0.0 {
            return Err(setting("alpha", self.alpha, "a finite number, 0 or more"));
        }
        let inputs = check_inputs(METHOD, w, inputs)?;
        let gradients =
            inputs.gradients().ok_or_else(|| refuse(METHOD, "no gradients, expected gradients"))?;
        if gradients.dim() != w.dim() {
            let (found, expected) = (gradients.shape(), w.shape());
            return Err(refuse(METHOD, format!("gradients {found:?}, expected {expected:?}")));
        }
        let norms = inputs.column_norms();
        let scores = Zip::from(w).and(gradients).and_broadcast(&norms).map_collect(|w, g, norm| {
            (self.alpha * f64::from(g.abs()) + norm) * f64::from(w.abs())
        });
        Ok(apply(w, &mask(scores.view(), pattern, sparsity, Scope::Row)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Wanda;
    use super::super::fixtures::uniform;
    use super::*;
    use ndarray::array;

    /// Without a gradient the score is Wanda's.
    #[test]
    fn zero_gradients_are_wanda() {
        let w = uniform(6, 20, 1);
        let inputs = Inputs::from_rows(uniform(30, 20, 2).view()).unwrap();
        let wanda = Wanda.prune(w.view(), Pattern::Unstructured, 0.5, Some(&inputs)).unwrap();
        for (alpha, gradients) in [(100.0, Array2::zeros((6, 20))), (0.0, uniform(6, 20, 3))] {
            let inputs = inputs.clone().with_gradients(gradients).unwrap();
            let method = WandaPlusPlus { alpha };
            let pruned = method.prune(w.view(), Pattern::Unstructured, 0.5, Some(&inputs));
            assert_eq!(pruned.unwrap(), wanda);
        }
    }

    /// Scores (α·G + ‖x‖)·|w| by hand: [3, 4, 6, 1.5] with α = 2.
    #[test]
    fn gradients_weigh_by_alpha() {
        let w = array![[1.0_f32, 2.0, 3.0, -0.5]];
        let hessian = Array2::from_diag(&array![1.0, 4.0, 1.0, 1.0]);
        let inputs = Inputs::from_hessian(hessian, 1).unwrap();
        let inputs = inputs.with_gradients(array![[1.0, 0.0, -0.5, 1.0]]).unwrap();
        let pruned = WandaPlusPlus { alpha: 2.0 }
            .prune(w.view(), Pattern::Unstructured, 0.5, Some(&inputs))
            .unwrap();
        assert_eq!(pruned, array![[0.0, 2.0, 3.0, 0.0]]);
        let wrong = inputs.with_gradients(Array2::zeros((2, 4))).unwrap();
        let method = WandaPlusPlus { alpha: 2.0 };
        assert!(method.prune(w.view(), Pattern::Unstructured, 0.5, Some(&wrong)).is_err());
    }
}
