//! The largest or smallest elements along an axis.

mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{axis, ints_or, not_bool, optional, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::index::pick;
use crate::movement::around;
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// `TopK`: inputs x of any numeric dtype and k (i64 `[1]`); outputs the values and their
/// positions (i64), in order; of equal values the first comes first, and NaN is the largest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopK {
    /// Axis, negative from the back.
    pub axis: i64,
    /// The largest elements rather than the smallest.
    pub largest: bool,
    /// Replaces an absent k input (opset < 10).
    pub k: Option<i64>,
}

impl TopK {
    fn count(&self, inputs: &[Option<&ValueInfo>], size: &Dim) -> Result<Dim> {
        let attribute = self.k.map(|k| vec![k]);
        let given = ints_or("k", optional(inputs, 1), attribute.as_deref())?
            .ok_or_else(|| Error::invalid("k is missing"))?;
        let Some(given) = given else { return Ok(Dim::Unknown) };
        let wrong =
            || Error::invalid(format!("k is {given:?}, expected one number of at most {size}"));
        let [k] = given[..] else { return Err(wrong()) };
        let k = usize::try_from(k).map_err(|_| wrong())?;
        if size.known().is_some_and(|n| k > n) {
            return Err(wrong());
        }
        Ok(Dim::Known(k))
    }
}

impl Op for TopK {
    fn name(&self) -> &'static str {
        "TopK"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        not_bool(x.ty.dtype)?;
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) => {
                let axis = axis(self.axis, dims.len())?;
                let mut out = dims.to_vec();
                out[axis] = self.count(inputs, &dims[axis])?;
                Some(SymShape(out))
            }
        };
        let of = |dtype| ValueInfo::of(TensorType { dtype, shape: shape.clone() });
        Ok(vec![of(x.ty.dtype), of(DType::I64)])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank());
        match rank.map(|rank| axis(self.axis, rank)) {
            Some(Ok(axis)) => Axes::each_but(&[axis], inputs, outputs.len()),
            _ => Axes::new(),
        }
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

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let types = crate::args::concrete(self, inputs)?;
        let x = required(inputs, 0)?;
        let axis = axis(self.axis, x.shape().rank())?;
        let shape = types.first().map(|(_, shape)| shape.clone()).unwrap_or_default();
        let (_, n, inner) = around(x.shape(), axis);
        let k = shape[axis];
        let mut positions = ctx.alloc(DType::I64, shape.clone())?;
        let mut values = ctx.alloc(x.dtype(), shape)?;
        if positions.is_empty() {
            return Ok(vec![values, positions]);
        }
        with_type!(x.dtype(), number T => {
            let x = x.as_slice::<T>()?;
            let cost = n.saturating_mul(inner).saturating_mul(8);
            ctx.split(positions.as_mut_slice::<i64>()?, k * inner, cost, |first, part| {
                for (i, part) in part.chunks_exact_mut(k * inner).enumerate() {
                    let block = &x[(first + i) * n * inner..][..n * inner];
                    (0..inner).for_each(|at| self.line(&block[at..], [n, inner, k], &mut part[at..]));
                }
            });
            Ok(())
        })?;
        let from = positions.as_slice::<i64>()?.iter().enumerate();
        let from: Vec<usize> = from
            .map(|(i, &p)| {
                let block = i / (k * inner);
                (block * n + usize::try_from(p).unwrap_or(0)) * inner + i % inner
            })
            .collect();
        pick(x.dtype().size(), x.as_bytes(), &from, values.as_bytes_mut()?);
        Ok(vec![values, positions])
    }
}

impl TopK {
    /// The positions for `n` elements of `x`, `inner` apart.
    fn line<T: PartialOrd + Copy>(&self, x: &[T], [n, inner, k]: [usize; 3], out: &mut [i64]) {
        let by = |&a: &usize, &b: &usize| {
            let (x, y) = (x[a * inner], x[b * inner]);
            let order = compare(x, y);
            (if self.largest { order.reverse() } else { order }).then(a.cmp(&b))
        };
        let mut all: Vec<usize> = (0..n).collect();
        if k < n {
            all.select_nth_unstable_by(k, by);
            all.truncate(k);
        }
        all.sort_unstable_by(by);
        for (i, p) in all.into_iter().enumerate() {
            out[i * inner] = i64::try_from(p).unwrap_or(i64::MAX);
        }
    }
}

/// A total order in which NaN is the largest and equals itself.
#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
pub(crate) fn compare<T: PartialOrd>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| (a != a).cmp(&(b != b)))
}
