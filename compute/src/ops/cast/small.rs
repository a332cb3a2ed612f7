//! Casts from and to elements of eight bits and fewer that are no native integers: they go through
//! the native dtype that holds all of them.

use super::Cast;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{
    DType, Element, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, I2, I4,
    PowerRounding, Shape, Tensor, TensorView, U2, U4,
};

/// How floats of eight bits take numbers that they cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Manner {
    pub(super) saturate: bool,
    pub(super) rounding: PowerRounding,
}

/// The native dtype that holds every element of a small one.
fn native(dtype: DType) -> Option<DType> {
    Some(match dtype {
        DType::I4 | DType::I2 => DType::I8,
        DType::U4 | DType::U2 => DType::U8,
        DType::F4E2M1
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0 => DType::F32,
        _ => return None,
    })
}

/// The native dtype between `from` and the small dtype `to`; `None` where `to` is native.
fn between(from: DType, to: DType) -> Option<DType> {
    Some(match to {
        // Only the low bits are kept, and a byte has all of them.
        DType::I4 | DType::U4 | DType::I2 | DType::U2 => DType::I8,
        _ if native(to).is_none() => return None,
        _ => match from {
            DType::F64 | DType::I32 | DType::I64 | DType::U32 | DType::U64 => DType::F64,
            _ => DType::F32,
        },
    })
}

/// Bytes of the tensors of native dtypes between x and the result.
pub(super) fn scratch_bytes(x: &ValueInfo, to: DType) -> usize {
    if x.ty.dtype == to {
        return 0;
    }
    let wide = native(x.ty.dtype);
    let from = wide.unwrap_or(x.ty.dtype);
    let next = between(from, to).filter(|&by| by != from);
    wide.into_iter().chain(next).map(|by| x.bytes_in(by)).fold(0, usize::saturating_add)
}

/// The same numbers in a native dtype; `None` where x's dtype is native.
pub(super) fn widen(ctx: &Context, x: &TensorView<'_>) -> Result<Option<Tensor>> {
    let Some(wide) = native(x.dtype()) else { return Ok(None) };
    let mut out = ctx.scratch(wide, x.shape().clone())?;
    if wide != DType::F32 {
        // In memory they are native integers.
        out.as_bytes_mut()?.copy_from_slice(x.as_bytes());
        return Ok(Some(out));
    }
    let decode = |code: u8| match x.dtype() {
        DType::F4E2M1 => F4E2M1::from_bits(code).to_f32(),
        DType::F8E4M3FN => F8E4M3FN::from_bits(code).to_f32(),
        DType::F8E4M3FNUZ => F8E4M3FNUZ::from_bits(code).to_f32(),
        DType::F8E5M2 => F8E5M2::from_bits(code).to_f32(),
        DType::F8E5M2FNUZ => F8E5M2FNUZ::from_bits(code).to_f32(),
        _ => F8E8M0::from_bits(code).to_f32(),
    };
    let mut table = [0f32; 256];
    table.iter_mut().zip(0..=u8::MAX).for_each(|(entry, code)| *entry = decode(code));
    let x = x.as_bytes();
    ctx.split(out.as_mut_slice::<f32>()?, 1, 2, |start, out| {
        let x = &x[start..start + out.len()];
        out.iter_mut().zip(x).for_each(|(o, &code)| *o = table[usize::from(code)]);
    });
    Ok(Some(out))
}

/// Casts a native tensor to a small dtype; `None` for another target.
pub(super) fn narrow(
    ctx: &Context,
    x: &TensorView<'_>,
    to: DType,
    shape: &Shape,
    Manner { saturate, rounding }: Manner,
) -> Result<Option<Tensor>> {
    let Some(by) = between(x.dtype(), to) else { return Ok(None) };
    let cast = Cast { to: by }.run(ctx, &[Some(x.clone())])?;
    let x = cast.first().ok_or_else(|| Error::unsupported(format!("dtype {to}")))?;
    let mut out = ctx.alloc(to, shape.clone())?;
    let s = saturate;
    match to {
        DType::I4 => each(ctx, x, &mut out, I4::wrapping)?,
        DType::U4 => each(ctx, x, &mut out, |x: i8| U4::wrapping(x.cast_unsigned()))?,
        DType::I2 => each(ctx, x, &mut out, I2::wrapping)?,
        DType::U2 => each(ctx, x, &mut out, |x: i8| U2::wrapping(x.cast_unsigned()))?,
        DType::F4E2M1 => floats(ctx, x, &mut out, |x| F4E2M1::from_f64(x, true))?,
        DType::F8E4M3FN => floats(ctx, x, &mut out, |x| F8E4M3FN::from_f64(x, s))?,
        DType::F8E4M3FNUZ => floats(ctx, x, &mut out, |x| F8E4M3FNUZ::from_f64(x, s))?,
        DType::F8E5M2 => floats(ctx, x, &mut out, |x| F8E5M2::from_f64(x, s))?,
        DType::F8E5M2FNUZ => floats(ctx, x, &mut out, |x| F8E5M2FNUZ::from_f64(x, s))?,
        _ => floats(ctx, x, &mut out, |x| F8E8M0::from_f64(x, s, rounding))?,
    }
    Ok(Some(out))
}

fn floats<U: Element>(
    ctx: &Context,
    x: &Tensor,
    out: &mut Tensor,
    f: impl Fn(f64) -> U + Sync,
) -> Result<()> {
    match x.dtype() {
        DType::F64 => each(ctx, x, out, f),
        _ => each(ctx, x, out, |x: f32| f(x.into())),
    }
}

fn each<T: Element, U: Element>(
    ctx: &Context,
    x: &Tensor,
    out: &mut Tensor,
    f: impl Fn(T) -> U + Sync,
) -> Result<()> {
    let x = x.as_slice::<T>()?;
    ctx.split(out.as_mut_slice::<U>()?, 1, 16, |start, out| {
        let x = &x[start..start + out.len()];
        out.iter_mut().zip(x).for_each(|(o, x)| *o = f(*x));
    });
    Ok(())
}
