//! Element-wise functions on the CPU.

use super::math::Exp;
use super::{Unary, UnaryKind};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::number::{Number, with_type};
use crate::op::{Context, Op};
use crate::simd::{self, dispatch};
use lgp_memory::{DType, Element, Tensor, TensorView};

pub(super) fn run(
    op: &Unary,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(op.name(), inputs, 0)?;
    let mut out = ctx.alloc(dtype, shape)?;
    match (op.kind, x.dtype()) {
        (UnaryKind::Shrink { .. }, dtype) if !dtype.is_float() => return by_f64(op, ctx, x),
        (UnaryKind::Not, _) => map(ctx, x, &mut out, 1, |x: bool| !x)?,
        (UnaryKind::IsNaN, DType::F32) => map(ctx, x, &mut out, 1, |x: f32| x.is_nan())?,
        (UnaryKind::IsNaN, _) => map(ctx, x, &mut out, 1, |x: f64| x.is_nan())?,
        (UnaryKind::IsInf { positive, negative }, DType::F32) => {
            map(ctx, x, &mut out, 1, |x: f32| {
                x.is_infinite() & if x > 0. { positive } else { negative }
            })?
        }
        (UnaryKind::IsInf { positive, negative }, _) => map(ctx, x, &mut out, 1, |x: f64| {
            x.is_infinite() & if x > 0. { positive } else { negative }
        })?,
        _ => numbers(op, ctx, Some(x), &mut out)?,
    }
    Ok(vec![out])
}

/// The functions whose result has the dtype of what they are of: `x`, or what is in `out`.
pub(super) fn numbers(
    op: &Unary,
    ctx: &Context,
    x: Option<&TensorView<'_>>,
    out: &mut Tensor,
) -> Result<()> {
    match (op.kind, out.dtype()) {
        (kind, DType::F32) => floats::<f32>(kind, ctx, x, out),
        (kind, DType::F64) => floats::<f64>(kind, ctx, x, out),
        (kind, dtype) => with_type!(op.name(), dtype, number T => {
            let f: fn(T) -> T = match kind {
                UnaryKind::Relu => |x| x.most(T::ZERO),
                UnaryKind::Neg => Number::neg,
                UnaryKind::Abs => Number::abs,
                UnaryKind::Sign => Number::sign,
                _ => return Err(Error::unsupported(op.name(), format!("dtype {dtype}"))),
            };
            same(ctx, x, out, 1, f)
        }),
    }
}

/// Computes in f64 and gives the result the input's dtype.
fn by_f64(op: &Unary, ctx: &Context, x: &TensorView<'_>) -> Result<Vec<Tensor>> {
    let cast = |x: TensorView<'_>, to: DType| crate::ops::Cast { to }.run(ctx, &[Some(x)]);
    let wide = cast(x.clone(), DType::F64)?;
    let wide = run(op, ctx, &wide.iter().map(|x| Some(x.view())).collect::<Vec<_>>())?;
    wide.iter().try_fold(Vec::new(), |mut all, wide| {
        all.extend(cast(wide.view(), x.dtype())?);
        Ok(all)
    })
}

/// Applies `f` to every element. `cost` is its operations, roughly.
#[inline(always)]
fn map<T: Element, U: Element>(
    ctx: &Context,
    x: &TensorView<'_>,
    out: &mut Tensor,
    cost: usize,
    f: impl Fn(T) -> U + Copy + Sync,
) -> Result<()> {
    let x = x.as_slice::<T>()?;
    ctx.split(out.as_mut_slice::<U>()?, 1, cost, |start, out| {
        line(ctx.simd(), out, &x[start..start + out.len()], f);
    });
    Ok(())
}

/// [`map`] to the same type, of `x` or of what is in `out`.
#[inline(always)]
fn same<T: Element>(
    ctx: &Context,
    x: Option<&TensorView<'_>>,
    out: &mut Tensor,
    cost: usize,
    f: impl Fn(T) -> T + Copy + Sync,
) -> Result<()> {
    let Some(x) = x else {
        ctx.split(out.as_mut_slice::<T>()?, 1, cost, |_, out| {
            simd::over(out, |_, out, x| line(ctx.simd(), out, x, f));
        });
        return Ok(());
    };
    map(ctx, x, out, cost, f)
}

/// One loop, compiled once for all that call it.
#[inline(never)]
fn line<T: Copy, U>(simd: Simd, out: &mut [U], x: &[T], f: impl Fn(T) -> U) {
    dispatch(
        simd,
        #[inline(always)]
        || simd::map(out, x, f),
    );
}

