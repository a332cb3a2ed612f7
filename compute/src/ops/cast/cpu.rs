//! Cast on the CPU.

// Conversions that round, saturate or wrap are what this operator is for.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    clippy::float_cmp
)]

use super::Cast;
use super::small::{Manner, narrow, widen};
use super::text;
use crate::args::{concrete_one, required};
use crate::error::Result;
use crate::op::Context;
use half::{bf16, f16};
use lgp_memory::{DType, Element, Tensor, TensorView};

pub(super) fn run(
    op: &Cast,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    manner: Manner,
) -> Result<Vec<Tensor>> {
    let (to, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    if x.dtype() == to {
        return Ok(vec![x.to_tensor()?]);
    }
    if let Some(wide) = widen(ctx, x)? {
        return run(op, ctx, &[Some(wide.view())], manner);
    }
    if x.dtype() == DType::Str {
        return run(op, ctx, &[Some(text::parse(x, to)?.view())], manner);
    }
    if to == DType::Str {
        return Ok(vec![text::write(ctx, x)?]);
    }
    if let Some(narrow) = narrow(ctx, x, to, &shape, manner)? {
        return Ok(vec![narrow]);
    }
    match (x.dtype(), to) {
        (DType::F16 | DType::BF16, DType::F32) | (DType::F32, DType::F16 | DType::BF16) => {
            return Ok(vec![crate::widen::convert(ctx, x, to)?]);
        }
        _ => {}
    }
    let mut out = ctx.alloc(to, shape)?;
    match x.dtype() {
        DType::F16 => from(ctx, x.as_slice::<f16>()?, &mut out)?,
        DType::BF16 => from(ctx, x.as_slice::<bf16>()?, &mut out)?,
        DType::F32 => from(ctx, x.as_slice::<f32>()?, &mut out)?,
        DType::F64 => from(ctx, x.as_slice::<f64>()?, &mut out)?,
        DType::I8 => from(ctx, x.as_slice::<i8>()?, &mut out)?,
        DType::I16 => from(ctx, x.as_slice::<i16>()?, &mut out)?,
        DType::I32 => from(ctx, x.as_slice::<i32>()?, &mut out)?,
        DType::I64 => from(ctx, x.as_slice::<i64>()?, &mut out)?,
        DType::U8 => from(ctx, x.as_slice::<u8>()?, &mut out)?,
        DType::U16 => from(ctx, x.as_slice::<u16>()?, &mut out)?,
        DType::U32 => from(ctx, x.as_slice::<u32>()?, &mut out)?,
        DType::U64 => from(ctx, x.as_slice::<u64>()?, &mut out)?,
        DType::Bool => from(ctx, x.as_slice::<bool>()?, &mut out)?,
        other => return Err(crate::Error::unsupported(format!("dtype {other}"))),
    }
    Ok(vec![out])
}

fn from<T: Element + Into<Wide>>(ctx: &Context, x: &[T], out: &mut Tensor) -> Result<()> {
    fn each<T: Element + Into<Wide>, U: Element + From<Wide>>(
        ctx: &Context,
        x: &[T],
        out: &mut Tensor,
    ) -> Result<()> {
        ctx.split(out.as_mut_slice::<U>()?, 1, 4, |start, out| {
            let x = &x[start..start + out.len()];
            out.iter_mut().zip(x).for_each(|(o, x)| *o = U::from((*x).into()));
        });
        Ok(())
    }
    match out.dtype() {
        DType::F16 => each::<T, f16>(ctx, x, out),
        DType::BF16 => each::<T, bf16>(ctx, x, out),
        DType::F32 => each::<T, f32>(ctx, x, out),
        DType::F64 => each::<T, f64>(ctx, x, out),
        DType::I8 => each::<T, i8>(ctx, x, out),
        DType::I16 => each::<T, i16>(ctx, x, out),
        DType::I32 => each::<T, i32>(ctx, x, out),
        DType::I64 => each::<T, i64>(ctx, x, out),
        DType::U8 => each::<T, u8>(ctx, x, out),
        DType::U16 => each::<T, u16>(ctx, x, out),
        DType::U32 => each::<T, u32>(ctx, x, out),
        DType::U64 => each::<T, u64>(ctx, x, out),
        DType::Bool => each::<T, bool>(ctx, x, out),
        other => Err(crate::Error::unsupported(format!("dtype {other}"))),
    }
}

/// Any element without loss.
#[derive(Clone, Copy)]
enum Wide {
    Float(f64),
    Signed(i64),
    Unsigned(u64),
}

macro_rules! into_wide {
    ($($variant:ident as $wide:ty: $($t:ty)*);*) => { $($(
        impl From<$t> for Wide {
            #[inline(always)]
            fn from(x: $t) -> Self { Self::$variant(<$wide>::from(x)) }
        }
    )*)* };
}
into_wide!(Float as f64: f16 bf16 f32 f64; Signed as i64: i8 i16 i32 i64; Unsigned as u64: u8 u16 u32 u64 bool);

macro_rules! from_wide {
    ($($t:ty)*) => { $(
        impl From<Wide> for $t {
            #[inline(always)]
            fn from(x: Wide) -> Self {
                match x {
                    Wide::Float(x) => x as Self,
                    Wide::Signed(x) => x as Self,
                    Wide::Unsigned(x) => x as Self,
                }
            }
        }
    )* };
}
from_wide!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! half_from_wide {
    ($($t:ty)*) => { $(
        impl From<Wide> for $t {
            fn from(x: Wide) -> Self { Self::from_f64(x.into()) }
        }
    )* };
}
half_from_wide!(f16 bf16);

impl From<Wide> for bool {
    #[inline(always)]
    fn from(x: Wide) -> Self {
        match x {
            Wide::Float(x) => x != 0.,
            Wide::Signed(x) => x != 0,
            Wide::Unsigned(x) => x != 0,
        }
    }
}
