//! Element-wise operators on quantised bytes, with quantised results.

#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{concrete_one, output, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::qgemm::{LARGE, round};
use crate::quantized::Quant;
use crate::simd::dispatch;
use crate::walk::Walk;
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// The sum of two tensors of bytes of one shape, quantised again.
#[derive(Debug, Clone, PartialEq)]
pub struct QAdd {
    /// The first input.
    pub a: Quant,
    /// The second input.
    pub b: Quant,
    /// The output.
    pub y: Quant,
    /// Limits of the numbers that the output stands for.
    pub limits: (f32, f32),
}

/// A sum of unsigned bytes: `a · ra + b · rb + fixed`.
#[derive(Clone, Copy)]
struct Sum {
    ratio_a: f32,
    ratio_b: f32,
    fixed: f32,
    flips: [u8; 3],
    low: i32,
    high: i32,
}

impl QAdd {
    #[allow(clippy::cast_precision_loss, reason = "zero points have 8 bits")]
    fn sum(&self) -> Sum {
        let (ratio_a, ratio_b) = (self.a.scale / self.y.scale, self.b.scale / self.y.scale);
        let zero = |q: Quant| q.unsigned_zero() as f32;
        Sum {
            ratio_a,
            ratio_b,
            fixed: zero(self.y) - (ratio_a * zero(self.a) + ratio_b * zero(self.b)),
            flips: [self.a.flip(), self.b.flip(), self.y.flip()],
            low: self.y.unsigned(self.limits.0),
            high: self.y.unsigned(self.limits.1),
        }
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "limited to a byte")]
fn add(a: &[u8], b: &[u8], out: &mut [u8], sum: Sum) {
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        let (a, b) = (f32::from(*a ^ sum.flips[0]), f32::from(*b ^ sum.flips[1]));
        let y = b.mul_add(sum.ratio_b, a.mul_add(sum.ratio_a, sum.fixed));
        #[expect(clippy::manual_clamp, reason = "a NaN must become a number")]
        let q = round(y.min(LARGE).max(-LARGE)).max(sum.low).min(sum.high);
        *out = q as u8 ^ sum.flips[2];
    }
}

impl Op for QAdd {
    fn name(&self) -> &'static str {
        "QAdd"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        for (quant, info) in [(self.a, a), (self.b, b)] {
            quant.check()?;
            same_dtype("an input", quant.dtype, info.ty.dtype)?;
        }
        self.y.check()?;
        if let (Some(a), Some(b)) = (a.ty.concrete_shape(), b.ty.concrete_shape())
            && a != b
        {
            let message = format!("inputs have shapes {:?} and {:?}", a.dims(), b.dims());
            return Err(Error::invalid(message));
        }
        Ok(output(self.y.dtype, a.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let a = required(inputs, 0)?.as_bytes();
        let b = required(inputs, 1)?.as_bytes();
        let mut out = ctx.alloc(dtype, shape)?;
        let sum = self.sum();
        ctx.split(out.as_bytes_mut()?, 1, 1, |start, part| {
            let n = part.len();
            let (a, b) = (&a[start..start + n], &b[start..start + n]);
            dispatch(
                ctx.simd(),
                #[inline(always)]
                || add(a, b, part, sum),
            );
        });
        Ok(vec![out])
    }
}

/// The product of two tensors of bytes that broadcast by numpy's rules, quantised again.
#[derive(Debug, Clone, PartialEq)]
pub struct QMul {
    /// The first input.
    pub a: Quant,
    /// The second input.
    pub b: Quant,
    /// The output.
    pub y: Quant,
    /// Limits of the numbers that the output stands for.
    pub limits: (f32, f32),
}

/// A product of unsigned bytes: `(a − za) · (b − zb) · ratio + zero`.
#[derive(Clone, Copy)]
struct Times {
    zeros: [i32; 2],
    ratio: f32,
    zero: f32,
    flips: [u8; 3],
    low: i32,
    high: i32,
}

/// One row; a step of 0 repeats an operand's single element.
#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "limited to a byte; products of bytes are exact"
)]
fn multiply(a: &[u8], b: &[u8], steps: [usize; 2], out: &mut [u8], times: Times) {
    let [za, zb] = times.zeros;
    let one = |a: u8, b: u8| {
        let (a, b) = (i32::from(a ^ times.flips[0]) - za, i32::from(b ^ times.flips[1]) - zb);
        let y = ((a * b) as f32).mul_add(times.ratio, times.zero);
        #[expect(clippy::manual_clamp, reason = "a NaN must become a number")]
        let q = round(y.min(LARGE).max(-LARGE)).max(times.low).min(times.high);
        q as u8 ^ times.flips[2]
    };
    match steps {
        [0, 0] => out.fill(one(a[0], b[0])),
        [0, _] => out.iter_mut().zip(b).for_each(|(out, b)| *out = one(a[0], *b)),
        [_, 0] => out.iter_mut().zip(a).for_each(|(out, a)| *out = one(*a, b[0])),
        _ => out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = one(*a, *b)),
    }
}

