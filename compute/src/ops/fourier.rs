//! Fourier transforms of lines and of windows that slide over signals.

mod cpu;
mod fft;
#[cfg(test)]
mod tests;

use crate::args::{axis, float, optional, output, rank, required, same_dtype, single};
use crate::error::{Error, Result};
use crate::index::index_dtype;
use crate::op::{Context, Op, ValueInfo};
use crate::{Axes, AxisKind};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `DFT`: inputs x `[…, 1]` (real) or `[…, 2]` (complex), the length (i64, optional: cuts x or
/// adds zeros) and the axis (i64, optional). The output's last axis has size 2, or 1 if it is real.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dft {
    /// The axis where its input is absent, negative from the back; not the last axis.
    pub axis: i64,
    /// The inverse transform, divided by the length.
    pub inverse: bool,
    /// Only the frequencies up to the middle are output. The inverse takes them as its input and
    /// outputs a real signal.
    pub one_sided: bool,
}

/// `STFT`: inputs signal `[n, length, 1 or 2]`, step (i64), window (optional, rank 1) and frame
/// length (i64, optional); output `[n, frames, frequencies, 2]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stft {
    /// Only the frequencies up to the middle are output.
    pub one_sided: bool,
}

/// The value of an integer input of one element, if it is known.
fn number(what: &str, x: &ValueInfo) -> Result<Option<i64>> {
    index_dtype(what, x.ty.dtype)?;
    single(what, x)?;
    Ok(x.ints(what)?.and_then(|n| n.first().copied()))
}

/// A length, which must be 1 or more.
fn length(what: &str, n: i64) -> Result<usize> {
    usize::try_from(n)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| Error::invalid(format!("{what} is {n}, expected 1 or more")))
}

