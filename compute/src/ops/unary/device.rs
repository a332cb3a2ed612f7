//! The functions as expressions of kernels.

use super::{Unary, UnaryKind};
use crate::device::{Element, all, literal as n};
use lgp_memory::DType;

/// The function of an element; `None` for a dtype that kernels do not calculate it in.
pub(super) fn expression(op: &Unary, x: &[Option<Element<'_>>]) -> Option<String> {
    let [Element { dtype, name: x }] = all(x)?;
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => float(op.kind, x),
        DType::Bool => (op.kind == UnaryKind::Not).then(|| format!("!{x}")),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => match op.kind {
            UnaryKind::Relu | UnaryKind::Abs => Some(x.to_owned()),
            UnaryKind::Sign => Some(format!("{x} != 0")),
            _ => None,
        },
        _ => match op.kind {
            UnaryKind::Relu => Some(format!("{x} < 0 ? 0 : {x}")),
            UnaryKind::Neg => Some(format!("0 - {x}")),
            UnaryKind::Abs => Some(format!("{x} < 0 ? 0 - {x} : {x}")),
            UnaryKind::Sign => Some(format!("({x} > 0) - ({x} < 0)")),
            _ => None,
        },
    }
}

fn float(kind: UnaryKind, x: &str) -> Option<String> {
    let clamped = |y: String| format!("limited({y}, 0.0f, 1.0f)");
    let sigmoid = |y: String| format!("1.0f / (1.0f + exp(-({y})))");
    Some(match kind {
        UnaryKind::Relu => format!("{x} < 0.0f ? 0.0f : {x}"),
        UnaryKind::LeakyRelu { alpha } => format!("{x} < 0.0f ? {} * {x} : {x}", n(alpha)),
        UnaryKind::Elu { alpha } => format!("{x} < 0.0f ? {} * expm1({x}) : {x}", n(alpha)),
        UnaryKind::Celu { alpha } => {
            format!("{x} > 0.0f ? {x} : {0} * expm1({x} / {0})", n(alpha))
        }
        UnaryKind::Selu { alpha, gamma } => {
            let (alpha, gamma) = (n(alpha), n(gamma));
            format!("{gamma} * ({x} > 0.0f ? {x} : {alpha} * expm1({x}))")
        }
        UnaryKind::ThresholdedRelu { alpha } => format!("{x} > {} ? {x} : 0.0f", n(alpha)),
        UnaryKind::Sigmoid => sigmoid(x.to_owned()),
        UnaryKind::HardSigmoid { alpha, beta } => {
            clamped(format!("{} * {x} + {}", n(alpha), n(beta)))
        }
        UnaryKind::HardSwish => {
            format!("{x} * {}", clamped(format!("{x} * {} + 0.5f", n(1. / 6.))))
        }
        UnaryKind::Mish => format!("{x} > 20.0f ? {x} : {x} * tanh(log1p(exp({x})))"),
        UnaryKind::Gelu { tanh: false } => {
            format!("0.5f * {x} * (1.0f + erf({x} * {}))", n(std::f32::consts::FRAC_1_SQRT_2))
        }
        UnaryKind::Gelu { tanh: true } => {
            let (root, cube) = (n(0.797_884_6), n(0.044_715));
            format!("0.5f * {x} * (1.0f + tanh({root} * ({x} + {cube} * {x} * {x} * {x})))")
        }
        UnaryKind::Swish { alpha } => format!("{x} * ({})", sigmoid(format!("{} * {x}", n(alpha)))),
        UnaryKind::Linear { scale, shift } => format!("{} * {x} + {}", n(scale), n(shift)),
        UnaryKind::Softplus => format!("fmax({x}, 0.0f) + log1p(exp(-fabs({x})))"),
        UnaryKind::Softsign => format!("{x} / (1.0f + fabs({x}))"),
        UnaryKind::Shrink { bias, lambd } => {
            let (bias, least) = (n(bias), n(lambd));
            format!("{x} < -{least} ? {x} + {bias} : {x} > {least} ? {x} - {bias} : 0.0f")
        }
        UnaryKind::Reciprocal => format!("1.0f / {x}"),
        UnaryKind::Round => format!("rint({x})"),
        UnaryKind::Neg => format!("-{x}"),
        UnaryKind::Abs => format!("fabs({x})"),
        UnaryKind::Sign => format!("{x} > 0.0f ? 1.0f : {x} < 0.0f ? -1.0f : {x}"),
        UnaryKind::IsNaN => format!("{x} != {x}"),
        UnaryKind::IsInf { positive, negative } => match (positive, negative) {
            (true, true) => format!("fabs({x}) == INFINITY"),
            (true, false) => format!("{x} == INFINITY"),
            (false, true) => format!("{x} == -INFINITY"),
            (false, false) => "0".to_owned(),
        },
        UnaryKind::Not => return None,
        named => format!("{}({x})", function(named)?),
    })
}

/// The functions that kernels know by a name.
fn function(kind: UnaryKind) -> Option<&'static str> {
    Some(match kind {
        UnaryKind::Tanh => "tanh",
        UnaryKind::Erf => "erf",
        UnaryKind::Exp => "exp",
        UnaryKind::Log => "log",
        UnaryKind::Sqrt => "sqrt",
        UnaryKind::Sin => "sin",
        UnaryKind::Cos => "cos",
        UnaryKind::Tan => "tan",
        UnaryKind::Asin => "asin",
        UnaryKind::Acos => "acos",
        UnaryKind::Atan => "atan",
        UnaryKind::Sinh => "sinh",
        UnaryKind::Cosh => "cosh",
        UnaryKind::Asinh => "asinh",
        UnaryKind::Acosh => "acosh",
        UnaryKind::Atanh => "atanh",
        UnaryKind::Floor => "floor",
        UnaryKind::Ceil => "ceil",
        _ => return None,
    })
}
