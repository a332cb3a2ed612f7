//! Element-wise functions of two inputs on the CPU.

use super::{Binary, BinaryKind};
use crate::args::{concrete_one, optional, required};
use crate::error::{Error, Result};
use crate::number::{Number, with_type};
use crate::op::{Context, Given, Op};
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
    let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
    let mut b = Cow::Borrowed(b);
    let converted;
    if b.dtype().is_float() && !a.dtype().is_float() && a.dtype() != DType::Bool {
        // An integer base with a float exponent is computed in floats: 4 ^ 0.5 is 2 in every dtype.
        return by_f64(op, ctx, a, &b);
    }
    if a.dtype() != b.dtype() {
        // Only Pow lets the exponent have another dtype.
        converted = crate::ops::Cast { to: a.dtype() }.run(ctx, &[Some(b.into_owned())])?;
        let exponent = converted.first().ok_or_else(|| Error::invalid("no exponent"))?;
        b = Cow::Owned(exponent.view());
    }
    let mut out = ctx.alloc(dtype, shape.clone())?;
    let walk = Walk::new(&shape, [a.shape(), b.shape()])?;
    // `infer_types` allows strings for equality only, and equal texts have equal numbers.
    let (a, b) = (&a.as_numbers(), &b.as_numbers());
    let o = Operands { ctx, walk: &walk, shape: &shape, given: [Some(a), Some(b)] };
    combine(op, &o, a.dtype(), &mut out)?;
    Ok(vec![out])
}

/// [`run`] with the output written over one of two operands of one dtype.
pub(super) fn run_over(
    op: &Binary,
    ctx: &Context,
    given: Given,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let mut out = given.checked(op, inputs)?;
    let shape = out.shape().clone();
    let given: [Option<&TensorView<'_>>; 2] = std::array::from_fn(|i| optional(inputs, i));
    let own = |x: Option<&TensorView<'_>>| x.map_or(shape.clone(), |x| x.shape().clone());
    let walk = Walk::new(&shape, [&own(given[0]), &own(given[1])])?;
    let dtype = out.dtype();
    combine(op, &Operands { ctx, walk: &walk, shape: &shape, given }, dtype, &mut out)?;
    Ok(vec![out])
}

fn combine(op: &Binary, o: &Operands<'_>, dtype: DType, out: &mut Tensor) -> Result<()> {
    match dtype {
        DType::F32 => floats(op.kind, o, out),
        DType::Bool => bools(op.kind, o, out),
        dtype => with_type!(dtype, number T => numbers::<T>(op, o, out)),
    }
}

/// Computes in f64 and casts the result to the first operand's dtype.
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
    /// The operands; `None` for an operand that is written over.
    given: [Option<&'a TensorView<'a>>; 2],
}

impl Operands<'_> {
    /// The operand's elements; empty for an operand that is written over.
    fn slice<T: Element>(&self, operand: usize) -> Result<&[T]> {
        Ok(match self.given[operand] {
            Some(x) => x.as_slice::<T>()?,
            None => &[],
        })
    }

    /// Calls `work` with parts of the output, the length of their rows, and a function from a row's
    /// number to its beginning in each operand.
    fn parts<U: Send>(
        &self,
        out: &mut [U],
        cost: usize,
        work: impl Fn(&dyn Fn(usize) -> [usize; 2], usize, &mut [U]) + Sync,
    ) {
        let row = self.walk.row;
        if out.len() == row {
            // A single row is split within itself.
            let steps = self.walk.steps;
            self.ctx.split(out, 1, cost, |start, part| {
                let n = part.len();
                work(&|_| steps.map(|step| start * step), n, part);
            });
        } else {
            self.ctx.split(out, row, row * cost, |first, part| {
                work(&|i| self.walk.starts(first + i), row, part);
            });
        }
    }
}