impl Op for QMul {
    fn name(&self) -> &'static str {
        "QMul"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        for (quant, info) in [(self.a, a), (self.b, b)] {
            quant.check()?;
            same_dtype("an input", quant.dtype, info.ty.dtype)?;
        }
        self.y.check()?;
        let shape = match (a.sym_shape(), b.sym_shape()) {
            (Some(a), Some(b)) => Some(dims::broadcast(a, b)?),
            _ => None,
        };
        Ok(output(self.y.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    #[allow(clippy::cast_precision_loss, reason = "zero points have 8 bits")]
    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        let walk = Walk::new(&shape, [a.shape(), b.shape()])?;
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut out = ctx.alloc(dtype, shape)?;
        let times = Times {
            zeros: [self.a.unsigned_zero(), self.b.unsigned_zero()],
            ratio: self.a.scale * self.b.scale / self.y.scale,
            zero: self.y.unsigned_zero() as f32,
            flips: [self.a.flip(), self.b.flip(), self.y.flip()],
            low: self.y.unsigned(self.limits.0),
            high: self.y.unsigned(self.limits.1),
        };
        ctx.split(out.as_bytes_mut()?, walk.row, walk.row, |first, part| {
            for (i, out) in part.chunks_exact_mut(walk.row).enumerate() {
                let [at_a, at_b] = walk.starts(first + i);
                dispatch(
                    ctx.simd(),
                    #[inline(always)]
                    || multiply(&a[at_a..], &b[at_b..], walk.steps, out, times),
                );
            }
        });
        Ok(vec![out])
    }
}

/// A function of one byte, as a table by the byte's pattern.
#[derive(Clone, PartialEq)]
pub struct QLookup {
    /// The input's dtype, i8 or u8.
    pub from: DType,
    /// The output's dtype, i8 or u8.
    pub to: DType,
    /// The output byte for each input byte.
    pub table: Box<[u8; 256]>,
}

impl std::fmt::Debug for QLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QLookup from {} to {}", self.from, self.to)
    }
}

impl Op for QLookup {
    fn name(&self) -> &'static str {
        "QLookup"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn held_bytes(&self) -> usize {
        self.table.len()
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        same_dtype("the input", self.from, x.ty.dtype)?;
        if self.from.size() != 1 || self.to.size() != 1 {
            return Err(Error::unsupported(format!("{self:?}")));
        }
        Ok(output(self.to, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?.as_bytes();
        let mut out = ctx.alloc(dtype, shape)?;
        ctx.split(out.as_bytes_mut()?, 1, 1, |start, part| {
            for (out, x) in part.iter_mut().zip(&x[start..]) {
                *out = self.table[usize::from(*x)];
            }
        });
        Ok(vec![out])
    }
}
