//! Keeps the elements or slices that a condition selects.

use crate::Axes;
use crate::args::{axis, output, rank, required, same_dtype};
use crate::error::{Error, Result};
use crate::index::pick;
use crate::movement::around;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Compress`: inputs data and the condition (bool, rank 1), which may be shorter than the axis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compress {
    /// Axis whose slices are selected, negative from the back; without it single elements.
    pub axis: Option<i64>,
}

impl Op for Compress {
    fn name(&self) -> &'static str {
        "Compress"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, condition) = (required(inputs, 0)?, required(inputs, 1)?);
        same_dtype("the condition", DType::Bool, condition.ty.dtype)?;
        rank("the condition", condition, 1)?;
        let shape = match (x.sym_shape(), self.axis) {
            (_, None) => Some(vec![Dim::Unknown]),
            (None, _) => None,
            (Some(dims), Some(along)) => {
                let along = axis(along, dims.len())?;
                let mut dims = dims.to_vec();
                dims[along] = Dim::Unknown;
                Some(dims)
            }
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        match self.axis.map(|along| axis(along, rank)) {
            Some(Ok(along)) => Axes::each_but(&[along], inputs, outputs.len()),
            _ => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let known = crate::args::infos(inputs)?;
        self.infer_types(&known.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let (x, condition) = (required(inputs, 0)?, required(inputs, 1)?);
        let (mut dims, along) = match self.axis {
            None => (vec![x.len()], 0),
            Some(along) => (x.shape().to_vec(), axis(along, x.shape().rank())?),
        };
        let (outer, size, inner) = around(&dims, along);
        let set = condition.as_slice::<bool>()?.iter().enumerate().filter(|(_, set)| **set);
        let kept: Vec<usize> = set.map(|(i, _)| i).collect();
        if let Some(last) = kept.last().filter(|&&last| last >= size) {
            let message = format!("element {last} is selected on an axis of size {size}");
            return Err(Error::invalid(message));
        }
        dims[along] = kept.len();
        let mut out = ctx.alloc(x.dtype(), dims)?;
        if !out.is_empty() {
            let from: Vec<usize> =
                (0..outer).flat_map(|o| kept.iter().map(move |k| o * size + k)).collect();
            pick(inner * x.dtype().size(), x.as_bytes(), &from, out.as_bytes_mut()?);
        }
        Ok(vec![out])
    }
}
