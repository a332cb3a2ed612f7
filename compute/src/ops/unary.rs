//! Element-wise operators of one input.

mod cpu;
mod device;
mod math;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{arity, output, required};
use crate::device::Element;
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::op::{Context, Given, Op, ValueInfo, as_large};
use lgp_memory::{DType, Tensor, TensorView};

pub(crate) use math::Exp;

/// Which function of an element.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "ONNX's own names; the parameters are its attributes")]
pub enum UnaryKind {
    Relu,
    LeakyRelu {
        alpha: f32,
    },
    Elu {
        alpha: f32,
    },
    Celu {
        alpha: f32,
    },
    Selu {
        alpha: f32,
        gamma: f32,
    },
    ThresholdedRelu {
        alpha: f32,
    },
    Sigmoid,
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    HardSwish,
    Mish,
    /// `tanh` is ONNX's `approximate="tanh"`.
    Gelu {
        tanh: bool,
    },
    /// `x · sigmoid(alpha · x)`; SiLU when alpha is 1.
    Swish {
        alpha: f32,
    },
    /// `scale · x + shift`: what mappings write arithmetic with constants in.
    Linear {
        scale: f32,
        shift: f32,
    },
    Softplus,
    Softsign,
    Tanh,
    Erf,
    Exp,
    Log,
    Sqrt,
    Reciprocal,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    /// Zero within `lambd` of zero, moved by `bias` towards zero elsewhere.
    Shrink {
        bias: f32,
        lambd: f32,
    },
    Floor,
    Ceil,
    /// Half to even.
    Round,
    Neg,
    Abs,
    Sign,
    Not,
    IsNaN,
    /// Which infinities count.
    IsInf {
        positive: bool,
        negative: bool,
    },
}

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
        match self.kind {
            UnaryKind::Relu => "Relu",
            UnaryKind::LeakyRelu { .. } => "LeakyRelu",
            UnaryKind::Elu { .. } => "Elu",
            UnaryKind::Celu { .. } => "Celu",
            UnaryKind::Selu { .. } => "Selu",
            UnaryKind::ThresholdedRelu { .. } => "ThresholdedRelu",
            UnaryKind::Sigmoid => "Sigmoid",
            UnaryKind::HardSigmoid { .. } => "HardSigmoid",
            UnaryKind::HardSwish => "HardSwish",
            UnaryKind::Mish => "Mish",
            UnaryKind::Gelu { .. } => "Gelu",
            UnaryKind::Swish { .. } => "Swish",
            UnaryKind::Linear { .. } => "Linear",
            UnaryKind::Softplus => "Softplus",
            UnaryKind::Softsign => "Softsign",
            UnaryKind::Tanh => "Tanh",
            UnaryKind::Erf => "Erf",
            UnaryKind::Exp => "Exp",
            UnaryKind::Log => "Log",
            UnaryKind::Sqrt => "Sqrt",
            UnaryKind::Reciprocal => "Reciprocal",
            UnaryKind::Sin => "Sin",
            UnaryKind::Cos => "Cos",
            UnaryKind::Tan => "Tan",
            UnaryKind::Asin => "Asin",
            UnaryKind::Acos => "Acos",
            UnaryKind::Atan => "Atan",
            UnaryKind::Sinh => "Sinh",
            UnaryKind::Cosh => "Cosh",
            UnaryKind::Asinh => "Asinh",
            UnaryKind::Acosh => "Acosh",
            UnaryKind::Atanh => "Atanh",
            UnaryKind::Shrink { .. } => "Shrink",
            UnaryKind::Floor => "Floor",
            UnaryKind::Ceil => "Ceil",
            UnaryKind::Round => "Round",
            UnaryKind::Neg => "Neg",
            UnaryKind::Abs => "Abs",
            UnaryKind::Sign => "Sign",
            UnaryKind::Not => "Not",
            UnaryKind::IsNaN => "IsNaN",
            UnaryKind::IsInf { .. } => "IsInf",
        }
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity(self.name(), inputs, 1, 1)?;
        let x = required(self.name(), inputs, 0)?;
        let given = x.ty.dtype;
        let fits = match self.kind {
            UnaryKind::Not => given == DType::Bool,
            UnaryKind::Relu
            | UnaryKind::Neg
            | UnaryKind::Abs
            | UnaryKind::Sign
            | UnaryKind::Shrink { .. } => given != DType::Bool,
            _ => given.is_float(),
        };
        if !fits {
            return Err(Error::invalid(self.name(), format!("it has no meaning for {given}")));
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
        cpu::numbers(self, ctx, None, &mut out)?;
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

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        if crate::widen::is_half(inputs) {
            return crate::widen::widened(self, ctx, inputs);
        }
        cpu::run(self, ctx, inputs)
    }
}
