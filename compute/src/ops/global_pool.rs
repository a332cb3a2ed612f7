//! Pooling over all spatial axes.

mod device;

use crate::Axes;
use crate::args::{concrete_one, float, optional, output, required};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::GlobalPoolNhwc;
use crate::ops::QGlobalAveragePool;
use crate::ops::pooling::GlobalPoolKind;
use crate::ops::reduce::{ReduceKind, reduce_rows};
use crate::reorder::{CHANNELS_LAST, Reordered};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `GlobalAveragePool`, `GlobalMaxPool`, and the sums of `GlobalLpPool`: `[n, c, spatial…]` to
/// `[n, c, 1…]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalPool {
    /// Mean, maximum or sum.
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

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let shape = match x.sym_shape() {
            None => None,
            Some([n, c, spatial @ ..]) if !spatial.is_empty() => {
                let ones = spatial.iter().map(|_| Dim::Known(1));
                Some([n.clone(), c.clone()].into_iter().chain(ones).collect())
            }
            Some(dims) => {
                let message = format!("the input has rank {}, expected 3 or more", dims.len());
                return Err(Error::invalid(message));
            }
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        let spatial: Vec<usize> = (2..rank).collect();
        let axes = Axes::each_but(&spatial, inputs, outputs.len());
        spatial.iter().fold(axes, |axes, &axis| axes.all([(0, axis)], []))
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        optional(inputs, 0).map_or(0, |x| crate::cost::elements(x))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        let x = inputs.first().copied().flatten()?;
        let fits = *order == CHANNELS_LAST && x.ty.dtype == DType::F32 && x.rank() == Some(4);
        fits.then(|| Reordered::first(GlobalPoolNhwc { kind: self.kind }, inputs, 1))
    }

    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        let input = inputs.first().copied().flatten()?;
        // Only averages have an operator on bytes, and it does not clip.
        let fits = self.kind == GlobalPoolKind::Average && input.info.rank() == Some(4);
        let x = input.quant.filter(|_| fits && y.is_plain())?;
        let op = QGlobalAveragePool { x, y: y.quant };
        Some(OnBytes::new(op, &[0]).channels_last())
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let mut out = ctx.alloc(dtype, shape)?;
        let plane = x.shape()[2..].iter().fold(1usize, |n, &d| n.saturating_mul(d));
        let kind = match self.kind {
            GlobalPoolKind::Average => ReduceKind::Mean,
            GlobalPoolKind::Max => ReduceKind::Max,
            GlobalPoolKind::Sum => ReduceKind::Sum,
        };
        reduce_rows(kind, ctx, x, plane, &mut out)?;
        Ok(vec![out])
    }
}
