//! Element-wise operators of one input.

mod cpu;
mod device;
mod loops;
pub(crate) mod math;
mod table;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{output, required};
use crate::device::Element;
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::op::{Context, Given, Op, ValueInfo, as_large};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

pub(crate) use math::Exp;
pub use table::UnaryKind;

/// An element-wise operator of one input; the output has its type, except those of `IsNaN` and
/// `IsInf`, which are bool.
#[derive(Debug, Clone, PartialEq)]
pub struct Unary {
    /// The function.
    pub kind: UnaryKind,
}

impl Unary {
    /// The operator of a function.
    #[must_use]
    pub fn new(kind: UnaryKind) -> Self {
        Self { kind }
    }
}

impl Op for Unary {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let given = x.ty.dtype;
        let fits = match self.kind {
            UnaryKind::Not => given == DType::Bool,
            // Integers are computed in f64.
            UnaryKind::Shrink { .. } => given != DType::Bool,
            kind if kind.takes_integers() => given != DType::Bool,
            _ => given.is_float(),
        };
        if !fits {
            return Err(Error::invalid(format!("dtype {given} is not supported")));
        }
        let asks = matches!(self.kind, UnaryKind::IsNaN | UnaryKind::IsInf { .. });
        let dtype = if asks { DType::Bool } else { given };
        Ok(output(dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn overwrites(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
        let asks = matches!(self.kind, UnaryKind::Not | UnaryKind::Shrink { .. });
        if asks { Vec::new() } else { as_large(inputs, outputs) }
    }

    fn run_over(
        &self,
        ctx: &Context,
        given: Given,
        inputs: &[Option<TensorView<'_>>],
    ) -> Result<Vec<Tensor>> {
        let mut out = given.checked(self, inputs)?;
        let computed = cpu::numbers(self, ctx, None, &mut out);
        computed.map_err(|error| error.of(self.name()))?;
        Ok(vec![out])
    }

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        device::expression(self, x)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn activation(&self, _: &[Option<&ValueInfo>]) -> Option<Activation> {
        Activation::from_unary(self.kind)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
