//! The table of functions: how each is computed on the CPU and on devices. A new function is a
//! variant and a row.

use super::loops::same;
use super::math::{Exp, round_half_even};
use crate::device::literal;
use crate::error::Result;
use crate::number::Number;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};
use std::fmt;

/// A function of an element.
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
    /// `scale · x + shift`: the form in which mappings write arithmetic with constants.
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
    /// Zero for `x` within `lambd` of zero; other `x` move by `bias` towards zero.
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
    /// The flags choose the infinities that count.
    IsInf {
        positive: bool,
        negative: bool,
    },
}

/// A number that displays as an exact literal of kernels.
struct Exact(f32);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&literal(self.0))
    }
}

const SIXTH: Exact = Exact(1. / 6.);
const ROOT_OF_HALF: Exact = Exact(std::f32::consts::FRAC_1_SQRT_2);
const GELU_ROOT: Exact = Exact(0.797_884_6);
const GELU_CUBE: Exact = Exact(0.044_715);

/// Reads the rows. A row has the variant of [`UnaryKind`] with its parameters, the rough number of
/// operations that an element takes, and then the function twice: of `x` in `T`, which is f32 or
/// f64, with the parameters in `T`; and as an expression of kernels, with the parameters as exact
/// literals. A flag has a row for each value.
///
/// In a row of `numbers`, `T` may also be any integer. Such a row has one more expression for
/// signed integers, and one for unsigned integers where the function is defined for them.
macro_rules! functions {
    (@number $T:ident $p:ident) => { let $p = $T::lit($p.into()); };
    (@number $T:ident $p:ident : $only:literal) => {};
    (@exact $p:ident) => { let $p = Exact($p); };
    (@exact $p:ident : $only:literal) => {};
    (@example) => { 0.5 };
    (@example $only:literal) => { $only };
    (
        floats, for $T:ident {
            $( $name:ident $({ $($p:ident $(: $only:literal)?),* })?:
                $cost:literal, |$x:ident| $body:expr, $text:literal; )*
        }
        numbers {
            $( $number:ident:
                $number_cost:literal, |$n:ident| $number_body:expr, $number_text:literal,
                signed $signed:literal $(, unsigned $unsigned:literal)?; )*
        }
    ) => {
        impl UnaryKind {
            /// Each row's function, with every parameter 1/2.
            pub const EXAMPLES: &[Self] = &[
                $( Self::$name $({ $($p: functions!(@example $($only)?)),* })?, )*
                $( Self::$number, )*
            ];

            /// The operator's name, as ONNX spells it.
            #[allow(unused_variables, reason = "a name needs no parameters")]
            pub(super) fn name(self) -> &'static str {
                match self {
                    $( Self::$name $({ $($p $(: $only)?),* })? => stringify!($name), )*
                    $( Self::$number => stringify!($number), )*
                    Self::Not => "Not",
                    Self::IsNaN => "IsNaN",
                    Self::IsInf { .. } => "IsInf",
                }
            }

            /// Whether the function is defined for integers, and computed in integers.
            pub(super) fn takes_integers(self) -> bool {
                matches!(self, $( Self::$number )|*)
            }
        }

        /// Computes a function of floats, of `x` or of the elements of `out`. Each function has a
        /// loop of its own, so that the loop vectorises. Functions with bools as results do nothing
        /// here.
        pub(super) fn on_cpu<$T: Exp + Number>(
            kind: UnaryKind,
            ctx: &Context,
            x: Option<&TensorView<'_>>,
            out: &mut Tensor,
        ) -> Result<()> {
            match kind {
                $( UnaryKind::$name $({ $($p $(: $only)?),* })? => {
                    $( $( functions!(@number $T $p $(: $only)?); )* )?
                    same(ctx, x, out, $cost, #[inline(always)] move |$x: $T| $body)
                } )*
                $( UnaryKind::$number => {
                    same(ctx, x, out, $number_cost, #[inline(always)] move |$n: $T| $number_body)
                } )*
                UnaryKind::Not | UnaryKind::IsNaN | UnaryKind::IsInf { .. } => Ok(()),
            }
        }

        /// A function of integers; `None` unless it [takes them](UnaryKind::takes_integers).
        pub(super) fn on_integers<$T: Number>(kind: UnaryKind) -> Option<fn($T) -> $T> {
            let function: fn($T) -> $T = match kind {
                $( UnaryKind::$number => |$n| $number_body, )*
                _ => return None,
            };
            Some(function)
        }

        /// A function of a float as an expression of kernels; `None` for functions with bools as
        /// results.
        pub(super) fn on_device(kind: UnaryKind, value: &str) -> Option<String> {
            Some(match kind {
                $( UnaryKind::$name $({ $($p $(: $only)?),* })? => {
                    $( $( functions!(@exact $p $(: $only)?); )* )?
                    let $x = value;
                    format!($text)
                } )*
                $( UnaryKind::$number => {
                    let $n = value;
                    format!($number_text)
                } )*
                UnaryKind::Not | UnaryKind::IsNaN | UnaryKind::IsInf { .. } => return None,
            })
        }

        /// [`on_device`] of an integer.
        pub(super) fn on_device_integers(
            kind: UnaryKind,
            value: &str,
            signed: bool,
        ) -> Option<String> {
            match (kind, signed) {
                $( (UnaryKind::$number, true) => {
                    let $n = value;
                    Some(format!($signed))
                } )*
                $( $( (UnaryKind::$number, false) => {
                    let $n = value;
                    Some(format!($unsigned))
                } )? )*
                _ => None,
            }
        }
    };
}

functions! {
    floats, for T {
        LeakyRelu { alpha }: 2, |x| if x < T::ZERO { alpha * x } else { x },
            "{x} < 0.0f ? {alpha} * {x} : {x}";
        Elu { alpha }: 16, |x| if x < T::ZERO { alpha * (x.exp_() - T::ONE) } else { x },
            "{x} < 0.0f ? {alpha} * expm1({x}) : {x}";
        Celu { alpha }: 16, |x| if x < T::ZERO { alpha * ((x / alpha).exp_() - T::ONE) } else { x },
            "{x} > 0.0f ? {x} : {alpha} * expm1({x} / {alpha})";
        Selu { alpha, gamma }: 16,
            |x| gamma * if x < T::ZERO { alpha * (x.exp_() - T::ONE) } else { x },
            "{gamma} * ({x} > 0.0f ? {x} : {alpha} * expm1({x}))";
        ThresholdedRelu { alpha }: 1, |x| if x > alpha { x } else { T::ZERO },
            "{x} > {alpha} ? {x} : 0.0f";
        Sigmoid: 16, |x| x.sigmoid_(), "1.0f / (1.0f + exp(-({x})))";
        HardSigmoid { alpha, beta }: 4, |x| (alpha * x + beta).most(T::ZERO).least(T::ONE),
            "limited({alpha} * {x} + {beta}, 0.0f, 1.0f)";
        HardSwish: 5,
            |x| x * (T::ONE / T::lit(6.) * x + T::lit(0.5)).most(T::ZERO).least(T::ONE),
            "{x} * limited({x} * {SIXTH} + 0.5f, 0.0f, 1.0f)";
        Mish: 20, |x| {
                // tanh(ln(1 + e)) without the logarithm; from 20 on it is 1 in either precision.
                let e = if x > T::lit(20.) { T::ONE } else { x.exp_() };
                let n = e * (e + T::lit(2.));
                if x > T::lit(20.) { x } else { x * n / (n + T::lit(2.)) }
            },
            "{x} > 20.0f ? {x} : {x} * tanh(log1p(exp({x})))";
        Gelu { tanh: false }: 24,
            |x| {
                let root = T::lit(std::f64::consts::FRAC_1_SQRT_2);
                T::lit(0.5) * x * (T::ONE + (x * root).erf_())
            },
            "0.5f * {x} * (1.0f + erf({x} * {ROOT_OF_HALF}))";
        Gelu { tanh: true }: 24,
            |x| {
                let (root, cube) = (T::lit(0.797_884_560_802_865_4), T::lit(0.044_715));
                T::lit(0.5) * x * (T::ONE + (root * (x + cube * x * x * x)).tanh_())
            },
            "0.5f * {x} * (1.0f + tanh({GELU_ROOT} * ({x} + {GELU_CUBE} * {x} * {x} * {x})))";
        Swish { alpha }: 16, |x| x * (alpha * x).sigmoid_(),
            "{x} * (1.0f / (1.0f + exp(-({alpha} * {x}))))";
        Linear { scale, shift }: 1, |x| scale * x + shift, "{scale} * {x} + {shift}";
        Softplus: 40, |x| x.most(T::ZERO) + Number::neg(Number::abs(x)).exp_().ln_1p(),
            "fmax({x}, 0.0f) + log1p(exp(-fabs({x})))";
        Softsign: 4, |x| x / (T::ONE + Number::abs(x)), "{x} / (1.0f + fabs({x}))";
        Tanh: 24, |x| x.tanh_(), "tanh({x})";
        Erf: 24, |x| x.erf_(), "erf({x})";
        Exp: 16, |x| x.exp_(), "exp({x})";
        Log: 30, |x| x.ln(), "log({x})";
        Sqrt: 4, |x| x.sqrt(), "sqrt({x})";
        Reciprocal: 4, |x| T::ONE / x, "1.0f / {x}";
        Sin: 40, |x| x.sin(), "sin({x})";
        Cos: 40, |x| x.cos(), "cos({x})";
        Tan: 60, |x| x.tan(), "tan({x})";
        Asin: 60, |x| x.asin(), "asin({x})";
        Acos: 60, |x| x.acos(), "acos({x})";
        Atan: 60, |x| x.atan(), "atan({x})";
        Sinh: 60, |x| x.sinh(), "sinh({x})";
        Cosh: 60, |x| x.cosh(), "cosh({x})";
        Asinh: 60, |x| x.asinh(), "asinh({x})";
        Acosh: 60, |x| x.acosh(), "acosh({x})";
        Atanh: 60, |x| x.atanh(), "atanh({x})";
        Shrink { bias, lambd }: 3,
            |x| {
                let high = if x > lambd { x - bias } else { T::ZERO };
                if x < Number::neg(lambd) { x + bias } else { high }
            },
            "{x} < -{lambd} ? {x} + {bias} : {x} > {lambd} ? {x} - {bias} : 0.0f";
        Floor: 2, |x| x.floor(), "floor({x})";
        Ceil: 2, |x| x.ceil(), "ceil({x})";
        Round: 4, |x| round_half_even(x), "rint({x})";
    }
    numbers {
        Relu: 1, |x| x.most(T::ZERO), "{x} < 0.0f ? 0.0f : {x}",
            signed "{x} < 0 ? 0 : {x}", unsigned "{x}";
        Neg: 1, |x| Number::neg(x), "-{x}",
            signed "0 - {x}";
        Abs: 1, |x| Number::abs(x), "fabs({x})",
            signed "{x} < 0 ? 0 - {x} : {x}", unsigned "{x}";
        Sign: 2, |x| Number::sign(x), "{x} > 0.0f ? 1.0f : {x} < 0.0f ? -1.0f : {x}",
            signed "({x} > 0) - ({x} < 0)", unsigned "{x} != 0";
    }
}
