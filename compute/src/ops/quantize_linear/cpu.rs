//! Quantisation on the CPU.

use super::QuantizeLinear;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::isa::Simd;
use crate::op::{Context, Op};
use crate::ops::{Cast, CastAs};
use crate::qgemm::round;
use crate::quantized::{Granularity, range, small_float, widened};
use crate::simd::dispatch;
use half::{bf16, f16};
use lgp_memory::{DType, PowerRounding, Shape, Tensor, TensorView};

pub(super) fn run(
    op: &QuantizeLinear,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, scale) = (required(inputs, 0)?, required(inputs, 1)?);
    let lines = Granularity::new(x.shape(), scale.shape(), op.axis, op.block)?;
    let precision = scale.dtype();
    let scale = floats(ctx, scale)?;
    let x = floats(ctx, x)?;
    let (x, scale) = (x.as_slice::<f32>()?, scale.as_slice::<f32>()?);
    if small_float(dtype) {
        return small_floats(op, ctx, x, |i| scale[lines.scale(i)], precision, (dtype, shape));
    }
    let zero = match optional(inputs, 2) {
        Some(zero) => widened(zero)?,
        None => vec![0; scale.len()],
    };
    let Some((low, high)) = range(dtype) else {
        return Err(crate::Error::unsupported(format!("output dtype {dtype}")));
    };
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let one = |line: usize, at: usize| {
        let scales = lines.scales(line);
        let i = if scales.len() == 1 { scales.start } else { scales.start + at };
        Params::new(scale[i], zero[i], (low, high))
    };
    let per_element = lines.scales(0).len() > 1;
    let quantize = |start: usize, len: usize, each: &mut dyn FnMut(&[f32], Params)| {
        let mut at = start;
        while at < start + len {
            let (line, column) = (at / lines.inner, at % lines.inner);
            let n = if per_element { 1 } else { (lines.inner - column).min(start + len - at) };
            each(&x[at..at + n], one(line, column));
            at += n;
        }
    };
    if dtype.size() == 1 {
        ctx.split(out.as_bytes_mut()?, 1, 4, |start, mut part| {
            let len = part.len();
            quantize(start, len, &mut |x, params| {
                let (head, tail) = std::mem::take(&mut part).split_at_mut(x.len());
                part = tail;
                bytes(ctx.simd(), x, head, params, precision);
            });
        });
    } else {
        let mut all = vec![0u16; x.len()];
        ctx.split(&mut all, 1, 4, |start, mut part| {
            let len = part.len();
            quantize(start, len, &mut |x, params| {
                let (head, tail) = std::mem::take(&mut part).split_at_mut(x.len());
                part = tail;
                words(x, head, params, precision);
            });
        });
        let bytes = out.as_bytes_mut()?.as_chunks_mut::<2>().0;
        bytes.iter_mut().zip(all).for_each(|(o, q)| *o = q.to_ne_bytes());
    }
    Ok(vec![out])
}

/// The quotients as floats of eight bits and fewer, rounded as a cast rounds them.
fn small_floats(
    op: &QuantizeLinear,
    ctx: &Context,
    x: &[f32],
    scale: impl Fn(usize) -> f32,
    precision: DType,
    (dtype, shape): (DType, Shape),
) -> Result<Vec<Tensor>> {
    let mut quotients = ctx.scratch(DType::F32, shape)?;
    for (i, (q, x)) in quotients.as_mut_slice::<f32>()?.iter_mut().zip(x).enumerate() {
        *q = rounded(x / scale(i), precision);
    }
    let rounding = PowerRounding::Up;
    let cast = CastAs { to: Some(dtype), saturate: op.saturate, rounding };
    cast.run(ctx, &[Some(quotients.view())])
}

/// The tensor as f32.
fn floats(ctx: &Context, x: &TensorView<'_>) -> Result<Tensor> {
    let mut out = Cast { to: DType::F32 }.run(ctx, &[Some(x.clone())])?;
    out.pop().ok_or_else(|| crate::Error::invalid("there is no output"))
}

/// The parameters that quantise elements of one scale.
#[derive(Clone, Copy)]
pub(crate) struct Params {
    scale: f32,
    zero: i32,
    /// Bounds before the zero point is added.
    low: f32,
    high: f32,
}

impl Params {
    #[allow(clippy::cast_precision_loss, reason = "the bounds have at most 17 bits")]
    pub(crate) fn new(scale: f32, zero: i32, (low, high): (i32, i32)) -> Self {
        Self { scale, zero, low: (low - zero) as f32, high: (high - zero) as f32 }
    }

    /// The quantised value; NaN becomes the least value.
    #[inline(always)]
    fn of(self, quotient: f32) -> i32 {
        round(quotient.max(self.low).min(self.high)) + self.zero
    }
}

/// Quantises f32 elements of one scale to bytes.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a byte pattern")]
pub(crate) fn bytes_f32(simd: Simd, x: &[f32], out: &mut [u8], params: Params) {
    dispatch(
        simd,
        #[inline(always)]
        || {
            quantize_each(
                x,
                out,
                params,
                #[inline(always)]
                |q| q as u8,
            );
        },
    );
}

#[inline(always)]
fn quantize_each<T>(x: &[f32], out: &mut [T], params: Params, narrow: impl Fn(i32) -> T) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = narrow(params.of(x / params.scale));
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a byte pattern")]
fn bytes(simd: Simd, x: &[f32], out: &mut [u8], params: Params, precision: DType) {
    if precision == DType::F32 {
        return bytes_f32(simd, x, out, params);
    }
    out.iter_mut().zip(x).for_each(|(o, x)| *o = params.of(divided(*x, params, precision)) as u8);
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bit pattern")]
fn words(x: &[f32], out: &mut [u16], params: Params, precision: DType) {
    out.iter_mut().zip(x).for_each(|(o, x)| *o = params.of(divided(*x, params, precision)) as u16);
}

/// The quotient, rounded to the scale's dtype.
fn divided(x: f32, params: Params, precision: DType) -> f32 {
    rounded(x / params.scale, precision)
}

fn rounded(quotient: f32, precision: DType) -> f32 {
    match precision {
        DType::F16 => f16::from_f32(quotient).to_f32(),
        DType::BF16 => bf16::from_f32(quotient).to_f32(),
        _ => quotient,
    }
}
