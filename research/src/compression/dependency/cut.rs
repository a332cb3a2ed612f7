//! Tensors without some positions along an axis.

use crate::error::{Error, Result};
use lgp_memory::Tensor;

/// The positions `kept` along an axis, in that order.
///
/// # Errors
/// A tensor without the axis or a position, or of elements that are not whole bytes.
pub(crate) fn kept(tensor: &Tensor, axis: usize, kept: &[usize]) -> Result<Tensor> {
    let mut dims = tensor.shape().dims().to_vec();
    let wrong = || {
        let (dtype, dims) = (tensor.dtype(), tensor.shape().dims());
        let message = format!("{dtype} of shape {dims:?}, expected numbers with an axis {axis}");
        Error::compression("cut a tensor", message)
    };
    let length = *dims.get(axis).ok_or_else(wrong)?;
    let inner = dims[axis + 1..].iter().product::<usize>() * tensor.dtype().size();
    let bytes = tensor.as_bytes();
    let fits = kept.iter().all(|&position| position < length)
        && bytes.len() == dims[..axis].iter().product::<usize>() * length * inner;
    if !fits || tensor.dtype() == lgp_memory::DType::Str {
        return Err(wrong());
    }
    let mut out = Vec::with_capacity(bytes.len() / length.max(1) * kept.len());
    for block in bytes.chunks_exact((length * inner).max(1)) {
        kept.iter().for_each(|&at| out.extend_from_slice(&block[at * inner..][..inner]));
    }
    dims[axis] = kept.len();
    Ok(Tensor::from_bytes(tensor.dtype(), dims, &out)?)
}
