//! Element-wise operators of one input.

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
    Floor,
    Ceil,
    /// Half to even.
    Round,
    Neg,
    Abs,
    Sign,
    Not,
    IsNaN,
}

/// An element-wise operator of one input; the output has its type, except `IsNaN`'s, which is
/// bool.
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
crate::ops::stub!(Unary);
