//! Cuts ranges out of axes.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{self, ints_or, optional, output_moved, required};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::{Reordered, moved_axis};
use crate::rewrite::{Operand, operands};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Slice`: inputs data, starts, ends, axes (optional), steps (optional), each i32 or i64 rank 1.
/// Each field replaces its input where that is absent (opset < 10).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slice {
    /// First index of each axis, negative from the back, clamped.
    pub starts: Option<Vec<i64>>,
    /// Index after the last, negative from the back, clamped.
    pub ends: Option<Vec<i64>>,
    /// Axes that are sliced; the first ones when absent.
    pub axes: Option<Vec<i64>>,
    /// Step of each axis, not 0; all 1 when absent.
    pub steps: Option<Vec<i64>>,
}

/// A range on one axis as written: ends may be negative or beyond the axis.
#[derive(Debug, Clone, Copy)]
struct Cut {
    axis: usize,
    start: i64,
    end: i64,
    step: i64,
}

impl Cut {
    /// First index and number of indices on an axis of size `n`.
    fn on(&self, n: usize) -> (usize, usize) {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let from_back = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
        let (start, end) = (from_back(self.start), from_back(self.end));
        let distance = if self.step > 0 {
            let (start, end) = (start.clamp(0, n), end.clamp(0, n));
            return (to_usize(start), to_usize(end - start).div_ceil(to_usize(self.step)));
        } else if n == 0 {
            return (0, 0);
        } else {
            start.clamp(0, n - 1) - end.clamp(-1, n - 1)
        };
        let step = usize::try_from(self.step.unsigned_abs()).unwrap_or(usize::MAX);
        (to_usize(start.clamp(0, n - 1)), to_usize(distance).div_ceil(step))
    }

    /// The number of indices on an axis of this size.
    fn output(&self, dim: &Dim) -> Dim {
        match dim {
            Dim::Known(n) => Dim::Known(self.on(*n).1),
            // No axis is longer than i32::MAX, so that the whole axis stays.
            dim if self.start == 0 && self.end >= i64::from(i32::MAX) && self.step == 1 => {
                dim.clone()
            }
            _ => Dim::Unknown,
        }
    }
}

/// The number, or 0 where it is negative.
fn to_usize(n: i64) -> usize {
    usize::try_from(n).unwrap_or(0)
}

impl Slice {
    /// The ranges; `None` while an input is unknown.
    fn cuts(&self, inputs: &[Option<&ValueInfo>], rank: usize) -> Result<Option<Vec<Cut>>> {
        let read = |i, what, attribute: &Option<Vec<i64>>| {
            ints_or(what, optional(inputs, i), attribute.as_deref())
        };
        let missing = |what: &str| Error::invalid(format!("{what} are missing"));
        let starts = read(1, "starts", &self.starts)?.ok_or_else(|| missing("starts"))?;
        let ends = read(2, "ends", &self.ends)?.ok_or_else(|| missing("ends"))?;
        let (axes, steps) = (read(3, "axes", &self.axes)?, read(4, "steps", &self.steps)?);
        let (Some(starts), Some(ends)) = (starts, ends) else { return Ok(None) };
        let n = starts.len();
        let axes = match axes {
            Some(None) => return Ok(None),
            Some(Some(axes)) => args::axes(&axes, rank)?,
            None => (0..n).collect(),
        };
        let steps = match steps {
            Some(None) => return Ok(None),
            Some(Some(steps)) => steps,
            None => vec![1; n],
        };
        if [ends.len(), axes.len(), steps.len()] != [n; 3] || n > rank {
            let message = format!(
                "{n} starts, {} ends, {} axes and {} steps for rank {rank}, expected equal numbers",
                ends.len(),
                axes.len(),
                steps.len()
            );
            return Err(Error::invalid(message));
        }
        if steps.contains(&0) {
            return Err(Error::invalid(format!("steps are {steps:?}, expected no 0")));
        }
        let cut = |i| Cut { axis: axes[i], start: starts[i], end: ends[i], step: steps[i] };
        Ok(Some((0..n).map(cut).collect()))
    }

    /// The axes that may be cut, where they are known; the ranges may be unknown.
    fn cut_axes(&self, inputs: &[Option<&ValueInfo>], rank: usize) -> Option<Vec<usize>> {
        let named = ints_or("axes", optional(inputs, 3), self.axes.as_deref()).ok()?;
        if let Some(named) = named {
            return args::axes(&named?, rank).ok();
        }
        let count = match optional(inputs, 1) {
            Some(starts) => starts.dim(0)?.known()?,
            None => self.starts.as_ref()?.len(),
        };
        Some((0..count.min(rank)).collect())
    }
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "Slice"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=5
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) => Some(match self.cuts(inputs, dims.len())? {
                None => vec![Dim::Unknown; dims.len()],
                Some(cuts) => {
                    let mut out = dims.to_vec();
                    for cut in cuts {
                        out[cut.axis] = cut.output(&dims[cut.axis]);
                    }
                    out
                }
            }),
        };
        output_moved(self, inputs, 0..1, shape)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank());
        match rank.and_then(|rank| self.cut_axes(inputs, rank)) {
            Some(cut) => Axes::each_but(&cut, inputs, outputs.len()),
            None => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        inputs.first().copied().flatten().filter(|x| x.rank() == Some(order.len()))?;
        let axes = match (inputs.get(3).copied().flatten(), &self.axes) {
            (Some(axes), _) => axes.ints("axes").ok()??,
            (None, Some(axes)) => axes.clone(),
            (None, None) => {
                let starts = match &self.starts {
                    Some(starts) => starts.len(),
                    None => inputs.get(1).copied().flatten()?.dim(0)?.known()?,
                };
                (0..i64::try_from(starts).ok()?).collect()
            }
        };
        let axes = axes.into_iter().map(|axis| moved_axis(order, axis)).collect::<Option<_>>()?;
        let mut given = operands(inputs);
        if let Some(axes) = given.get_mut(3) {
            *axes = Operand::Absent;
        }
        let op = Self { axes: Some(axes), ..self.clone() };
        Some(Reordered::with(op, inputs.len(), given))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
