//! Negative log likelihood loss.

mod cpu;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, output, rank, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// How the losses of the samples become the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// One loss a sample.
    None,
    /// Their sum.
    Sum,
    /// Their sum divided by the sum of the samples' weights.
    Mean,
}

/// `NegativeLogLikelihoodLoss`: inputs x `[n, c, d…]` of log probabilities, target `[n, d…]` of
/// i32 or i64, weight `[c]` (optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NllLoss {
    /// None, sum or mean.
    pub reduction: Reduction,
    /// A target whose loss and weight are 0.
    pub ignore_index: Option<i64>,
}

impl Op for NllLoss {
    fn name(&self) -> &'static str {
        "NegativeLogLikelihoodLoss"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, target) = (required(inputs, 0)?, required(inputs, 1)?);
        float(x.ty.dtype)?;
        if !matches!(target.ty.dtype, DType::I32 | DType::I64) {
            let dtype = target.ty.dtype;
            return Err(Error::invalid(format!("target has dtype {dtype}, expected i64")));
        }
        let mut samples = target.sym_shape().map(<[_]>::to_vec);
        if let Some(x) = x.sym_shape() {
            let [n, _, rest @ ..] = x else {
                let message = format!("the input has rank {}, expected 2 or more", x.len());
                return Err(Error::invalid(message));
            };
            rank("target", target, rest.len() + 1)?;
            if let Some(samples) = &mut samples {
                for (i, (t, d)) in samples.iter_mut().zip([n].into_iter().chain(rest)).enumerate() {
                    *t = dims::unify(&format!("dimension {i} of target"), d, t)?;
                }
            }
        }
        if let Some(weight) = optional(inputs, 2) {
            same_dtype("weight", x.ty.dtype, weight.ty.dtype)?;
            rank("weight", weight, 1)?;
            if let (Some([length]), Some([_, c, ..])) = (weight.sym_shape(), x.sym_shape()) {
                dims::expect("the length of weight", c, length)?;
            }
        }
        let shape = if self.reduction == Reduction::None { samples } else { Some(Vec::new()) };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Some(rank) = optional(inputs, 0).and_then(|x| x.rank()) else { return Axes::new() };
        (1..rank).fold(Axes::new(), |axes, axis| {
            // The target lacks x's axis 1, the classes.
            let own = [(0, if axis == 1 { 0 } else { axis }), (1, axis - 1)];
            match self.reduction {
                Reduction::None => axes.each(own, [(0, axis - 1)]),
                Reduction::Sum | Reduction::Mean => axes.all(own, []),
            }
        })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        optional(inputs, 1).map_or(0, |target| crate::cost::elements(target))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
