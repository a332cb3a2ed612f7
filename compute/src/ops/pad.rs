//! Adds elements around a tensor, or cuts them off.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::args::{axes, ints_or, optional, output, required, same_dtype, single};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::{Reordered, moved_axis};
use crate::rewrite::Operand;
use crate::{Axes, AxisKind};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::{Range, RangeInclusive};

/// The values of the new elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadMode {
    /// A given value.
    Constant,
    /// The tensor mirrored at its edge, which is not repeated.
    Reflect,
    /// The nearest element.
    Edge,
    /// The tensor, repeated.
    Wrap,
}

/// `Pad`: inputs x, pads (i64 `[2 · axes]`: all begins, then all ends; negative cuts), value
/// (scalar, optional), axes (optional).
#[derive(Debug, Clone, PartialEq)]
pub struct Pad {
    /// The values of the new elements.
    pub mode: PadMode,
    /// Replaces an absent pads input (opset < 11).
    pub pads: Option<Vec<i64>>,
    /// Replaces an absent value input (opset < 11); 0 when both are absent.
    pub value: Option<f32>,
}

impl Pad {
    /// The number of elements that every axis gains at its begin and its end; `None` while unknown.
    fn amounts(
        &self,
        inputs: &[Option<&ValueInfo>],
        rank: usize,
    ) -> Result<Option<Vec<(i64, i64)>>> {
        let pads = ints_or("pads", optional(inputs, 1), self.pads.as_deref())?
            .ok_or_else(|| Error::invalid("pads are missing"))?;
        let named = match ints_or("axes", optional(inputs, 3), None)? {
            None => (0..rank).collect(),
            Some(Some(named)) => axes(&named, rank)?,
            Some(None) => return Ok(None),
        };
        let Some(pads) = pads else { return Ok(None) };
        if pads.len() != 2 * named.len() {
            let message = format!("{} pads given, expected {}", pads.len(), 2 * named.len());
            return Err(Error::invalid(message));
        }
        let mut out = vec![(0, 0); rank];
        for (i, &axis) in named.iter().enumerate() {
            out[axis] = (pads[i], pads[named.len() + i]);
        }
        Ok(Some(out))
    }

    fn output(&self, dim: &Dim, (begin, end): (i64, i64)) -> Result<Dim> {
        let Dim::Known(n) = *dim else {
            return Ok(if (begin, end) == (0, 0) { dim.clone() } else { Dim::Unknown });
        };
        let size = i64::try_from(n).ok().and_then(|n| n.checked_add(begin)?.checked_add(end));
        let size = size.and_then(|n| usize::try_from(n).ok());
        let wrong = |why: &str| {
            let message = format!("pads {begin} and {end} on an axis of size {n} {why}");
            Error::invalid(message)
        };
        let size = size.ok_or_else(|| wrong("leave no valid size"))?;
        // A mirror has one element less than the axis; an edge needs at least one element.
        let kept = kept(n, (begin, end));
        let reach = match self.mode {
            PadMode::Constant => i64::MAX,
            PadMode::Reflect => (kept.end - kept.start - 1).max(0),
            PadMode::Edge | PadMode::Wrap if kept.is_empty() => 0,
            PadMode::Edge | PadMode::Wrap => i64::MAX,
        };
        if begin > reach || end > reach {
            return Err(wrong("reach beyond what there is to repeat"));
        }
        Ok(Dim::Known(size))
    }
}

/// The part of an axis that negative pads leave; only its elements are repeated.
fn kept(size: usize, (begin, end): (i64, i64)) -> Range<i64> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    begin.min(0).saturating_neg()..size.saturating_add(end.min(0))
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "Pad"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        if let Some(value) = optional(inputs, 2) {
            same_dtype("the value", x.ty.dtype, value.ty.dtype)?;
            single("the value", value)?;
        }
        let shape = match x.sym_shape() {
            None => None,
            Some(dims) => Some(match self.amounts(inputs, dims.len())? {
                None => vec![Dim::Unknown; dims.len()],
                Some(amounts) => {
                    let sized = dims.iter().zip(amounts).map(|(d, a)| self.output(d, a));
                    sized.collect::<Result<Vec<_>>>()?
                }
            }),
        };
        if let Some(shape) = &shape {
            dims::product(shape)?;
        }
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Some(rank) = optional(inputs, 0).and_then(|x| x.rank()) else { return Axes::new() };
        let Ok(Some(amounts)) = self.amounts(inputs, rank) else { return Axes::new() };
        amounts.into_iter().enumerate().fold(Axes::new(), |axes, (axis, (begin, end))| {
            match usize::try_from(begin) {
                Ok(0) if end == 0 => axes.each([(0, axis)], [(0, axis)]),
                Ok(before) if self.mode == PadMode::Constant => {
                    let own = AxisKind::Window { stride: 1, before, extent: 1 };
                    axes.with(own, [(0, axis)], [(0, axis)])
                }
                _ => axes,
            }
        })
    }

    fn moves(&self) -> bool {
        self.mode != PadMode::Constant
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
        let rank = order.len();
        let pads = ints_or("pads", inputs.get(1)?.as_ref(), self.pads.as_deref()).ok()???;
        let axes = match inputs.get(3).copied().flatten() {
            Some(axes) => axes.ints("axes").ok()??,
            None => (0..i64::try_from(rank).ok()?).collect(),
        };
        if pads.len() != 2 * axes.len() {
            return None;
        }
        let mut moved = vec![0; 2 * rank];
        for (i, &axis) in axes.iter().enumerate() {
            let at = usize::try_from(moved_axis(order, axis)?).ok()?;
            (moved[at], moved[rank + at]) = (pads[i], pads[axes.len() + i]);
        }
        let value = inputs.get(2).copied().flatten().map_or(Operand::Absent, |_| Operand::Input(2));
        let op = Self { pads: Some(moved), ..self.clone() };
        let operands = vec![Operand::Input(0), Operand::Absent, value];
        Some(Reordered::with(op, inputs.len(), operands))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
