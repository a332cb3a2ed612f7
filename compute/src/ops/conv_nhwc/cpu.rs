//! Channels-last convolution on the CPU.

use super::depthwise::Depthwise;
use super::direct::Direct;
use super::kernel::{Epilogue, Width};
use super::winograd::Winograd;
use super::{Algorithm, ConvNhwc, NAME};
use crate::Activation;
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::isa::Isa;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};
use std::marker::PhantomData;

pub(super) fn run(
    op: &ConvNhwc,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    // This also holds every operand against the geometry: the kernels rely on their sizes.
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, weight) = (required(NAME, inputs, 0)?, required(NAME, inputs, 1)?);
    let g = &op.geometry;
    let axes = g.axes(x.shape()[1], x.shape()[2])?;
    let images = x.shape()[0];
    let bias = optional(inputs, 2).map(TensorView::as_slice::<f32>).transpose()?;
    let residual = optional(inputs, 3).map(TensorView::as_slice::<f32>).transpose()?;
    let (x, weight) = (x.as_slice::<f32>()?, weight.as_slice::<f32>()?);
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let (low, high) = op.activation.bounds().unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
    let epilogue = Epilogue {
        bias: bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
        residual: residual.map_or(std::ptr::null(), <[f32]>::as_ptr),
        low,
        high,
        activation: Some(op.activation).filter(|a: &Activation| a.bounds().is_none()),
        borrowed: PhantomData,
    };
    let width = width(ctx);
    let (channels, maps, group) = (g.channels, g.maps, g.group);
    let to = out.as_mut_slice::<f32>()?.as_mut_ptr();
    // A pixel of padding.
    let zeros = match op.algorithm {
        Algorithm::Direct => Vec::new(),
        _ => vec![0f32; channels],
    };
    let zeros = &zeros[..];
    // SAFETY: the output was just allocated; all operands' sizes were checked against the
    // geometry; the context vouches for the instructions.
    unsafe {
        match op.algorithm {
            Algorithm::Direct => {
                Direct { width, axes, images, channels, maps, group, x, weight, epilogue }
                    .run(ctx, to);
            }
            Algorithm::Depthwise => {
                Depthwise { width, axes, images, channels, x, weight, zeros, epilogue }
                    .run(ctx, to);
            }
            Algorithm::Winograd { side } => {
                let conv =
                    Winograd { width, axes, images, channels, maps, x, weight, zeros, epilogue };
                if side == 4 { conv.run::<4>(ctx, to)? } else { conv.run::<6>(ctx, to)? }
            }
        }
    }
    Ok(vec![out])
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
