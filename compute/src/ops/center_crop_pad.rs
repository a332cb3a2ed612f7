//! Cuts or pads around the centre.

use super::{Pad, PadMode};
use crate::Axes;
use crate::args::{axes, concrete_one, output, rank, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `CenterCropPad`: inputs x and the wanted sizes (i64). New elements are zero; an odd one is
/// added, or cut, at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CenterCropPad {
    /// The axes that the sizes belong to, negative from the back; all when absent.
    pub axes: Option<Vec<i64>>,
}

impl Op for CenterCropPad {
    fn name(&self) -> &'static str {
        "CenterCropPad"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, sizes) = (required(inputs, 0)?, required(inputs, 1)?);
        rank("the shape", sizes, 1)?;
        let sizes = sizes.target_shape()?;
        let Some(dims) = x.sym_shape() else { return Ok(output(x.ty.dtype, None)) };
        let named = match &self.axes {
            None => (0..dims.len()).collect(),
            Some(named) => axes(named, dims.len())?,
        };
        let mut out = dims.to_vec();
        let Some(sizes) = sizes else {
            named.into_iter().for_each(|axis| out[axis] = Dim::Unknown);
            return Ok(output(x.ty.dtype, Some(out)));
        };
        if sizes.len() != named.len() {
            let message = format!("{} sizes given, expected {}", sizes.len(), named.len());
            return Err(Error::invalid(message));
        }
        named.into_iter().zip(sizes).for_each(|(axis, size)| out[axis] = size);
        Ok(output(x.ty.dtype, Some(out)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        let named = self.axes.as_ref().map(|named| axes(named, rank));
        match named {
            Some(Ok(named)) => Axes::each_but(&named, inputs, outputs.len()),
            _ => Axes::new(),
        }
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (_, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        for (&from, &to) in x.shape().iter().zip(shape.iter()) {
            let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
            let more = signed(to).saturating_sub(signed(from));
            // Halves are rounded towards zero for both signs.
            begins.push(more / 2);
            ends.push(more - more / 2);
        }
        begins.extend(ends);
        let pad = Pad { mode: PadMode::Constant, pads: Some(begins), value: None };
        pad.run(ctx, &[Some(x.clone())])
    }
}
