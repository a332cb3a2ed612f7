//! Back from quantised values, on the CPU.

use super::DequantizeLinear;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::number::with_type;
use crate::op::{Context, Op};
use crate::ops::Cast;
use crate::quantized::{Granularity, small_float, widened};
use crate::simd::dispatch;
use crate::widen::{convert, widen};
use lgp_memory::{DType, Element, Tensor, TensorView};

pub(super) fn run(
    op: &DequantizeLinear,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, scale) = (required(inputs, 0)?, required(inputs, 1)?);
    let lines = Granularity::new(x.shape(), scale.shape(), op.axis, op.block)?;
    let scale = widen(ctx, scale)?;
    let scale = scale.as_slice::<f32>()?;
    let native = match x.dtype() {
        DType::I4 | DType::I2 => Some(DType::I8),
        DType::U4 | DType::U2 => Some(DType::U8),
        small if small_float(small) => Some(DType::F32),
        _ => None,
    };
    let wide = match native {
        Some(to) => Cast { to }.run(ctx, &[Some(x.clone())])?.pop(),
        None => None,
    };
    if let Some(x) = wide.as_ref().filter(|x| x.dtype() == DType::F32) {
        let zero =
            optional(inputs, 2).map(|z| Cast { to: DType::F32 }.run(ctx, &[Some(z.clone())]));
        let zero = zero.transpose()?.and_then(|mut z| z.pop());
        let zero = zero.as_ref().map(|z| z.as_slice::<f32>()).transpose()?;
        let mut out = ctx.alloc(DType::F32, shape)?;
        for (i, (o, x)) in out.as_mut_slice()?.iter_mut().zip(x.as_slice::<f32>()?).enumerate() {
            let at = lines.scale(i);
            *o = (x - zero.map_or(0., |z| z[at])) * scale[at];
        }
        return Ok(vec![convert(ctx, &out.view(), dtype)?]);
    }
    let x = &wide.as_ref().map_or_else(|| x.clone(), Tensor::view);
    let zero = match optional(inputs, 2) {
        Some(zero) => widened(zero)?,
        None => vec![0; scale.len()],
    };
    let mut out = ctx.alloc(DType::F32, shape)?;
    if !out.is_empty() {
        let values = out.as_mut_slice::<f32>()?;
        with_type!(x.dtype(), [I8 i8, U8 u8, I16 i16, U16 u16, I32 i32] T => {
            each::<T>(ctx, &lines, x.as_slice()?, scale, &zero, values);
            Ok(())
        })?;
    }
    Ok(vec![if dtype == DType::F32 { out } else { convert(ctx, &out.view(), dtype)? }])
}

fn each<T: Element + Into<i32>>(
    ctx: &Context,
    lines: &Granularity,
    x: &[T],
    scale: &[f32],
    zero: &[i32],
    out: &mut [f32],
) {
    ctx.split(out, 1, 2, |start, part| {
        let mut done = 0;
        while done < part.len() {
            let at = start + done;
            let (line, column) = (at / lines.inner, at % lines.inner);
            let n = (lines.inner - column).min(part.len() - done);
            let (x, out) = (&x[at..at + n], &mut part[done..done + n]);
            let scales = lines.scales(line);
            if scales.len() == 1 {
                let i = scales.start;
                dispatch(
                    ctx.simd(),
                    #[inline(always)]
                    || one_scale(x, out, scale[i], zero[i]),
                );
            } else {
                let from = scales.start + column;
                let scales = scale[from..from + n].iter().zip(&zero[from..from + n]);
                for ((out, x), (s, z)) in out.iter_mut().zip(x).zip(scales) {
                    *out = back((*x).into(), *s, *z);
                }
            }
            done += n;
        }
    });
}

#[inline(always)]
fn one_scale<T: Element + Into<i32>>(x: &[T], out: &mut [f32], scale: f32, zero: i32) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = back((*x).into(), scale, zero);
    }
}

#[inline(always)]
#[allow(clippy::cast_precision_loss, reason = "only 32-bit sums are that large: they are rounded")]
fn back(x: i32, scale: f32, zero: i32) -> f32 {
    x.wrapping_sub(zero) as f32 * scale
}
