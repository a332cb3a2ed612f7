//! Running sums and products.

mod device;

use crate::Axes;
use crate::args::{axis, concrete_one, not_bool, optional, output, required, single};
use crate::device::Launches;
use crate::error::Result;
use crate::index::{index_dtype, ints};
use crate::movement::around;
use crate::number::{Number, with_type};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `CumSum`, `CumProd`: inputs x of any numeric dtype and the axis (i32 or i64, one element).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cumulative {
    /// Products rather than sums.
    pub product: bool,
    /// An element is not part of its own result.
    pub exclusive: bool,
    /// From the end to the start.
    pub reverse: bool,
}

impl Op for Cumulative {
    fn name(&self) -> &'static str {
        if self.product { "CumProd" } else { "CumSum" }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, along) = (required(inputs, 0)?, required(inputs, 1)?);
        not_bool(x.ty.dtype)?;
        index_dtype("the axis", along.ty.dtype)?;
        single("the axis", along)?;
        if let (Some(dims), Some(along)) = (x.sym_shape(), along.ints("the axis")?) {
            for along in along {
                axis(along, dims.len())?;
            }
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        let along = optional(inputs, 1)
            .and_then(|along| along.ints("the axis").ok()?)
            .and_then(|along| axis(*along.first()?, rank).ok());
        along.map_or_else(Axes::new, |along| Axes::each_but(&[along], inputs, outputs.len()))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let along = ints("the axis", required(inputs, 1)?)?;
        let along = along.first().copied().unwrap_or(0);
        let (_, n, inner) = around(&shape, axis(along, shape.rank())?);
        let mut out = ctx.alloc(dtype, shape)?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        with_type!(dtype, number T => {
            let x = x.as_slice::<T>()?;
            let combine: fn(T, T) -> T = if self.product { Number::mul } else { Number::add };
            let start = if self.product { T::ONE } else { T::ZERO };
            ctx.split(out.as_mut_slice::<T>()?, n * inner, n * inner * 2, |first, part| {
                let mut running = vec![start; inner];
                for (i, part) in part.chunks_exact_mut(n * inner).enumerate() {
                    let x = &x[(first + i) * n * inner..][..n * inner];
                    running.fill(start);
                    for j in 0..n {
                        let row = if self.reverse { n - 1 - j } else { j } * inner;
                        let rows = part[row..].iter_mut().zip(&x[row..]);
                        for (sum, (out, x)) in running.iter_mut().zip(rows) {
                            let next = combine(*sum, *x);
                            *out = if self.exclusive { *sum } else { next };
                            *sum = next;
                        }
                    }
                }
            });
            Ok(())
        })?;
        Ok(vec![out])
    }
}
