//! Element-wise functions of two inputs on the CPU.

use super::{Binary, BinaryKind};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::number::{Number, with_type};
use crate::op::{Context, Op};
use crate::simd::{self, dispatch};
use crate::walk::Walk;
use lgp_memory::{DType, Element, Shape, Tensor, TensorView};
use std::borrow::Cow;

pub(super) fn run(
    op: &Binary,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (a, b) = (required(op.name(), inputs, 0)?, required(op.name(), inputs, 1)?);
    let mut b = Cow::Borrowed(b);
    let converted;
    if b.dtype().is_float() && !a.dtype().is_float() && a.dtype() != DType::Bool {
        // A whole base with a fractional exponent: 4 ^ 0.5 is 2, whatever the result's dtype.
        return by_f64(op, ctx, a, &b);
    }
    if a.dtype() != b.dtype() {
        // Only Pow lets the exponent have another dtype.
        converted = crate::ops::Cast { to: a.dtype() }.run(ctx, &[Some(b.into_owned())])?;
        let exponent = converted.first().ok_or_else(|| Error::invalid(op.name(), "no exponent"))?;
        b = Cow::Owned(exponent.view());
    }
    let mut out = ctx.alloc(dtype, shape.clone())?;
    let walk = Walk::new(&shape, [a.shape(), b.shape()])?;
    // Of strings only equality is inferred, and equal texts have equal numbers.
    let (a, b) = (&a.as_numbers(), &b.as_numbers());
    let o = Operands { ctx, walk: &walk, shape: &shape, a, b };
    match a.dtype() {
        DType::F32 => floats(op.kind, &o, &mut out)?,
        DType::Bool => bools(op.kind, &o, &mut out)?,
        dtype => with_type!(op.name(), dtype, number T => numbers::<T>(op, &o, &mut out))?,
    }
    Ok(vec![out])
}

/// Computes in f64 and gives the result the first operand's dtype.
fn by_f64(
    op: &Binary,
    ctx: &Context,
    a: &TensorView<'_>,
    b: &TensorView<'_>,
) -> Result<Vec<Tensor>> {
    let cast = |x: TensorView<'_>, to: DType| crate::ops::Cast { to }.run(ctx, &[Some(x)]);
    let (wide_a, wide_b) = (cast(a.clone(), DType::F64)?, cast(b.clone(), DType::F64)?);
    let inputs: Vec<_> = wide_a.iter().chain(&wide_b).map(|x| Some(x.view())).collect();
    let wide = run(op, ctx, &inputs)?;
    wide.iter().try_fold(Vec::new(), |mut all, x| {
        all.extend(cast(x.view(), a.dtype())?);
        Ok(all)
    })
}

struct Operands<'a> {
    ctx: &'a Context,
    walk: &'a Walk<2>,
    shape: &'a Shape,
    a: &'a TensorView<'a>,
    b: &'a TensorView<'a>,
}

/// Applies `f` to every pair.
#[inline(always)]
fn zip<T: Element, U: Element>(
    o: &Operands<'_>,
    out: &mut Tensor,
    cost: usize,
    f: impl Fn(T, T) -> U + Copy + Sync,
) -> Result<()> {
    let (a, b) = (o.a.as_slice::<T>()?, o.b.as_slice::<T>()?);
    if o.shape.elements()? == 0 {
        return Ok(());
    }
    let out = out.as_mut_slice::<U>()?;
    let row = o.walk.row;
    if out.len() == row {
        // One row: split inside it.
        let [sa, sb] = o.walk.steps;
        o.ctx.split(out, 1, cost, |start, part| {
            line(o.ctx.simd(), part, &a[start * sa..], &b[start * sb..], [sa, sb], f);
        });
    } else {
        o.ctx.split(out, row, row * cost, |first, part| {
            for (i, part) in part.chunks_exact_mut(row).enumerate() {
                let [at_a, at_b] = o.walk.starts(first + i);
                line(o.ctx.simd(), part, &a[at_a..], &b[at_b..], o.walk.steps, f);
            }
        });
    }
    Ok(())
}

