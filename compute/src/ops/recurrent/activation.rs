//! The functions that ONNX allows inside a recurrent cell.

use crate::isa::Simd;
use crate::number::Number;
use crate::ops::unary::Exp;
use crate::simd::dispatch;

/// A function of a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "ONNX's own names and parameters")]
pub enum Activation {
    Relu,
    Tanh,
    Sigmoid,
    /// `alpha · x + beta`.
    Affine {
        alpha: f32,
        beta: f32,
    },
    LeakyRelu {
        alpha: f32,
    },
    /// x from alpha on, and 0 below.
    ThresholdedRelu {
        alpha: f32,
    },
    /// `alpha · tanh(beta · x)`.
    ScaledTanh {
        alpha: f32,
        beta: f32,
    },
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    Elu {
        alpha: f32,
    },
    Softsign,
    Softplus,
}

impl Activation {
    /// Applies the function to every element.
    pub(super) fn apply<T: Exp + Number>(self, simd: Simd, x: &mut [T]) {
        macro_rules! each {
            (|$x:ident| $body:expr) => {
                dispatch(
                    simd,
                    #[inline(always)]
                    || {
                        for x in x.iter_mut() {
                            let $x = *x;
                            *x = $body;
                        }
                    },
                )
            };
        }
        let (zero, one) = (T::ZERO, T::ONE);
        let p = |parameter: f32| T::lit(parameter.into());
        match self {
            Self::Relu => each!(|x| x.most(zero)),
            Self::Tanh => each!(|x| x.tanh_()),
            Self::Sigmoid => each!(|x| x.sigmoid_()),
            Self::Affine { alpha, beta } => {
                let (alpha, beta) = (p(alpha), p(beta));
                each!(|x| alpha * x + beta);
            }
            Self::LeakyRelu { alpha } => {
                let alpha = p(alpha);
                each!(|x| if x < zero { alpha * x } else { x });
            }
            Self::ThresholdedRelu { alpha } => {
                let alpha = p(alpha);
                each!(|x| if x < alpha { zero } else { x });
            }
            Self::ScaledTanh { alpha, beta } => {
                let (alpha, beta) = (p(alpha), p(beta));
                each!(|x| alpha * (beta * x).tanh_());
            }
            Self::HardSigmoid { alpha, beta } => {
                let (alpha, beta) = (p(alpha), p(beta));
                each!(|x| (alpha * x + beta).most(zero).least(one));
            }
            Self::Elu { alpha } => {
                let alpha = p(alpha);
                each!(|x| if x < zero { alpha * (x.exp_() - one) } else { x });
            }
            Self::Softsign => each!(|x| x / (one + Number::abs(x))),
            Self::Softplus => {
                each!(|x| x.most(zero) + Number::neg(Number::abs(x)).exp_().ln_1p());
            }
        }
    }
}