/// Applies `f` to every pair of elements.
#[inline(always)]
fn zip<T: Element, U: Element>(
    o: &Operands<'_>,
    out: &mut Tensor,
    cost: usize,
    f: impl Fn(T, T) -> U + Copy + Sync,
) -> Result<()> {
    let (a, b) = (o.slice::<T>(0)?, o.slice::<T>(1)?);
    if o.shape.elements()? == 0 {
        return Ok(());
    }
    let (simd, steps) = (o.ctx.simd(), o.walk.steps);
    o.parts(out.as_mut_slice::<U>()?, cost, |starts, row, out| {
        dispatch(
            simd,
            #[inline(always)]
            || {
                for (i, out) in out.chunks_exact_mut(row).enumerate() {
                    let [at_a, at_b] = starts(i);
                    line(out, &a[at_a..], &b[at_b..], steps, f);
                }
            },
        );
    });
    Ok(())
}

/// [`zip`] to the same type, where one operand may be the elements of `out`.
#[inline(always)]
fn same<T: Element>(
    o: &Operands<'_>,
    out: &mut Tensor,
    cost: usize,
    f: impl Fn(T, T) -> T + Copy + Sync,
) -> Result<()> {
    let Some(over) = o.given.iter().position(Option::is_none) else {
        return zip(o, out, cost, f);
    };
    let other = o.slice::<T>(1 - over)?;
    if o.shape.elements()? == 0 {
        return Ok(());
    }
    let (simd, step) = (o.ctx.simd(), o.walk.steps[1 - over]);
    o.parts(out.as_mut_slice::<T>()?, cost, |starts, row, out| {
        dispatch(
            simd,
            #[inline(always)]
            || {
                for (i, out) in out.chunks_exact_mut(row).enumerate() {
                    let other = &other[starts(i)[1 - over]..];
                    if over == 0 {
                        line_over(out, other, step, f);
                    } else {
                        line_over(
                            out,
                            other,
                            step,
                            #[inline(always)]
                            |own, other| f(other, own),
                        );
                    }
                }
            },
        );
    });
    Ok(())
}

/// One row. An operand with a step of 0 has one element for the whole row. Callers are inside
/// [`dispatch`].
#[inline(always)]
fn line<T: Copy, U>(
    out: &mut [U],
    a: &[T],
    b: &[T],
    steps: [usize; 2],
    f: impl Fn(T, T) -> U + Copy,
) {
    let n = out.len();
    match steps {
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
    }
}

/// One row that is written over. With a `step` of 0, `other` has one element for the whole row.
/// Callers are inside [`dispatch`].
#[inline(always)]
fn line_over<T: Copy>(out: &mut [T], other: &[T], step: usize, f: impl Fn(T, T) -> T) {
    if step == 0 {
        let other = other[0];
        out.iter_mut().for_each(|own| *own = f(*own, other));
    } else {
        let n = out.len();
        out.iter_mut().zip(&other[..n]).for_each(|(own, other)| *own = f(*own, *other));
    }
}

/// A loop for each function in f32, the most frequent dtype.
fn floats(kind: BinaryKind, o: &Operands<'_>, out: &mut Tensor) -> Result<()> {
    macro_rules! each {
        ($cost:literal, |$a:ident, $b:ident| $body:expr) => {
            each!(same, $cost, |$a, $b| $body)
        };
        ($zip:ident, $cost:literal, |$a:ident, $b:ident| $body:expr) => {
            $zip(
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
        BinaryKind::Equal => each!(zip, 1, |a, b| a == b),
        BinaryKind::Less => each!(zip, 1, |a, b| a < b),
        BinaryKind::LessOrEqual => each!(zip, 1, |a, b| a <= b),
        BinaryKind::Greater => each!(zip, 1, |a, b| a > b),
        BinaryKind::GreaterOrEqual => each!(zip, 1, |a, b| a >= b),
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
    same(o, out, 4, f)
}

/// The functions in other numbers, through one loop for each dtype and a function pointer: such
/// tensors are mostly small, because they hold indices and dimensions.
fn numbers<T: Number>(op: &Binary, o: &Operands<'_>, out: &mut Tensor) -> Result<()> {
    let divides = matches!(op.kind, BinaryKind::Div | BinaryKind::Mod { .. });
    if divides && o.slice::<T>(1)?.iter().any(|n| n.is_integer_zero()) {
        return Err(Error::invalid("an integer is divided by zero"));
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
    same(o, out, 4, f)
}
