//! Back from quantised values, on the CPU.

use super::DequantizeLinear;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::number::with_type;
use crate::op::{Context, Op};
use crate::quantized::{Granularity, widened};
use crate::simd::dispatch;
use crate::widen::convert;
use lgp_memory::{DType, Element, Tensor, TensorView};

pub(super) fn run(
    op: &DequantizeLinear,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, scale) = (required(op.name(), inputs, 0)?, required(op.name(), inputs, 1)?);
    let lines = Granularity::new(op.name(), x.shape(), scale.shape(), op.axis, op.block)?;
    let scale = convert(ctx, scale, DType::F32)?;
    let scale = scale.as_slice::<f32>()?;
    let zero = match optional(inputs, 2) {
        Some(zero) => widened(op.name(), zero)?,
        None => vec![0; scale.len()],
    };
    let mut out = ctx.alloc(DType::F32, shape)?;
    if !out.is_empty() {
        let values = out.as_mut_slice::<f32>()?;
        with_type!(op.name(), x.dtype(), [I8 i8, U8 u8, I16 i16, U16 u16, I32 i32] T => {
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
