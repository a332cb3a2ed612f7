//! Adds elements around a tensor, or cuts them off.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::args::{arity, axes, ints_or, optional, output, required, same_dtype, single};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::Range;

/// What the new elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadMode {
    /// A given value.
    Constant,
    /// The tensor mirrored at its edge, which is not repeated.
    Reflect,
    /// The nearest element.
    Edge,
    /// The tensor over and over.
    Wrap,
}

/// `Pad`: inputs x, pads (i64 `[2 · axes]`: all begins, then all ends; negative cuts), value
/// (scalar, optional), axes (optional).
#[derive(Debug, Clone, PartialEq)]
pub struct Pad {
    /// What the new elements are.
    pub mode: PadMode,
    /// Stands in for an absent pads input (opset < 11).
    pub pads: Option<Vec<i64>>,
    /// Stands in for an absent value input (opset < 11); 0 when both are absent.
    pub value: Option<f32>,
}

impl Pad {
    /// What every axis gains at its begin and its end; `None` while unknown.
    fn amounts(
        &self,
        inputs: &[Option<&ValueInfo>],
        rank: usize,
    ) -> Result<Option<Vec<(i64, i64)>>> {
        let pads = ints_or("Pad", "pads", optional(inputs, 1), self.pads.as_deref())?
            .ok_or_else(|| Error::invalid("Pad", "pads are missing"))?;
        let named = match ints_or("Pad", "axes", optional(inputs, 3), None)? {
            None => (0..rank).collect(),
            Some(Some(named)) => axes("Pad", &named, rank)?,
            Some(None) => return Ok(None),
        };
        let Some(pads) = pads else { return Ok(None) };
        if pads.len() != 2 * named.len() {
            let message = format!("{} pads given, expected {}", pads.len(), 2 * named.len());
            return Err(Error::invalid("Pad", message));
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
            Error::invalid("Pad", message)
        };
        let size = size.ok_or_else(|| wrong("leave no valid size"))?;
        // A mirror shows one element less than there is, and an edge needs one.
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

/// What is left of an axis once negative pads have cut it: only that is repeated.
fn kept(size: usize, (begin, end): (i64, i64)) -> Range<i64> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    begin.min(0).saturating_neg()..size.saturating_add(end.min(0))
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "Pad"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Pad", inputs, 1, 4)?;
        let x = required("Pad", inputs, 0)?;
        if let Some(value) = optional(inputs, 2) {
            same_dtype("Pad", "the value", x.ty.dtype, value.ty.dtype)?;
            single("Pad", "the value", value)?;
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
            dims::product("Pad", shape)?;
        }
        Ok(output(x.ty.dtype, shape))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
