//! The same sparsity for every layer.

use super::{Allocation, Layer, check};
use crate::error::Result;

/// The same sparsity for every layer that is not dense.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uniform;

impl Allocation for Uniform {
    fn name(&self) -> &'static str {
        "uniform"
    }

    fn allocate(&self, layers: &[Layer<'_>], sparsity: f64) -> Result<Vec<f64>> {
        check(layers, sparsity)?;
        Ok(layers.iter().map(|layer| if layer.dense { 0.0 } else { sparsity }).collect())
    }
}
