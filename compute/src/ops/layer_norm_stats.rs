//! What layer normalisation knows of each row besides its result.

use crate::Axes;
use crate::args::{arity, axis, concrete, float, optional, required};
use crate::error::{Error, Result};
use crate::norm::moments;
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, SymShape, Tensor, TensorType, TensorView};

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

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let op = self.name();
        arity(op, inputs, 1, 1)?;
        let x = required(op, inputs, 0)?;
        float(op, x.ty.dtype)?;
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) => {
                let first = axis(op, self.axis, dims.len())?;
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
        let Ok(first) = axis(self.name(), self.axis, rank) else { return Axes::new() };
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

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        if crate::widen::is_half(inputs) {
            return crate::widen::widened(self, ctx, inputs);
        }
        let op = self.name();
        let x = required(op, inputs, 0)?;
        let types = concrete(self, inputs)?;
        let [(dtype, shape), _] = &types[..] else {
            return Err(Error::invalid(op, "there are no two outputs"));
        };
        let mut mean = ctx.alloc(*dtype, shape.clone())?;
        let mut deviation = ctx.alloc(*dtype, shape.clone())?;
        with_type!(op, *dtype, real T => {
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
