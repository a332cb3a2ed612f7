//! Channels-last convolution on the CPU.

use super::depthwise::Depthwise;
use super::direct::Direct;
use super::grouped::Grouped;
use super::kernel::{Epilogue, Width};
use super::winograd::Winograd;
use super::{Algorithm, ConvNhwc};
use crate::Activation;
use crate::args::{concrete_one, optional, required};
use crate::error::{Error, Result};
use crate::gemm;
use crate::isa::Isa;
use crate::op::Context;
use crate::simd::dispatch;
use half::bf16;
use lgp_memory::{DType, Tensor, TensorView};
use std::marker::PhantomData;

pub(super) fn run(
    op: &ConvNhwc,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    // This also holds every operand against the geometry: the kernels rely on their sizes.
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let g = &op.geometry;
    let axes = g.axes(x.shape()[1], x.shape()[2])?;
    let images = x.shape()[0];
    let floats = |i| optional(inputs, i).map(TensorView::as_slice::<f32>).transpose();
    let (weight, bias) = (required(inputs, 1)?.as_slice::<f32>()?, floats(2)?);
    let (mut residual, mut residual_bf16) = (std::ptr::null(), std::ptr::null());
    match optional(inputs, 3) {
        Some(r) if r.dtype() == DType::BF16 => residual_bf16 = r.as_slice::<bf16>()?.as_ptr(),
        Some(r) => residual = r.as_slice::<f32>()?.as_ptr(),
        None => {}
    }
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let (low, high) = op.activation.bounds().unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    let halves = dtype == DType::BF16 && op.algorithm == Algorithm::DirectBf16;
    let epilogue = Epilogue {
        bias: bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
        residual,
        residual_bf16,
        out_bf16: match halves {
            true => out.as_mut_slice::<bf16>()?.as_mut_ptr(),
            false => std::ptr::null_mut(),
        },
        low,
        high,
        activation: Some(op.activation).filter(|a: &Activation| a.bounds().is_none()),
        borrowed: PhantomData,
    };
    let width = width(ctx);
    let (channels, maps, group) = (g.channels, g.maps, g.group);
    // SAFETY: the output was just allocated; all operands' sizes were checked against the
    // geometry; the context vouches for the instructions.
    unsafe {
        match op.algorithm {
            Algorithm::Direct => {
                let (x, to) = (x.as_slice()?, out.as_mut_slice()?.as_mut_ptr());
                Direct { width, axes, images, channels, maps, group, x, weight, epilogue }
                    .run(ctx, to)?;
            }
            Algorithm::DirectBf16 => {
                let (width, mut memory) = (bf16_width(ctx)?, None);
                let (x, channels) = (pairs(ctx, x, channels, &mut memory)?, channels.div_ceil(2));
                let to = match halves {
                    true => std::ptr::null_mut(),
                    false => out.as_mut_slice()?.as_mut_ptr(),
                };
                Direct { width, axes, images, channels, maps, group, x, weight, epilogue }
                    .run(ctx, to)?;
            }
            Algorithm::Depthwise if dtype == DType::BF16 => {
                let (x, zeros) = (x.as_slice()?, &vec![bf16::ZERO; channels][..]);
                Depthwise { width, axes, images, channels, x, weight, zeros, epilogue }
                    .run(ctx, out.as_mut_slice()?.as_mut_ptr());
            }
            Algorithm::Depthwise => {
                let (x, zeros) = (x.as_slice()?, &vec![0f32; channels][..]);
                Depthwise { width, axes, images, channels, x, weight, zeros, epilogue }
                    .run(ctx, out.as_mut_slice()?.as_mut_ptr());
            }
            Algorithm::Grouped { per_group } => {
                let (x, zeros) = (x.as_slice()?, &vec![0f32; channels][..]);
                let operands =
                    Depthwise { width, axes, images, channels, x, weight, zeros, epilogue };
                Grouped { operands, per_group }.run(ctx, out.as_mut_slice()?.as_mut_ptr());
            }
            Algorithm::Winograd { side } => {
                let (x, zeros) = (x.as_slice()?, &vec![0f32; channels][..]);
                let to = out.as_mut_slice()?.as_mut_ptr();
                let conv =
                    Winograd { width, axes, images, channels, maps, x, weight, zeros, epilogue };
                if side == 4 { conv.run::<4>(ctx, to)? } else { conv.run::<6>(ctx, to)? }
            }
        }
    }
    Ok(vec![out])
}

/// Pixels as words of two bf16, rounded into new memory where they are not such already.
fn pairs<'a>(
    ctx: &Context,
    x: &'a TensorView<'_>,
    channels: usize,
    memory: &'a mut Option<Tensor>,
) -> Result<&'a [f32]> {
    if x.dtype() == DType::F32 {
        let x = x.as_slice::<f32>()?;
        let rounded = ctx.scratch(DType::F32, [x.len() / channels, channels.div_ceil(2)])?;
        let pairs = memory.insert(rounded).as_mut_slice::<f32>()?;
        to_pairs(ctx, x, channels, pairs);
        return Ok(pairs);
    }
    let x = x.as_slice::<bf16>()?;
    // SAFETY: any bits are an f32, and only whole words inside `x` come back.
    let (before, words, after) = unsafe { x.align_to::<f32>() };
    if !channels.is_multiple_of(2) || !before.is_empty() || !after.is_empty() {
        return Err(Error::invalid("pixels in bf16 are no pairs, expected aligned ones"));
    }
    Ok(words)
}

/// Rounds pixels of so many channels to words of two bf16, an odd last one paired with zero.
fn to_pairs(ctx: &Context, x: &[f32], channels: usize, pairs: &mut [f32]) {
    let words = channels.div_ceil(2);
    ctx.split(pairs, words, words, |first, part| {
        let x = &x[first * channels..];
        dispatch(
            ctx.simd(),
            #[inline(always)]
            || {
                if channels.is_multiple_of(2) {
                    return gemm::pairs_of_row(&x[..2 * part.len()], part);
                }
                for (x, to) in x.chunks_exact(channels).zip(part.chunks_exact_mut(words)) {
                    gemm::pairs_of_row(x, to);
                }
            },
        );
    });
}

/// The instructions for products of bf16.
fn bf16_width(ctx: &Context) -> Result<Width> {
    match ctx.simd().bf16() {
        #[cfg(target_arch = "x86_64")]
        true => Ok(Width::Bf16),
        _ => {
            let message = "a weight in bf16 on a machine without bf16 products";
            Err(Error::unsupported(message))
        }
    }
}

/// The context's instructions.
fn width(ctx: &Context) -> Width {
    match ctx.simd().isa() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => Width::Avx512,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Width::Avx2,
        _ => Width::Portable,
    }
}
