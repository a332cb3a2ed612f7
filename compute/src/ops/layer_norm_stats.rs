//! The mean and the deviation of each row of a layer normalisation.

use crate::Axes;
use crate::args::{axis, concrete, float, optional, required};
use crate::error::{Error, Result};
use crate::norm::moments;
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// The second and third output of `LayerNormalization`: the mean and the reciprocal standard
/// deviation over the axes from `axis` on, which keep the size 1. Input: x of f32 or f64.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNormStats {
    /// First axis that is normalised, negative from the back.
    pub axis: i64,
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Op for LayerNormStats {
    fn name(&self) -> &'static str {
        "LayerNormalization"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) => {
                let first = axis(self.axis, dims.len())?;
                let mut dims = dims.to_vec();
                dims[first..].fill(Dim::Known(1));
                Some(SymShape(dims))
            }
        };
        let one = ValueInfo::of(TensorType { dtype: x.ty.dtype, shape });
        Ok(vec![one.clone(), one])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        let Ok(first) = axis(self.axis, rank) else { return Axes::new() };
        let normalised: Vec<usize> = (first..rank).collect();
        let axes = Axes::each_but(&normalised, inputs, outputs.len());
        normalised.iter().fold(axes, |axes, &axis| axes.all([(0, axis)], []))
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        optional(inputs, 0).map_or(0, |x| crate::cost::elements(x))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let x = required(inputs, 0)?;
        let types = concrete(self, inputs)?;
        let [(dtype, shape), _] = &types[..] else {
            return Err(Error::invalid("there are no two outputs"));
        };
        let mut mean = ctx.alloc(*dtype, shape.clone())?;
        let mut deviation = ctx.alloc(*dtype, shape.clone())?;
        with_type!(*dtype, real T => {
            let x = x.as_slice::<T>()?;
            let rows = mean.as_mut_slice::<T>()?.iter_mut().zip(deviation.as_mut_slice::<T>()?);
            let n = x.len().checked_div(shape.elements()?).unwrap_or(0);
            for (i, (mean, deviation)) in rows.enumerate() {
                (*mean, *deviation) = moments(ctx.simd(), &x[i * n..][..n], self.epsilon);
            }
            Ok(())
        })?;
        Ok(vec![mean, deviation])
    }
}
