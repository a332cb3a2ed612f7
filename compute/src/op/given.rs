//! Inputs that a run may write over.

use super::arity::count;
use super::{Op, ValueInfo};
use crate::args::concrete_one;
use crate::error::{Error, Result};
use lgp_memory::{DType, Tensor, TensorView};

/// An input that a run may write over.
#[derive(Debug)]
pub struct Given {
    /// The input's number.
    pub input: usize,
    /// The input's tensor.
    pub tensor: Tensor,
}

impl Given {
    /// The tensor to write over, after the operator's checks of this input and the other inputs.
    pub(crate) fn checked(self, op: &dyn Op, inputs: &[Option<TensorView<'_>>]) -> Result<Tensor> {
        let mut all = inputs.to_vec();
        if let Some(input) = all.get_mut(self.input) {
            *input = Some(self.tensor.view());
        }
        let counted = count(&op.arity(), all.len()).and_then(|()| concrete_one(op, &all));
        let (dtype, shape) = counted.map_err(|error| error.of(op.name()))?;
        if (dtype, &shape) != (self.tensor.dtype(), self.tensor.shape()) {
            let (given, own) = (self.tensor.shape(), self.tensor.dtype());
            let message = format!("{dtype} {shape:?} is written over {own} {given:?}");
            return Err(Error::invalid(message).of(op.name()));
        }
        Ok(self.tensor)
    }
}

/// The inputs of output 0's dtype and shape, for an operator that may write over any of them. None
/// for f16 and bf16, which are computed through copies.
pub(crate) fn as_large(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
    let Some(out) = outputs.first() else { return Vec::new() };
    let is_half = matches!(out.ty.dtype, DType::F16 | DType::BF16);
    let fits = |info: &&ValueInfo| info.ty.concrete_shape().is_some() && info.ty == out.ty;
    let fits =
        inputs.iter().enumerate().filter(|(_, info)| !is_half && info.as_ref().is_some_and(fits));
    fits.map(|(i, _)| i).collect()
}
