//! Attention in one step: the scores of a few rows at a time stay in the cache, and nothing is
//! transposed. Not an ONNX operator: a pass replaces the chain of products, softmax and transposes
//! that exporters write.

mod cpu;
mod device;
mod few;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{optional, output, required, same_dtype};
use crate::device::Launches;
use crate::dims::{self, surely_equal};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `softmax(scale · q · k + mask) · v` in f32, for inputs q, k, v and a mask that may be absent.
///
/// Each of the first three is transposed first, by axes as in `Transpose`: q to `[b, h, s, d]`,
/// k to `[b, h, d, t]`, v to `[b, h, t, e]`. The mask broadcasts to `[b, h, s, t]`; the batches and
/// heads of all broadcast to each other. With sharing, k and v have fewer heads, each of which
/// serves so many neighbouring heads of q, as in grouped-query attention
/// (<https://arxiv.org/abs/2305.13245>).
#[derive(Debug, Clone, PartialEq)]
pub struct Sdpa {
    /// The axes of q; the last stays the last.
    pub q: [usize; 4],
    /// The axes of k.
    pub k: [usize; 4],
    /// The axes of v.
    pub v: [usize; 4],
    /// Whether the output is `[b, s, h, e]` instead of `[b, h, s, e]`.
    pub swapped: bool,
    /// Factor of the scores.
    pub scale: f32,
    /// How many heads of q share a head of k and v; at least 1.
    pub sharing: usize,
}

impl Sdpa {
    fn sizes(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<[Dim; 4]>> {
        let moved = |i: usize, axes: [usize; 4]| -> Result<Option<[Dim; 4]>> {
            let Some(dims) = required(inputs, i)?.sym_shape() else { return Ok(None) };
            if dims.len() != 4 || (0..4).any(|axis| !axes.contains(&axis)) {
                let message =
                    format!("input {i} has rank {} and axes {axes:?}, expected 4", dims.len());
                return Err(Error::invalid(message));
            }
            Ok(Some(axes.map(|a| dims[a].clone())))
        };
        let (q, k, v) = (moved(0, self.q)?, moved(1, self.k)?, moved(2, self.v)?);
        let shared = |dims: Option<[Dim; 4]>| -> Result<Option<[Dim; 4]>> {
            let Some([b, h, rows, columns]) = dims else { return Ok(None) };
            Ok(Some([b, dims::mul(&h, &Dim::Known(self.sharing))?, rows, columns]))
        };
        let (k, v) = (shared(k)?, shared(v)?);
        if self.q[3] != 3 {
            return Err(Error::unsupported("a first input whose last axis moves"));
        }
        if self.sharing == 0 {
            return Err(Error::invalid("0 heads share a head of keys, expected at least 1"));
        }
        let (Some(q), Some(k), Some(v)) = (q, k, v) else { return Ok(None) };
        dims::expect("the depth of input 1", &q[3], &k[2])?;
        dims::expect("the length of input 2", &k[3], &v[2])?;
        let mut outer = dims::broadcast(&q[..2], &k[..2])?;
        outer = dims::broadcast(&outer, &v[..2])?;
        if let Some(mask) = optional(inputs, 3).map(|mask| mask.sym_shape()) {
            let Some(mask) = mask else { return Ok(None) };
            let scores = [outer[0].clone(), outer[1].clone(), q[2].clone(), k[3].clone()];
            let all = dims::broadcast(&scores, mask)?;
            if all.len() != 4 {
                let message = format!("the mask has rank {}, expected at most 4", mask.len());
                return Err(Error::invalid(message));
            }
            dims::expect("the rows of the mask", &q[2], &all[2])?;
            dims::expect("the columns of the mask", &k[3], &all[3])?;
            outer = all[..2].to_vec();
        }
        let [b, h] = [outer[0].clone(), outer[1].clone()];
        let [_, _, s, _] = q;
        let [_, _, _, e] = v;
        Ok(Some(if self.swapped { [b, s, h, e] } else { [b, h, s, e] }))
    }

    /// `None` where the mask's rank is unknown.
    fn named_axes(&self, inputs: &[Option<&ValueInfo>]) -> Option<Axes> {
        let Self { q, k, v, .. } = self;
        let mask = optional(inputs, 3);
        let rank = mask.map_or(Some(0), |mask| mask.rank())?;
        // The mask's axis for an axis of the scores.
        let own = |axis: usize| Some((3, (axis + rank).checked_sub(4)?));
        let (rows, heads) = if self.swapped { (1, 2) } else { (2, 1) };
        let mut axes = Axes::new()
            .each([(0, q[0]), (1, k[0]), (2, v[0])].into_iter().chain(own(0)), [(0, 0)])
            .each([(0, q[2])].into_iter().chain(own(2)), [(0, rows)])
            .each([(2, v[3])], [(0, 3)])
            .all([(0, q[3]), (1, k[2])], []);
        // Heads that share keys cannot be told apart one by one.
        if self.sharing == 1 {
            let heads_of_all = [(0, q[1]), (1, k[1]), (2, v[1])].into_iter().chain(own(1));
            axes = axes.each(heads_of_all, [(0, heads)]);
        }
        let columns = own(3);
        let keys = |mask: Option<(usize, usize)>| [(1, k[3]), (2, v[2])].into_iter().chain(mask);
        let width = columns.and_then(|(_, axis)| mask?.dim(axis));
        let length = optional(inputs, 1).and_then(|key| key.dim(k[3]));
        Some(if columns.is_none() || surely_equal(width, length) {
            axes.all(keys(columns), [])
        } else if width == Some(&Dim::Known(1)) {
            // The mask has one column for all keys.
            axes.all(keys(None), [])
        } else {
            axes
        })
    }
}

impl Op for Sdpa {
    fn name(&self) -> &'static str {
        "Sdpa"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        for (i, what) in ["input 0", "input 1", "input 2", "the mask"].iter().enumerate() {
            if let Some(x) = optional(inputs, i) {
                same_dtype(what, DType::F32, x.ty.dtype)?;
            }
        }
        Ok(output(DType::F32, self.sizes(inputs)?.map(|dims| dims.to_vec())))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        self.named_axes(inputs).unwrap_or_default()
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let dim = |i: usize, axis: usize| Some(optional(inputs, i)?.dim(axis)?.known()? as u64);
        let sizes = || Some([dim(0, self.q[3])?, dim(1, self.k[3])?, dim(2, self.v[3])?]);
        let Some([depth, keys, width]) = sizes() else { return 0 };
        let elements = outputs.first().map_or(0, crate::cost::elements);
        let rows = elements.checked_div(width).unwrap_or(0);
        rows.saturating_mul(keys).saturating_mul(depth.saturating_add(width))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = |i, axes: [usize; 4]| {
            let shape = optional(inputs, i)?.ty.concrete_shape()?;
            let dims: [usize; 4] = shape.dims().try_into().ok()?;
            Some(axes.map(|a| dims[a]))
        };
        let sizes = || {
            let ([_, _, s, d], [_, _, _, t]) = (shape(0, self.q)?, shape(1, self.k)?);
            let [_, _, _, e] = shape(2, self.v)?;
            cpu::scratch(s, d, t, e)
        };
        sizes().unwrap_or(0).saturating_mul(threads).saturating_mul(4)
    }
}
