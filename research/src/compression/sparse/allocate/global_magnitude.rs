//! Global magnitude: the smallest weights of all layers go.

use super::{Allocation, Layer, by_scores};
use crate::error::Result;

/// Each layer's share of the smallest |w| of all layers together.
///
/// A layer whose weights are small may lose all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GlobalMagnitude;

impl Allocation for GlobalMagnitude {
    fn name(&self) -> &'static str {
        "global_magnitude"
    }

    fn allocate(&self, layers: &[Layer<'_>], sparsity: f64) -> Result<Vec<f64>> {
        by_scores(layers, sparsity, |weights| {
            weights.iter().map(|value| f64::from(value.abs())).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_of_all_go() {
        let small: [f32; 4] = [0.1, -0.2, 0.3, 5.0];
        let large: [f32; 2] = [-0.25, 6.0];
        let layers = [
            Layer { shape: &[4], weights: Some(&small), dense: false },
            Layer { shape: &[2], weights: Some(&large), dense: false },
        ];
        assert_eq!(GlobalMagnitude.allocate(&layers, 0.5).unwrap(), [0.5, 0.5]);
        assert_eq!(GlobalMagnitude.allocate(&layers, 2.0 / 3.0).unwrap(), [0.75, 0.5]);
    }
}
