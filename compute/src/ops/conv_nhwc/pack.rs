//! Weights in the order in which the kernels read them.

use super::{Algorithm, ConvNhwc, NAME};
use crate::error::{Error, Result};
use lgp_memory::{DType, Tensor};

/// Elements of the packed weights.
pub(super) fn len(conv: &ConvNhwc) -> Result<usize> {
    let g = &conv.geometry;
    let len = match conv.algorithm {
        Algorithm::Direct => g.maps.checked_mul(g.depth()),
    };
    len.ok_or_else(|| Error::invalid(NAME, "the weight is too large"))
}

/// The packed weights of a weight that was checked.
pub(super) fn pack(conv: &ConvNhwc, weight: &[f32]) -> Result<Tensor> {
    let mut packed = Tensor::zeros(DType::F32, [len(conv)?])?;
    match conv.algorithm {
        Algorithm::Direct => packed.as_mut_slice()?.copy_from_slice(weight),
    }
    Ok(packed)
}