/// Selects the loop of a kind. Every arm is a loop of its own, so that it vectorises.
fn floats<T: Exp + Number>(
    kind: UnaryKind,
    ctx: &Context,
    x: Option<&TensorView<'_>>,
    out: &mut Tensor,
) -> Result<()> {
    macro_rules! each {
        ($cost:literal, |$x:ident| $body:expr) => {
            same(
                ctx,
                x,
                out,
                $cost,
                #[inline(always)]
                move |$x: T| $body,
            )
        };
    }
    let (zero, one) = (T::ZERO, T::ONE);
    let l = T::lit;
    let p = |parameter: f32| T::lit(parameter.into());
    match kind {
        UnaryKind::Relu => each!(1, |x| x.most(zero)),
        UnaryKind::LeakyRelu { alpha } => {
            let alpha = p(alpha);
            each!(2, |x| if x < zero { alpha * x } else { x })
        }
        UnaryKind::Elu { alpha } => {
            let alpha = p(alpha);
            each!(16, |x| if x < zero { alpha * (x.exp_() - one) } else { x })
        }
        UnaryKind::Celu { alpha } => {
            let alpha = p(alpha);
            each!(16, |x| if x < zero { alpha * ((x / alpha).exp_() - one) } else { x })
        }
        UnaryKind::Selu { alpha, gamma } => {
            let (alpha, gamma) = (p(alpha), p(gamma));
            each!(16, |x| gamma * if x < zero { alpha * (x.exp_() - one) } else { x })
        }
        UnaryKind::ThresholdedRelu { alpha } => {
            let alpha = p(alpha);
            each!(1, |x| if x > alpha { x } else { zero })
        }
        UnaryKind::Sigmoid => each!(16, |x| one / (one + Number::neg(x).exp_())),
        UnaryKind::HardSigmoid { alpha, beta } => {
            let (alpha, beta) = (p(alpha), p(beta));
            each!(4, |x| (alpha * x + beta).most(zero).least(one))
        }
        UnaryKind::HardSwish => {
            let (sixth, half) = (one / l(6.), l(0.5));
            each!(5, |x| x * (sixth * x + half).most(zero).least(one))
        }
        UnaryKind::Mish => each!(20, |x| {
            // tanh(ln(1 + e)) without the logarithm; from 20 on it is 1 in either precision.
            let e = if x > l(20.) { one } else { x.exp_() };
            let n = e * (e + l(2.));
            if x > l(20.) { x } else { x * n / (n + l(2.)) }
        }),
        UnaryKind::Gelu { tanh: false } => {
            let (half, root) = (l(0.5), l(std::f64::consts::FRAC_1_SQRT_2));
            each!(24, |x| half * x * (one + (x * root).erf_()))
        }
        UnaryKind::Gelu { tanh: true } => {
            let (half, cubic, root) = (l(0.5), l(0.044_715), l(0.797_884_560_802_865_4));
            each!(24, |x| half * x * (one + (root * (x + cubic * x * x * x)).tanh_()))
        }
        UnaryKind::Swish { alpha } => {
            let alpha = p(alpha);
            each!(16, |x| x / (one + Number::neg(alpha * x).exp_()))
        }
        UnaryKind::Linear { scale, shift } => {
            let (scale, shift) = (p(scale), p(shift));
            each!(1, |x| scale * x + shift)
        }
        UnaryKind::Softplus => {
            each!(40, |x| x.most(zero) + Number::neg(Number::abs(x)).exp_().ln_1p())
        }
        UnaryKind::Softsign => each!(4, |x| x / (one + Number::abs(x))),
        UnaryKind::Tanh => each!(24, |x| x.tanh_()),
        UnaryKind::Erf => each!(24, |x| x.erf_()),
        UnaryKind::Exp => each!(16, |x| x.exp_()),
        UnaryKind::Log => each!(30, |x| x.ln()),
        UnaryKind::Sqrt => each!(4, |x| x.sqrt()),
        UnaryKind::Reciprocal => each!(4, |x| one / x),
        UnaryKind::Sin => each!(40, |x| x.sin()),
        UnaryKind::Cos => each!(40, |x| x.cos()),
        UnaryKind::Tan => each!(60, |x| x.tan()),
        UnaryKind::Asin => each!(60, |x| x.asin()),
        UnaryKind::Acos => each!(60, |x| x.acos()),
        UnaryKind::Atan => each!(60, |x| x.atan()),
        UnaryKind::Sinh => each!(60, |x| x.sinh()),
        UnaryKind::Cosh => each!(60, |x| x.cosh()),
        UnaryKind::Asinh => each!(60, |x| x.asinh()),
        UnaryKind::Acosh => each!(60, |x| x.acosh()),
        UnaryKind::Atanh => each!(60, |x| x.atanh()),
        UnaryKind::Shrink { bias, lambd } => {
            let (bias, lambd) = (p(bias), p(lambd));
            each!(3, |x| {
                let high = if x > lambd { x - bias } else { zero };
                if x < Number::neg(lambd) { x + bias } else { high }
            })
        }
        UnaryKind::Floor => each!(2, |x| x.floor()),
        UnaryKind::Ceil => each!(2, |x| x.ceil()),
        UnaryKind::Round => each!(4, |x| round_half_even(x)),
        UnaryKind::Neg => each!(1, |x| Number::neg(x)),
        UnaryKind::Abs => each!(1, |x| Number::abs(x)),
        UnaryKind::Sign => each!(2, |x| Number::sign(x)),
        UnaryKind::Not | UnaryKind::IsNaN | UnaryKind::IsInf { .. } => Ok(()),
    }
}

/// Rounds to the nearest integer, halves to the even one.
#[inline(always)]
fn round_half_even<T: Exp>(x: T) -> T {
    let down = x.floor();
    let rest = x - down;
    let half = T::lit(0.5);
    let odd = down - (down * half).floor() * T::lit(2.) != T::zero();
    let up = rest > half || (rest == half && odd);
    let rounded = if up { down + T::one() } else { down };
    // Zero keeps the sign of what it was rounded from; NaN and infinities pass through.
    if rounded == T::zero() { rounded.copysign(x) } else { rounded }
}
