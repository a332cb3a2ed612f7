//! Element-wise operators.

use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    Binary, BinaryKind, Clip, Identity, Reshape, Shape, Unary, UnaryKind, Where,
};

macro_rules! unary {
    ($($name:ident => $kind:ident),* $(,)?) => { $(
        pub(crate) fn $name(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
            cx.map(Unary::new(UnaryKind::$kind))
        }
    )* };
}
unary!(
    abs => Abs, ceil => Ceil, cos => Cos, erf => Erf, exp => Exp, floor => Floor,
    hard_swish => HardSwish, is_nan => IsNaN, log => Log, mish => Mish, neg => Neg, not => Not,
    reciprocal => Reciprocal, relu => Relu, round => Round, sigmoid => Sigmoid, sign => Sign,
    sin => Sin, softplus => Softplus, softsign => Softsign, sqrt => Sqrt, tanh => Tanh,
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

/// Before opset 7 a flag allowed broadcasting. Without the attribute `axis`, which shifts the
/// smaller shape and is refused, it means what all later opsets do anyway.
fn binary_op(cx: &mut NodeCx<'_>, kind: BinaryKind) -> Result<(), Refusal> {
    cx.ignore(&["broadcast"]);
    cx.map(Binary::new(kind))
}

pub(crate) fn p_relu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.ignore(&["consumed_inputs"]);
    if cx.opset >= 7 {
        return cx.map(Binary::new(BinaryKind::PRelu));
    }
    // The slope belonged to the channels, the second axis, which is another one than broadcasting
    // takes.
    let (x, slope) = (cx.input(0), cx.input(1));
    let shape = cx.emit(Shape::default(), vec![x]);
    let planes = cx.emit_ints(&[0, 0, -1])?;
    let planes = cx.emit(Reshape::default(), vec![x, Some(planes)]);
    let column = cx.emit_ints(&[-1, 1])?;
    let column = cx.emit(Reshape::default(), vec![slope, Some(column)]);
    let out = cx.emit(Binary::new(BinaryKind::PRelu), vec![Some(planes), Some(column)]);
    cx.map_with(Reshape { allow_zero: true }, vec![Some(out), Some(shape)])
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

/// Any number of inputs, from the left.
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
