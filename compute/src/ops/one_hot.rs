//! Classes as vectors.

mod device;

use crate::Axes;
use crate::args::{optional, output, rank, required, single};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::movement::around;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `OneHot`: inputs indices (any numeric dtype), depth (one number) and values (`[off, on]`); an
/// index outside of the depth gives a vector of the off value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneHot {
    /// The output's axis that is new, negative from the back.
    pub axis: i64,
}

impl Op for OneHot {
    fn name(&self) -> &'static str {
        "OneHot"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (indices, depth) = (required(inputs, 0)?, required(inputs, 1)?);
        let values = required(inputs, 2)?;
        single("the depth", depth)?;
        rank("the values", values, 1)?;
        if indices.ty.dtype == DType::Bool || depth.ty.dtype == DType::Bool {
            return Err(Error::invalid("bools are no indices"));
        }
        let shape = match indices.sym_shape() {
            None => None,
            Some(dims) => {
                let at = crate::args::axis(self.axis, dims.len() + 1)?;
                let mut out = dims.to_vec();
                let known = depth.contents().and_then(|d| d.first().cloned());
                out.insert(at, known.unwrap_or(Dim::Unknown));
                Some(out)
            }
        };
        Ok(output(values.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Some(rank) = optional(inputs, 0).and_then(|x| x.rank()) else { return Axes::new() };
        let Ok(new) = crate::args::axis(self.axis, rank + 1) else {
            return Axes::new();
        };
        (0..rank).fold(Axes::new(), |axes, axis| {
            axes.each([(0, axis)], [(0, axis + usize::from(axis >= new))])
        })
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let known = crate::args::infos(inputs)?;
        self.infer_types(&known.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let (indices, depth) = (required(inputs, 0)?, required(inputs, 1)?);
        let values = required(inputs, 2)?;
        let size = values.dtype().size();
        if values.len() != 2 {
            let message = format!("{} values given, expected off and on", values.len());
            return Err(Error::invalid(message));
        }
        let given = whole(ctx, depth)?.first().copied().unwrap_or(-1);
        let depth = usize::try_from(given)
            .map_err(|_| Error::invalid(format!("the depth is {given}, expected 0 or more")))?;
        let at = crate::args::axis(self.axis, indices.shape().rank() + 1)?;
        let mut dims = indices.shape().to_vec();
        dims.insert(at, depth);
        let (_, _, inner) = around(&dims, at);
        let mut out = ctx.alloc(values.dtype(), dims)?;
        let (off, on) = values.as_bytes().split_at(size);
        let bytes = out.as_bytes_mut()?;
        bytes.chunks_exact_mut(size).for_each(|to| to.copy_from_slice(off));
        for (i, index) in whole(ctx, indices)?.into_iter().enumerate() {
            if let Ok(class) = crate::index::position(index, depth) {
                let to = (i / inner * depth + class) * inner + i % inner;
                bytes[to * size..][..size].copy_from_slice(on);
            }
        }
        Ok(vec![out])
    }
}

/// The elements as integers.
fn whole(ctx: &Context, x: &TensorView<'_>) -> Result<Vec<i64>> {
    let cast = crate::ops::Cast { to: DType::I64 }.run(ctx, &[Some(x.clone())])?;
    Ok(cast
        .first()
        .map(|x| x.as_slice::<i64>().map(<[_]>::to_vec))
        .transpose()?
        .unwrap_or_default())
}
