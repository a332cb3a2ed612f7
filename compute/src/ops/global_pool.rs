//! Pooling over all spatial axes.

mod device;

use crate::args::{arity, concrete_one, float, output, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::reduce::{ReduceKind, reduce_rows};
use lgp_memory::{Dim, Tensor, TensorView};

/// How a whole plane becomes one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalPoolKind {
    /// The mean.
    Average,
    /// The largest.
    Max,
    /// The sum: what Lp pooling takes a root of.
    Sum,
}

/// `GlobalAveragePool`, `GlobalMaxPool`: `[n, c, spatial…]` to `[n, c, 1…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalPool {
    /// Mean or maximum.
    pub kind: GlobalPoolKind,
}

impl Op for GlobalPool {
    fn name(&self) -> &'static str {
        match self.kind {
            GlobalPoolKind::Average => "GlobalAveragePool",
            GlobalPoolKind::Max => "GlobalMaxPool",
            GlobalPoolKind::Sum => "GlobalLpPool",
        }
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let op = self.name();
        arity(op, inputs, 1, 1)?;
        let x = required(op, inputs, 0)?;
        float(op, x.ty.dtype)?;
        let shape = match x.sym_shape() {
            None => None,
            Some([n, c, spatial @ ..]) if !spatial.is_empty() => {
                let ones = spatial.iter().map(|_| Dim::Known(1));
                Some([n.clone(), c.clone()].into_iter().chain(ones).collect())
            }
            Some(dims) => {
                let message = format!("the input has rank {}, expected 3 or more", dims.len());
                return Err(Error::invalid(op, message));
            }
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        if crate::widen::is_half(inputs) {
            return crate::widen::widened(self, ctx, inputs);
        }
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(self.name(), inputs, 0)?;
        let mut out = ctx.alloc(dtype, shape)?;
        let plane = x.shape()[2..].iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let kind = match self.kind {
            GlobalPoolKind::Average => ReduceKind::Mean,
            GlobalPoolKind::Max => ReduceKind::Max,
            GlobalPoolKind::Sum => ReduceKind::Sum,
        };
        reduce_rows(kind, self.name(), ctx, x, plane, &mut out)?;
        Ok(vec![out])
    }
}
