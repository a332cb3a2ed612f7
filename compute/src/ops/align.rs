//! Makes a shape stand at given axes of another, where broadcasting would take the last ones.

use crate::Axes;
use crate::args::{axis, concrete_one, output, required};
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// Inputs b and a: b gets axes of size 1 at its end, so that its first axis meets a's axis
/// `axis` when the two are broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Align {
    /// The axis of a, negative from the back.
    pub axis: i64,
}

impl Op for Align {
    fn name(&self) -> &'static str {
        "Align"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (b, a) = (required(inputs, 0)?, required(inputs, 1)?);
        let shape = match (b.sym_shape(), a.sym_shape()) {
            (Some(b), Some(a)) => {
                // The axis after the last is allowed: a b of one element meets all of a.
                let at = axis(self.axis, a.len() + 1)?;
                let mut out = b.to_vec();
                let rank = a.len().saturating_sub(at).max(b.len());
                out.resize(rank, Dim::Known(1));
                Some(out)
            }
            _ => None,
        };
        Ok(output(b.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::each_but(&[], inputs, outputs.len())
    }

    fn moves(&self) -> bool {
        true
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (_, shape) = concrete_one(self, inputs)?;
        Ok(vec![required(inputs, 0)?.to_tensor()?.reshape(shape)?])
    }
}
