//! SynFlow: a score that needs no data and is conserved through a chain of linear layers.

use ndarray::{Array1, Array2, ArrayView2, Axis};

use super::pattern::{keep_highest, removed_count, setting};
use super::{check_weight, refuse};
use crate::error::Result;

const METHOD: &str = "score by SynFlow";

/// Returns each weight's |w| ∂R/∂|w|, shaped as the layers, where R = 1ᵀ |W_L| … |W_1| 1
/// ("Pruning neural networks without any data by iteratively conserving synaptic flow", Tanaka et
/// al. 2020).
///
/// Each layer's scores sum to R. The layers are `[n, k]` in the order of the data.
///
/// # Errors
/// Returns an error if there is no layer, if a layer does not take the one before it, if a value is
/// not finite, or if R overflows.
pub fn synflow_scores(layers: &[ArrayView2<'_, f32>]) -> Result<Vec<Array2<f64>>> {
    let first = layers.first().ok_or_else(|| refuse(METHOD, "no layers, expected one or more"))?;
    for layer in layers {
        check_weight(METHOD, *layer)?;
    }
    for pair in layers.windows(2) {
        if pair[0].nrows() != pair[1].ncols() {
            let (given, taken) = (pair[0].nrows(), pair[1].ncols());
            let message =
                format!("a layer takes {taken} inputs, expected {given}, as many as given");
            return Err(refuse(METHOD, message));
        }
    }
    let magnitudes: Vec<Array2<f64>> =
        layers.iter().map(|layer| layer.mapv(|value| f64::from(value.abs()))).collect();
    let mut forward = vec![Array1::<f64>::ones(first.ncols())];
    for layer in &magnitudes {
        forward.extend(forward.last().map(|input| layer.dot(input)));
    }
    let mut backward = Array1::<f64>::ones(magnitudes.last().map_or(0, Array2::nrows));
    let mut scores = Vec::with_capacity(layers.len());
    for (layer, input) in magnitudes.iter().zip(&forward).rev() {
        scores.push(layer * &backward.view().insert_axis(Axis(1)) * input);
        backward = layer.t().dot(&backward);
    }
    scores.reverse();
    if scores.iter().flatten().all(|score| score.is_finite()) {
        Ok(scores)
    } else {
        Err(refuse(METHOD, "the product of the weights overflows, expected smaller weights"))
    }
}

/// Returns masks, true where a weight stays, after `rounds` of scoring and removing over all layers
/// together, where round t leaves (1 − `sparsity`)^(t/`rounds`) of the weights (the same,
/// algorithm 1).
///
/// # Errors
/// Returns the errors of [`synflow_scores`], and an error if `sparsity` is outside [0, 1) or
/// `rounds` is 0.
pub fn synflow_masks(
    layers: &[ArrayView2<'_, f32>],
    sparsity: f64,
    rounds: usize,
) -> Result<Vec<Array2<bool>>> {
    if !(0.0..1.0).contains(&sparsity) {
        return Err(setting("sparsity", sparsity, "0 or more and below 1"));
    }
    if rounds == 0 {
        return Err(setting("rounds", rounds, "1 or more"));
    }
    let mut pruned: Vec<Array2<f32>> = layers.iter().map(ArrayView2::to_owned).collect();
    let mut masks: Vec<Array2<bool>> =
        layers.iter().map(|layer| Array2::from_elem(layer.dim(), true)).collect();
    for round in 1..=rounds {
        let views: Vec<ArrayView2<'_, f32>> = pruned.iter().map(|layer| layer.view()).collect();
        let scores: Vec<f64> = synflow_scores(&views)?
            .iter()
            .flatten()
            .zip(masks.iter().flatten())
            // A removed weight stays below a kept one whose score is zero.
            .map(|(score, kept)| if *kept { *score } else { -1.0 })
            .collect();
        let density = (1.0 - sparsity).powf(round as f64 / rounds as f64);
        let mut kept =
            keep_highest(&scores, removed_count(scores.len(), 1.0 - density)).into_iter();
        for (layer, mask) in pruned.iter_mut().zip(&mut masks) {
            for (weight, mask) in layer.iter_mut().zip(mask) {
                *mask = kept.next().unwrap_or(true);
                if !*mask {
                    *weight = 0.0;
                }
            }
        }
    }
    Ok(masks)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::uniform;
    use super::super::{Allocation, GlobalMagnitude, Layer};
    use super::*;

    fn net() -> [Array2<f32>; 3] {
        [uniform(4, 5, 1), uniform(6, 4, 2), uniform(3, 6, 3)]
    }

    fn product(layers: &[Array2<f32>]) -> f64 {
        let ones = Array1::<f64>::ones(layers[0].ncols());
        layers.iter().fold(ones, |x, w| w.mapv(|v| f64::from(v.abs())).dot(&x)).sum()
    }

    /// Conservation: each layer's scores sum to R, and each neuron passes on what it gets.
    #[test]
    fn scores_are_conserved() {
        let layers = net();
        let scores = synflow_scores(&layers.each_ref().map(|w| w.view())).unwrap();
        let r = product(&layers);
        for layer in &scores {
            assert!((layer.sum() / r - 1.0).abs() < 1e-14, "{} {r}", layer.sum());
        }
        for pair in scores.windows(2) {
            let given = pair[0].sum_axis(Axis(1));
            let taken = pair[1].sum_axis(Axis(0));
            assert!((given - taken).iter().all(|d| d.abs() < 1e-14 * r));
        }
    }

    /// R is linear in each |w|, so a weight's score is what R loses without it.
    #[test]
    fn a_score_is_the_loss_of_flow() {
        let layers = net();
        let scores = synflow_scores(&layers.each_ref().map(|w| w.view())).unwrap();
        let r = product(&layers);
        for l in 0..3 {
            for (at, score) in scores[l].indexed_iter() {
                let mut without = layers.clone();
                without[l][at] = 0.0;
                assert!((r - product(&without) - score).abs() < 1e-13 * r);
            }
        }
    }

    /// Where global magnitude empties the layer of small weights, SynFlow keeps a path.
    #[test]
    fn no_layer_collapses() {
        let layers = [uniform(20, 20, 4), uniform(20, 20, 5) * 0.01, uniform(20, 20, 6)];
        let shape = [20, 20];
        let by_magnitude: Vec<Layer> = layers
            .iter()
            .map(|w| Layer { shape: &shape, weights: w.as_slice(), dense: false })
            .collect();
        let sparsities = GlobalMagnitude.allocate(&by_magnitude, 0.9).unwrap();
        assert_eq!(sparsities[1], 1.0);
        let masks = synflow_masks(&layers.each_ref().map(|w| w.view()), 0.9, 100).unwrap();
        let kept: Vec<usize> =
            masks.iter().map(|mask| mask.iter().filter(|kept| **kept).count()).collect();
        println!("kept {kept:?} of 400 each");
        assert_eq!(kept.iter().sum::<usize>(), 120);
        assert!(kept.iter().all(|count| *count > 0), "{kept:?}");
    }

    #[test]
    fn bad_chains_are_errors() {
        let (a, b) = (uniform(4, 5, 1), uniform(6, 5, 2));
        assert!(synflow_scores(&[]).is_err());
        assert!(synflow_scores(&[a.view(), b.view()]).is_err());
        assert!(synflow_scores(&[Array2::from_elem((1, 1), f32::NAN).view()]).is_err());
        let huge = Array2::from_elem((1, 1), f32::MAX);
        assert!(synflow_scores(&[huge.view(); 9]).is_err());
        assert!(synflow_masks(&[a.view()], 1.0, 1).is_err());
        assert!(synflow_masks(&[a.view()], 0.5, 0).is_err());
    }
}
