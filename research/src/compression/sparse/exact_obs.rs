//! ExactOBS: removes one weight after another by Optimal Brain Surgeon, row by row.

use ndarray::{Array1, Array2, ArrayView2};

use super::obs::{eliminate, inverse_hessian, remove_weight, saliency};
use super::pattern::{Pattern, removed_count};
use super::{Inputs, Sparsifier, check_inputs, check_weight, hessian, refuse, stored};
use crate::error::Result;

const METHOD: &str = "prune by ExactOBS";

/// Removes the weight of the least ΔL of each output again and again, and updates the rest
/// ("Optimal Brain Compression", Frantar & Alistarh 2022, algorithm 1).
///
/// The work is O(k³) for each output, so the method suits small layers. Blocks are not supported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExactObs {
    /// The part of the mean of H's diagonal that is added to it, as 0.01.
    pub damping: f64,
}

impl Sparsifier for ExactObs {
    fn name(&self) -> &'static str {
        "exact_obs"
    }

    fn prune(
        &self,
        w: ArrayView2<'_, f32>,
        pattern: Pattern,
        sparsity: f64,
        inputs: Option<&Inputs>,
    ) -> Result<Array2<f32>> {
        check_weight(METHOD, w)?;
        pattern.check(w.dim(), sparsity)?;
        let h = hessian(check_inputs(METHOD, w, inputs)?);
        let k = w.ncols();
        // A group of `m` columns loses up to `limit` weights, and a row loses `removed`.
        let (m, limit, removed) = match pattern {
            Pattern::Unstructured => (k, k, removed_count(k, sparsity)),
            Pattern::NOfM { n, m } => (m, m - n, k / m * (m - n)),
            Pattern::Block { .. } => {
                return Err(refuse(METHOD, "a block pattern, expected unstructured or n:m"));
            }
        };
        let inverse = inverse_hessian(h.view(), self.damping)?;
        let mut pruned = w.mapv(f64::from);
        for mut row in pruned.rows_mut() {
            let mut weights = row.to_vec();
            // An always zero input has no part in the loss, so its weight goes for nothing.
            for (weight, diagonal) in weights.iter_mut().zip(h.diag()) {
                if *diagonal == 0.0 {
                    *weight = 0.0;
                }
            }
            prune_row(&mut weights, inverse.clone(), m, limit, removed);
            row.assign(&Array1::from(weights));
        }
        stored(METHOD, pruned)
    }
}

/// Removes `removed` weights of a row, up to `limit` of each `m` neighbours.
fn prune_row(
    weights: &mut [f64],
    mut inverse: Array2<f64>,
    m: usize,
    limit: usize,
    removed: usize,
) {
    let mut gone = vec![false; weights.len()];
    let mut gone_of_group = vec![0; weights.len() / m];
    for _ in 0..removed {
        let least = (0..weights.len())
            .filter(|q| !gone[*q] && gone_of_group[q / m] < limit)
            .map(|q| (saliency(weights[q], inverse[[q, q]]), q))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        let Some((_, q)) = least else { return };
        let row = inverse.row(q).to_vec();
        remove_weight(weights, &row, q);
        eliminate(&mut inverse, q);
        gone[q] = true;
        gone_of_group[q / m] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{correlated, layer_loss, uniform};
    use super::super::{Magnitude, Scope};
    use super::*;

    /// With H = I the saliency is w²/2 and δw touches the removed weight only.
    #[test]
    fn identity_is_magnitude_per_row() {
        let w = uniform(6, 16, 1);
        let inputs = Inputs::from_hessian(Array2::eye(16)).unwrap();
        for (pattern, s) in [(Pattern::Unstructured, 0.4), (Pattern::NOfM { n: 2, m: 4 }, 0.5)] {
            let pruned = ExactObs { damping: 0.01 }.prune(w.view(), pattern, s, Some(&inputs));
            let magnitude = Magnitude { scope: Scope::Row };
            assert_eq!(pruned.unwrap(), magnitude.prune(w.view(), pattern, s, None).unwrap());
        }
    }

    /// The loss of one row is close to the best of all supports, found by trying each.
    #[test]
    fn greedy_is_near_the_best_support() {
        let inputs = Inputs::of(correlated(60, 8, 0.7, 2).view()).unwrap();
        let h = hessian(&inputs);
        let w = uniform(1, 8, 3);
        let method = ExactObs { damping: 0.0 };
        let pruned = method.prune(w.view(), Pattern::Unstructured, 0.5, Some(&inputs)).unwrap();
        let greedy = layer_loss(w.view(), pruned.view(), h.view());
        let best = (0_u32..256)
            .filter(|set| set.count_ones() == 4)
            .map(|set| {
                let mut inverse = inverse_hessian(h.view(), 0.0).unwrap();
                let mut row: Vec<f64> = w.iter().map(|v| f64::from(*v)).collect();
                (0..8).filter(|q| set & (1 << q) != 0).fold(0.0, |loss, q| {
                    let step = saliency(row[q], inverse[[q, q]]);
                    let inverse_row = inverse.row(q).to_vec();
                    remove_weight(&mut row, &inverse_row, q);
                    eliminate(&mut inverse, q);
                    loss + step
                })
            })
            .fold(f64::INFINITY, f64::min);
        println!("greedy {greedy:.6} best {best:.6}");
        assert!(greedy > best * (1.0 - 1e-5) && greedy < 1.2 * best, "{greedy} {best}");
    }

    #[test]
    fn dead_inputs_go_first_and_blocks_are_refused() {
        let mut x = uniform(40, 8, 4);
        x.column_mut(3).fill(0.0);
        let inputs = Inputs::of(x.view()).unwrap();
        let w = uniform(2, 8, 5);
        let method = ExactObs { damping: 0.01 };
        let pruned = method.prune(w.view(), Pattern::Unstructured, 0.125, Some(&inputs)).unwrap();
        assert!(pruned.column(3).iter().all(|v| *v == 0.0));
        let block = Pattern::Block { rows: 1, cols: 4 };
        assert!(method.prune(w.view(), block, 0.5, Some(&inputs)).is_err());
    }
}
