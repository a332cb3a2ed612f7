//! Channels-last convolution on the CPU.

use super::{ConvNhwc, NAME};
use crate::args::{concrete_one, optional, required};
use crate::error::Result;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &ConvNhwc,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let (x, weight) = (required(NAME, inputs, 0)?, required(NAME, inputs, 1)?);
    let g = &op.geometry;
    let [ay, ax] = g.axes(x.shape()[1], x.shape()[2])?;
    let bias = optional(inputs, 2).map(TensorView::as_slice::<f32>).transpose()?;
    let residual = optional(inputs, 3).map(TensorView::as_slice::<f32>).transpose()?;
    let (x, weight) = (x.as_slice::<f32>()?, weight.as_slice::<f32>()?);
    let mut out = ctx.alloc(dtype, shape)?;
    let (c, m) = (g.channels / g.group, g.maps / g.group);
    let taps = g.kernel[0] * g.kernel[1];
    let maps = g.maps;
    ctx.split(out.as_mut_slice::<f32>()?, maps, maps * g.depth(), |first, out| {
        for (i, out) in out.chunks_exact_mut(maps).enumerate() {
            let pixel = first + i;
            let (n, oy, ox) =
                (pixel / ax.output / ay.output, pixel / ax.output % ay.output, pixel % ax.output);
            for (map, out) in out.iter_mut().enumerate() {
                let mut sum = bias.map_or(0., |b| b[map]);
                for ky in ay.taps(oy) {
                    for kx in ax.taps(ox) {
                        let at = (n * ay.input + ay.at(oy, ky)) * ax.input + ax.at(ox, kx);
                        let x = &x[at * g.channels + map / m * c..][..c];
                        let w = &weight[map * c * taps..];
                        for (i, x) in x.iter().enumerate() {
                            sum += x * w[i * taps + ky * g.kernel[1] + kx];
                        }
                    }
                }
                *out = sum + residual.map_or(0., |r| r[pixel * maps + map]);
            }
            op.activation.apply(out);
        }
    });
    Ok(vec![out])
}
