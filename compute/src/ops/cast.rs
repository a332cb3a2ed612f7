//! Conversion between dtypes.

mod cpu;
mod device;
mod small;
#[cfg(test)]
mod tests;
mod text;

use crate::Axes;
use crate::args::{optional, output, required};
use crate::device::Element;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::Decoder;
use lgp_memory::{DType, PowerRounding, Tensor, TensorView};
use small::Manner;
use std::ops::RangeInclusive;

/// `Cast`: converts every element. Floats to integers truncate and saturate, NaN becomes 0;
/// integers wrap; anything but zero is `true`. Integers of fewer than eight bits keep the low bits
/// of the cast to i8. Floats of eight bits and fewer round half to even and saturate; powers of two
/// round up. Complex numbers are not cast to other dtypes.
/// Strings spell numbers; numbers become the shortest strings that spell them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cast {
    /// The output's dtype.
    pub to: DType,
}

/// `Cast` and `CastLike` with all their options: the dtype is an attribute or that of a second
/// input, and floats of eight bits need not saturate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CastAs {
    /// The output's dtype; `None` takes it from input 1.
    pub to: Option<DType>,
    /// Whether a number beyond the range of a float of eight bits becomes the largest number,
    /// rather than infinity or NaN.
    pub saturate: bool,
    /// How a number becomes a power of two, for [`DType::F8E8M0`] alone.
    pub rounding: PowerRounding,
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        "Cast"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        infer(self.to, required(inputs, 0)?)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        optional(inputs, 0).map_or(0, |x| small::scratch_bytes(x, self.to))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        device::expression(x.first().copied().flatten()?, self.to)
    }

    fn casts_to(&self) -> Option<DType> {
        Some(self.to)
    }

    fn decodes(&self) -> Option<Decoder> {
        (self.to == DType::F32).then_some(Decoder::Widens)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs, Manner { saturate: true, rounding: PowerRounding::Up })
    }
}

impl Op for CastAs {
    fn name(&self) -> &'static str {
        if self.to.is_some() { "Cast" } else { "CastLike" }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        if self.to.is_some() { 1..=1 } else { 2..=2 }
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let to = match self.to {
            Some(to) => to,
            None => required(inputs, 1)?.ty.dtype,
        };
        infer(to, required(inputs, 0)?)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let (Some(x), Ok(out)) = (optional(inputs, 0), self.infer(inputs)) else { return 0 };
        out.first().map_or(0, |y| small::scratch_bytes(x, y.ty.dtype))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        // Of a second input only the dtype is read.
        Axes::elementwise(inputs.get(..1).unwrap_or_default(), outputs)
    }

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let to = match self.to {
            Some(to) => to,
            None => x.get(1).copied().flatten()?.dtype,
        };
        device::expression(x.first().copied().flatten()?, to)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let to = match self.to {
            Some(to) => to,
            None => required(inputs, 1)?.dtype(),
        };
        let manner = Manner { saturate: self.saturate, rounding: self.rounding };
        let cast = Cast { to };
        cpu::run(&cast, ctx, inputs.get(..1).unwrap_or_default(), manner)
            .map_err(|error| error.of(cast.name()))
    }
}

fn infer(to: DType, x: &ValueInfo) -> Result<Vec<ValueInfo>> {
    let dims = x.dims.clone().filter(|_| matches!(to, DType::I32 | DType::I64));
    let out = output(to, x.sym_shape().map(<[_]>::to_vec));
    Ok(out.into_iter().map(|o| o.with_contents(dims.clone())).collect())
}
