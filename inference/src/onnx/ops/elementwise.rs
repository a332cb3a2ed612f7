//! Element-wise operators.

use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    Align, Binary, BinaryKind, Bitwise, BitwiseKind, BitwiseNot, Clip, Identity, Mean, Unary,
    UnaryKind, Where,
};

macro_rules! unary {
    ($($name:ident => $kind:ident),* $(,)?) => { $(
        pub(crate) fn $name(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
            cx.map(Unary::new(UnaryKind::$kind))
        }
    )* };
}
unary!(
    abs => Abs, acos => Acos, acosh => Acosh, asin => Asin, asinh => Asinh, atan => Atan,
    atanh => Atanh, ceil => Ceil, cos => Cos, cosh => Cosh, erf => Erf, exp => Exp, floor => Floor,
    hard_swish => HardSwish, is_nan => IsNaN, log => Log, mish => Mish, neg => Neg, not => Not,
    reciprocal => Reciprocal, relu => Relu, round => Round, sigmoid => Sigmoid, sign => Sign,
    sin => Sin, sinh => Sinh, softplus => Softplus, softsign => Softsign, sqrt => Sqrt, tan => Tan,
    tanh => Tanh,
);

/// Operators with one attribute `alpha` and its default.
macro_rules! with_alpha {
    ($($name:ident => $kind:ident($default:literal)),* $(,)?) => { $(
        pub(crate) fn $name(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
            let alpha = cx.float("alpha")?.unwrap_or($default);
            cx.map(Unary::new(UnaryKind::$kind { alpha }))
        }
    )* };
}
with_alpha!(
    celu => Celu(1.), elu => Elu(1.), leaky_relu => LeakyRelu(0.01),
    swish => Swish(1.), thresholded_relu => ThresholdedRelu(1.),
);

macro_rules! binary {
    ($($name:ident => $kind:ident),* $(,)?) => { $(
        pub(crate) fn $name(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
            binary_op(cx, BinaryKind::$kind)
        }
    )* };
}
binary!(
    add => Add, and => And, div => Div, equal => Equal, greater => Greater,
    greater_or_equal => GreaterOrEqual, less => Less, less_or_equal => LessOrEqual, mul => Mul,
    or => Or, pow => Pow, sub => Sub, xor => Xor,
);

/// Before opset 7 a flag allowed broadcasting, and `axis` aligned the second shape with an axis of
/// the first. Without `axis`, broadcasting was that of all later opsets.
fn binary_op(cx: &mut NodeCx<'_>, kind: BinaryKind) -> Result<(), Refusal> {
    // `consumed_inputs` told opset 1 what may be overwritten.
    cx.ignore(&["broadcast", "consumed_inputs"]);
    match if cx.opset < 7 { cx.int("axis")? } else { None } {
        Some(axis) => aligned(cx, kind, axis),
        None => cx.map(Binary::new(kind)),
    }
}

/// Before opset 7 the slope lay along the channels, where broadcasting takes the last axis.
pub(crate) fn p_relu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.ignore(&["consumed_inputs"]);
    if cx.opset < 7 {
        return aligned(cx, BinaryKind::PRelu, 1);
    }
    cx.map(Binary::new(BinaryKind::PRelu))
}

/// A function of two inputs; the first axis of the second is axis `axis` of the first.
fn aligned(cx: &mut NodeCx<'_>, kind: BinaryKind, axis: i64) -> Result<(), Refusal> {
    let (a, b) = (cx.input(0), cx.input(1));
    let b = cx.emit(Align { axis }, vec![b, a]);
    cx.map_with(Binary::new(kind), vec![a, Some(b)])
}

pub(crate) fn shrink(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (bias, lambd) = (cx.float("bias")?.unwrap_or(0.), cx.float("lambd")?.unwrap_or(0.5));
    cx.map(Unary::new(UnaryKind::Shrink { bias, lambd }))
}

pub(crate) fn is_inf(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let positive = cx.flag("detect_positive")?.unwrap_or(true);
    let negative = cx.flag("detect_negative")?.unwrap_or(true);
    cx.map(Unary::new(UnaryKind::IsInf { positive, negative }))
}

macro_rules! bitwise {
    ($($name:ident => $kind:ident),* $(,)?) => { $(
        pub(crate) fn $name(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
            cx.map(Bitwise { kind: BitwiseKind::$kind })
        }
    )* };
}
bitwise!(bitwise_and => And, bitwise_or => Or, bitwise_xor => Xor);

pub(crate) fn bitwise_not(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(BitwiseNot)
}

pub(crate) fn bit_shift(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kind = match cx.text("direction")?.unwrap_or_default() {
        "LEFT" => BitwiseKind::ShiftLeft,
        "RIGHT" => BitwiseKind::ShiftRight,
        other => return Err(unsupported("direction", other, &["LEFT", "RIGHT"])),
    };
    cx.map(Bitwise { kind })
}

pub(crate) fn mean(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Mean)
}

/// Opset 1 rounded the defaults.
pub(crate) fn selu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let defaults = if cx.opset < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
    let alpha = cx.float("alpha")?.unwrap_or(defaults.0);
    let gamma = cx.float("gamma")?.unwrap_or(defaults.1);
    cx.map(Unary::new(UnaryKind::Selu { alpha, gamma }))
}

pub(crate) fn hard_sigmoid(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let alpha = cx.float("alpha")?.unwrap_or(0.2);
    let beta = cx.float("beta")?.unwrap_or(0.5);
    cx.map(Unary::new(UnaryKind::HardSigmoid { alpha, beta }))
}

pub(crate) fn gelu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let tanh = match cx.text("approximate")?.unwrap_or("none") {
        "tanh" => true,
        "none" => false,
        other => return Err(format!("approximate '{other}', expected 'none' or 'tanh'")),
    };
    cx.map(Unary::new(UnaryKind::Gelu { tanh }))
}

/// The bounds were attributes before opset 11.
pub(crate) fn clip(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = Clip { min: cx.float("min")?, max: cx.float("max")? };
    cx.map(op)
}

pub(crate) fn modulo(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let fmod = cx.flag("fmod")?.unwrap_or(false);
    cx.map(Binary::new(BinaryKind::Mod { fmod }))
}

pub(crate) fn where_(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Where)
}

pub(crate) fn sum(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    variadic(cx, BinaryKind::Add)
}

pub(crate) fn min(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    variadic(cx, BinaryKind::Min)
}

pub(crate) fn max(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    variadic(cx, BinaryKind::Max)
}

/// Folds any number of inputs from the left.
fn variadic(cx: &mut NodeCx<'_>, kind: BinaryKind) -> Result<(), Refusal> {
    let inputs = cx.inputs.clone();
    match *inputs.as_slice() {
        [] => Err("has no inputs, expected at least 1".into()),
        [_] => cx.map(Identity),
        [mut left, ref middle @ .., last] => {
            for &right in middle {
                left = Some(cx.emit(Binary::new(kind), vec![left, right]));
            }
            cx.map_with(Binary::new(kind), vec![left, last])
        }
    }
}
