//! One where the largest element is, zero elsewhere.

use crate::Axes;
use crate::args::{axis, concrete_one, float, optional, output, required};
use crate::error::Result;
use crate::number::{Number, with_type};
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::{Reordered, moved_axis};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Hardmax`: one float input; of equal elements the first is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardmax {
    /// Axis, negative from the back.
    pub axis: i64,
    /// Takes the maximum over all axes from `axis` on, as opsets before 13 do.
    pub flatten: bool,
}

impl Op for Hardmax {
    fn name(&self) -> &'static str {
        "Hardmax"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        if let Some(dims) = x.sym_shape() {
            axis(self.axis, dims.len())?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let Some(rank) = optional(inputs, 0).and_then(|x| x.rank()) else { return Axes::new() };
        let Ok(axis) = axis(self.axis, rank) else { return Axes::new() };
        // The first of equal elements is taken, so that the order along the reduced axes matters.
        let own: Vec<usize> = if self.flatten { (axis..rank).collect() } else { vec![axis] };
        Axes::each_but(&own, inputs, outputs.len())
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
        let fits = x.rank() == Some(order.len());
        let axis = moved_axis(order, self.axis).filter(|_| fits)?;
        Some(Reordered::first(Self { axis, ..self.clone() }, inputs, 1))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let along = axis(self.axis, shape.rank())?;
        let (_, mut n, mut inner) = crate::movement::around(&shape, along);
        if self.flatten {
            (n, inner) = (n.saturating_mul(inner), 1);
        }
        let mut out = ctx.alloc(dtype, shape)?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        with_type!(dtype, real T => {
            let x = x.as_slice::<T>()?;
            ctx.split(out.as_mut_slice::<T>()?, n * inner, n * inner, |first, part| {
                part.fill(T::ZERO);
                for (i, part) in part.chunks_exact_mut(n * inner).enumerate() {
                    let x = &x[(first + i) * n * inner..][..n * inner];
                    for at in 0..inner {
                        let mut best = at;
                        for j in (at..n * inner).step_by(inner) {
                            if x[j] > x[best] {
                                best = j;
                            }
                        }
                        part[best] = T::ONE;
                    }
                }
            });
            Ok(())
        })?;
        Ok(vec![out])
    }
}
