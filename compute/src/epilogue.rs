//! The activations that products and convolutions apply to a result while it is in the cache.

use crate::ops::UnaryKind;
use crate::ops::math;

/// A function of each element of a result. The formulas are those of the ONNX operators of the
/// same names.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Activation {
    /// The identity.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, min), max)`: ReLU6 is 0 to 6.
    Clip {
        /// The least result.
        min: f32,
        /// The largest result.
        max: f32,
    },
    /// `x` where positive, else `alpha · x`.
    LeakyRelu {
        /// The slope below 0.
        alpha: f32,
    },
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `min(max(alpha · x + beta, 0), 1)`.
    HardSigmoid {
        /// The slope.
        alpha: f32,
        /// The value at 0.
        beta: f32,
    },
    /// `x · sigmoid(x)`.
    Silu,
    /// `x · min(max(x / 6 + 1/2, 0), 1)`.
    HardSwish,
    /// `x · Φ(x)`, by the error function or its approximation by tanh.
    Gelu {
        /// Whether to approximate by tanh.
        tanh: bool,
    },
    /// The hyperbolic tangent.
    Tanh,
    /// `x · tanh(ln(1 + exp(x)))`.
    Mish,
}

impl Activation {
    /// The activation of the same function as an element-wise operator, if there is one.
    #[must_use]
    pub fn from_unary(kind: UnaryKind) -> Option<Self> {
        Some(match kind {
            UnaryKind::Relu => Self::Relu,
            UnaryKind::LeakyRelu { alpha } => Self::LeakyRelu { alpha },
            UnaryKind::Sigmoid => Self::Sigmoid,
            UnaryKind::HardSigmoid { alpha, beta } => Self::HardSigmoid { alpha, beta },
            UnaryKind::HardSwish => Self::HardSwish,
            UnaryKind::Gelu { tanh } => Self::Gelu { tanh },
            UnaryKind::Tanh => Self::Tanh,
            UnaryKind::Mish => Self::Mish,
            _ => return None,
        })
    }

    /// The bounds of an activation that only clamps; the identity has infinite bounds. A kernel
    /// applies bounds in registers, and calls [`Activation::apply`] for other activations.
    #[must_use]
    pub fn bounds(self) -> Option<(f32, f32)> {
        match self {
            Self::None => Some((f32::NEG_INFINITY, f32::INFINITY)),
            Self::Relu => Some((0., f32::INFINITY)),
            Self::Clip { min, max } => Some((min, max)),
            _ => None,
        }
    }

    /// Applies the function to every element. Callers are inside [`crate::simd::dispatch`] or in a
    /// function that enables vector instructions. `fused` is true where these include multiply-adds
    /// of one instruction.
    #[inline(always)]
    pub(crate) fn apply(self, fused: bool, x: &mut [f32]) {
        if fused {
            self.each::<true>(x);
        } else {
            self.each::<false>(x);
        }
    }

    #[inline(always)]
    fn each<const FUSED: bool>(self, x: &mut [f32]) {
        match self {
            Self::None => {}
            Self::Relu => each(x, |x| if x < 0. { 0. } else { x }),
            Self::Clip { min, max } => each(x, |x| clamp(x, min, max)),
            Self::LeakyRelu { alpha } => each(x, |x| if x < 0. { alpha * x } else { x }),
            Self::Sigmoid => each(x, math::sigmoid::<FUSED>),
            Self::HardSigmoid { alpha, beta } => each(x, |x| clamp(alpha * x + beta, 0., 1.)),
            Self::Silu => each(x, |x| x * math::sigmoid::<FUSED>(x)),
            Self::HardSwish => each(x, |x| x * clamp(x * (1. / 6.) + 0.5, 0., 1.)),
            Self::Gelu { tanh: false } => {
                let root = std::f32::consts::FRAC_1_SQRT_2;
                each(x, |x| 0.5 * x * (1. + math::erf::<FUSED>(x * root)));
            }
            Self::Gelu { tanh: true } => {
                let root = 0.797_884_6;
                let inner = |x: f32| root * (x + 0.044_715 * x * x * x);
                each(x, |x| 0.5 * x * (1. + math::tanh::<FUSED>(inner(x))));
            }
            Self::Tanh => each(x, math::tanh::<FUSED>),
            Self::Mish => each(x, |x| {
                // tanh(ln(1 + e)) without the logarithm; from 20 on it is 1.
                let e = if x > 20. { 1. } else { math::exp::<FUSED>(x) };
                let n = e * (e + 2.);
                if x > 20. { x } else { x * n / (n + 2.) }
            }),
        }
    }
}

/// NaN passes through.
#[inline(always)]
fn clamp(x: f32, min: f32, max: f32) -> f32 {
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}

#[inline(always)]
fn each(x: &mut [f32], f: impl Fn(f32) -> f32) {
    for x in x {
        *x = f(*x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Unary;
    use crate::testing::{assert_close, run, t};

    #[test]
    fn activations_are_their_operators() {
        let data: Vec<f32> = (-60..=60).map(|i| i as f32 * 0.25).chain([f32::NAN]).collect();
        for kind in [
            UnaryKind::Relu,
            UnaryKind::LeakyRelu { alpha: 0.1 },
            UnaryKind::Sigmoid,
            UnaryKind::HardSigmoid { alpha: 0.2, beta: 0.5 },
            UnaryKind::HardSwish,
            UnaryKind::Gelu { tanh: false },
            UnaryKind::Gelu { tanh: true },
            UnaryKind::Tanh,
            UnaryKind::Mish,
        ] {
            let x = t(&[data.len()], &data);
            let want = run(&Unary::new(kind), &[&x]);
            let mut got = data.clone();
            let activation = Activation::from_unary(kind).unwrap();
            activation.apply(false, &mut got);
            assert_close(&t(&[got.len()], &got), &want, 1e-6);
            let mut fused = data.clone();
            activation.apply(true, &mut fused);
            assert_close(&t(&[fused.len()], &fused), &want, 1e-6);
            if let Some((low, high)) = activation.bounds() {
                let clamped: Vec<f32> = data.iter().map(|&x| clamp(x, low, high)).collect();
                assert_close(&t(&[got.len()], &clamped), &want, 0.);
            }
        }
        assert_eq!(Activation::from_unary(UnaryKind::Sqrt), None);
    }

    #[test]
    fn silu_and_clip() {
        let mut x = [-2f32, 0., 7.];
        Activation::Clip { min: -1., max: 6. }.apply(false, &mut x);
        assert_eq!(x, [-1., 0., 6.]);
        let mut x = [0f32, 1., -100.];
        Activation::Silu.apply(false, &mut x);
        assert!((x[1] - 0.731_058_6).abs() < 1e-6 && x[0] == 0. && x[2].abs() < 1e-30, "{x:?}");
    }
}