/// One row, whose operands run along or stand still.
#[inline(always)]
fn line<T: Copy, U>(
    simd: Simd,
    out: &mut [U],
    a: &[T],
    b: &[T],
    steps: [usize; 2],
    f: impl Fn(T, T) -> U + Copy,
) {
    let n = out.len();
    dispatch(
        simd,
        #[inline(always)]
        || match steps {
            [0, 0] => {
                let (a, b) = (a[0], b[0]);
                out.iter_mut().for_each(|o| *o = f(a, b));
            }
            [0, _] => {
                let a = a[0];
                simd::map(
                    out,
                    &b[..n],
                    #[inline(always)]
                    move |b| f(a, b),
                );
            }
            [_, 0] => {
                let b = b[0];
                simd::map(
                    out,
                    &a[..n],
                    #[inline(always)]
                    move |a| f(a, b),
                );
            }
            _ => simd::zip(out, &a[..n], &b[..n], f),
        },
    );
}

/// Every kind as a loop of its own, for the dtype that matters most.
fn floats(kind: BinaryKind, o: &Operands<'_>, out: &mut Tensor) -> Result<()> {
    macro_rules! each {
        ($cost:literal, |$a:ident, $b:ident| $body:expr) => {
            zip(
                o,
                out,
                $cost,
                #[inline(always)]
                |$a: f32, $b: f32| $body,
            )
        };
    }
    match kind {
        BinaryKind::Add => each!(1, |a, b| a + b),
        BinaryKind::Sub => each!(1, |a, b| a - b),
        BinaryKind::Mul => each!(1, |a, b| a * b),
        BinaryKind::Div => each!(4, |a, b| a / b),
        BinaryKind::Pow => each!(60, |a, b| a.pow(b)),
        BinaryKind::Min => each!(1, |a, b| a.least(b)),
        BinaryKind::Max => each!(1, |a, b| a.most(b)),
        BinaryKind::PRelu => each!(2, |a, b| if a < 0. { a * b } else { a }),
        BinaryKind::Mod { fmod: true } => each!(20, |a, b| a.rem(b)),
        BinaryKind::Mod { fmod: false } => each!(20, |a, b| a.modulo(b)),
        BinaryKind::Equal => each!(1, |a, b| a == b),
        BinaryKind::Less => each!(1, |a, b| a < b),
        BinaryKind::LessOrEqual => each!(1, |a, b| a <= b),
        BinaryKind::Greater => each!(1, |a, b| a > b),
        BinaryKind::GreaterOrEqual => each!(1, |a, b| a >= b),
        BinaryKind::And | BinaryKind::Or | BinaryKind::Xor => Ok(()),
    }
}

fn bools(kind: BinaryKind, o: &Operands<'_>, out: &mut Tensor) -> Result<()> {
    let f: fn(bool, bool) -> bool = match kind {
        BinaryKind::And => |a, b| a & b,
        BinaryKind::Or => |a, b| a | b,
        BinaryKind::Xor => |a, b| a ^ b,
        _ => |a, b| a == b,
    };
    zip(o, out, 4, f)
}

/// The other numbers, through one loop a dtype and a function pointer: they hold indices and
/// dimensions, seldom more.
fn numbers<T: Number>(op: &Binary, o: &Operands<'_>, out: &mut Tensor) -> Result<()> {
    let divides = matches!(op.kind, BinaryKind::Div | BinaryKind::Mod { .. });
    if divides && o.b.as_slice::<T>()?.iter().any(|n| n.is_integer_zero()) {
        return Err(Error::invalid(op.name(), "an integer is divided by zero"));
    }
    let comparison: Option<fn(T, T) -> bool> = match op.kind {
        BinaryKind::Equal => Some(|a, b| a == b),
        BinaryKind::Less => Some(|a, b| a < b),
        BinaryKind::LessOrEqual => Some(|a, b| a <= b),
        BinaryKind::Greater => Some(|a, b| a > b),
        BinaryKind::GreaterOrEqual => Some(|a, b| a >= b),
        _ => None,
    };
    if let Some(f) = comparison {
        return zip(o, out, 4, f);
    }
    let f: fn(T, T) -> T = match op.kind {
        BinaryKind::Sub => Number::sub,
        BinaryKind::Mul => Number::mul,
        BinaryKind::Div => Number::div,
        BinaryKind::Pow => Number::pow,
        BinaryKind::Min => Number::least,
        BinaryKind::Max => Number::most,
        BinaryKind::Mod { fmod: true } => Number::rem,
        BinaryKind::Mod { fmod: false } => Number::modulo,
        BinaryKind::PRelu => |a, b| if a < T::ZERO { a.mul(b) } else { a },
        _ => Number::add,
    };
    zip(o, out, 4, f)
}