impl Dft {
    /// The transformed axis and the transform's length, as far as they are known.
    #[allow(clippy::type_complexity, reason = "two facts that may be unknown")]
    fn plan(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<(usize, Option<usize>)>> {
        let x = required(inputs, 0)?;
        let along = match optional(inputs, 2) {
            None => Some(self.axis),
            Some(x) => number("the axis", x)?,
        };
        let given = match optional(inputs, 1) {
            None => None,
            Some(n) => Some(number("the length", n)?),
        };
        let (Some(dims), Some(along)) = (x.sym_shape(), along) else { return Ok(None) };
        let along = axis(along, dims.len())?;
        if along + 1 == dims.len() {
            return Err(Error::invalid("the axis is the last one, which holds the parts"));
        }
        let n = match given {
            Some(given) => given.map(|n| length("the length", n)).transpose()?,
            None => match dims[along].known() {
                Some(n) if self.inverse && self.one_sided => Some(2 * n.saturating_sub(1)),
                n => n,
            },
        };
        if n.is_some_and(|n| n == 0) {
            return Err(Error::invalid("nothing cannot be transformed"));
        }
        Ok(Some((along, n)))
    }
}

impl Op for Dft {
    fn name(&self) -> &'static str {
        "DFT"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        if let Some(dims) = x.sym_shape() {
            parts(dims)?;
        }
        let plan = self.plan(inputs)?;
        let Some(dims) = x.sym_shape() else { return Ok(output(x.ty.dtype, None)) };
        let mut shape = dims.to_vec();
        let last = shape.len() - 1;
        shape[last] = Dim::Known(if self.inverse && self.one_sided { 1 } else { 2 });
        match plan {
            None => shape[..last].fill(Dim::Unknown),
            Some((along, n)) => {
                let n = n.map(|n| if self.one_sided && !self.inverse { n / 2 + 1 } else { n });
                shape[along] = n.map_or(Dim::Unknown, Dim::Known);
            }
        }
        Ok(output(x.ty.dtype, Some(shape)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let Ok(Some((along, _))) = self.plan(inputs) else { return Axes::new() };
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        Axes::each_but(&[along, rank.saturating_sub(1)], inputs, outputs.len())
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let Ok(Some((along, Some(n)))) = self.plan(inputs) else { return 0 };
        let Some(shape) = outputs.first().and_then(|y| y.ty.concrete_shape()) else { return 0 };
        let beside = |i: usize| i != along && i + 1 != shape.rank();
        let lines = shape.iter().enumerate().filter(|(i, _)| beside(*i));
        let lines = lines.fold(1u64, |count, (_, &dim)| count.saturating_mul(dim as u64));
        lines.saturating_mul(fft::multiply_adds(n))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::dft(self, ctx, inputs)
    }
}

/// Fails unless the last axis holds real numbers or pairs.
fn parts(dims: &[Dim]) -> Result<()> {
    match dims.last().map(Dim::known) {
        Some(None | Some(1 | 2)) if dims.len() > 1 => Ok(()),
        _ => {
            let shape = lgp_memory::SymShape(dims.to_vec());
            Err(Error::invalid(format!("the shape is {shape}, expected a last axis of 1 or 2")))
        }
    }
}

impl Stft {
    /// The frame's length and the step.
    fn frame(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<[usize; 2]>> {
        let step = number("the step", required(inputs, 1)?)?;
        let frame = match (optional(inputs, 3), optional(inputs, 2)) {
            (Some(x), _) => number("the frame length", x)?,
            (None, Some(window)) => {
                let n = window.sym_shape().and_then(|dims| dims.first()?.known());
                n.and_then(|n| i64::try_from(n).ok())
            }
            _ => return Err(Error::invalid("window and frame length are both missing")),
        };
        let (Some(step), Some(frame)) = (step, frame) else { return Ok(None) };
        let frame = length("the frame length", frame)?;
        Ok(Some([frame, length("the step", step)?]))
    }
}

impl Op for Stft {
    fn name(&self) -> &'static str {
        "STFT"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        rank("the signal", x, 3)?;
        if let Some(window) = optional(inputs, 2) {
            same_dtype("the window", x.ty.dtype, window.ty.dtype)?;
            rank("the window", window, 1)?;
        }
        let frame = self.frame(inputs)?;
        let Some(dims) = x.sym_shape() else { return Ok(output(x.ty.dtype, None)) };
        parts(dims)?;
        let (mut frames, mut frequencies) = (Dim::Unknown, Dim::Unknown);
        if let Some([n, step]) = frame {
            if let Some(length) = dims[1].known() {
                let rest = length.checked_sub(n).ok_or_else(|| {
                    Error::invalid(format!("a frame of {n} is longer than {length}"))
                })?;
                frames = Dim::Known(rest / step + 1);
            }
            frequencies = Dim::Known(if self.one_sided { n / 2 + 1 } else { n });
            let window = optional(inputs, 2).and_then(|w| w.sym_shape()?.first()?.known());
            if let Some(window) = window.filter(|&w| w != n) {
                let message = format!("the window has {window} elements, expected {n}");
                return Err(Error::invalid(message));
            }
        }
        let shape = vec![dims[0].clone(), frames, frequencies, Dim::Known(2)];
        Ok(output(x.ty.dtype, Some(shape)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let axes = Axes::new().each([(0, 0)], [(0, 0)]);
        match self.frame(inputs) {
            Ok(Some([extent, stride])) => {
                let kind = AxisKind::Window { stride, before: 0, extent };
                axes.with(kind, [(0, 1)], [(0, 1)])
            }
            _ => axes,
        }
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let Ok(Some([n, _])) = self.frame(inputs) else { return 0 };
        let Some(shape) = outputs.first().and_then(|y| y.ty.concrete_shape()) else { return 0 };
        let lines = shape.iter().take(2).fold(1u64, |count, &dim| count.saturating_mul(dim as u64));
        lines.saturating_mul(fft::multiply_adds(n))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::stft(self, ctx, inputs)
    }
}
