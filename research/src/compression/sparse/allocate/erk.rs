//! Erdős–Rényi-kernel: a layer's density follows the sum of its sides over their product.

use super::{Allocation, Layer, check};
use crate::error::Result;

/// The density ε·Σ sides / Π sides for each layer, at most 1, with ε such that the total is exact
/// ("Rigging the Lottery: Making All Tickets Winners", Evci et al. 2020, section 3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erk;

impl Allocation for Erk {
    fn name(&self) -> &'static str {
        "erk"
    }

    fn allocate(&self, layers: &[Layer<'_>], sparsity: f64) -> Result<Vec<f64>> {
        check(layers, sparsity)?;
        let sum = |layer: &Layer<'_>| layer.shape.iter().sum::<usize>() as f64;
        let raw = |layer: &Layer<'_>| sum(layer) / layer.len() as f64;
        let mut full: Vec<bool> = vec![false; layers.len()];
        let budget: f64 = layers
            .iter()
            .filter(|layer| !layer.dense)
            .map(|layer| layer.len() as f64 * (1.0 - sparsity))
            .sum();
        loop {
            let open = || {
                let both = layers.iter().zip(&full);
                both.filter(|(layer, full)| !layer.dense && !**full).map(|(layer, _)| layer)
            };
            let taken: usize =
                layers.iter().zip(&full).filter(|(_, full)| **full).map(|(l, _)| l.len()).sum();
            let epsilon = (budget - taken as f64) / open().map(sum).sum::<f64>();
            // The layer of the highest density fills first, and ε is found again without it.
            let highest = open().map(raw).fold(0.0, f64::max);
            if epsilon.is_nan() || epsilon * highest <= 1.0 {
                let density = |(layer, full): (&Layer<'_>, &bool)| {
                    if layer.dense || *full { 1.0 } else { epsilon * raw(layer) }
                };
                return Ok(layers.iter().zip(&full).map(density).map(|d| 1.0 - d).collect());
            }
            for (layer, full) in layers.iter().zip(&mut full) {
                *full |= !layer.dense && raw(layer) >= highest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers by hand: densities 14/48 and 18/80 times ε = 64/32, then ε after one is full.
    #[test]
    fn two_layers_by_hand() {
        let layers = [[6, 8], [8, 10]];
        let layers = layers.each_ref().map(|shape| Layer { shape, weights: None, dense: false });
        let found = Erk.allocate(&layers, 0.5).unwrap();
        assert!((found[0] - (1.0 - 2.0 * 14.0 / 48.0)).abs() < 1e-12);
        assert!((found[1] - (1.0 - 2.0 * 18.0 / 80.0)).abs() < 1e-12);
        let found = Erk.allocate(&layers, 0.1).unwrap();
        assert_eq!(found[0], 0.0);
        assert!((found[1] - 0.1 * 128.0 / 80.0).abs() < 1e-12);
    }
}
