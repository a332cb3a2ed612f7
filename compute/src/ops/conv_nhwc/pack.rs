//! Weights in the order in which the kernels read them.

use super::kernel::LANE;
use super::kernel::tile::{panel_count, panel_width};
use super::{Algorithm, ConvNhwc, NAME};
use crate::error::{Error, Result};
use lgp_memory::{DType, Tensor};

/// Elements of the packed weights.
pub(super) fn len(conv: &ConvNhwc) -> Result<usize> {
    let g = &conv.geometry;
    let taps = g.kernel[0].checked_mul(g.kernel[1]);
    let columns = |m: usize| m.checked_next_multiple_of(LANE);
    let len = match conv.algorithm {
        Algorithm::Direct => taps
            .and_then(|n| n.checked_mul(g.channels))
            .and_then(|n| n.checked_mul(columns(g.maps / g.group)?)),
        Algorithm::Depthwise => taps.and_then(|n| n.checked_mul(g.channels)),
        Algorithm::Winograd { side } => {
            columns(g.maps).and_then(|n| n.checked_mul(g.channels)?.checked_mul(side * side))
        }
    };
    len.ok_or_else(|| Error::invalid(NAME, "the weight is too large"))
}

/// The packed weights of a weight that was checked.
pub(super) fn pack(conv: &ConvNhwc, weight: &[f32]) -> Result<Tensor> {
    let mut packed = Tensor::zeros(DType::F32, [len(conv)?])?;
    let out = packed.as_mut_slice::<f32>()?;
    if out.is_empty() {
        return Ok(packed);
    }
    let g = &conv.geometry;
    let (c, m) = (g.channels / g.group, g.maps / g.group);
    let taps = g.kernel[0] * g.kernel[1];
    match conv.algorithm {
        Algorithm::Direct => {
            let packed = out.chunks_exact_mut(out.len() / g.group);
            for (out, weight) in packed.zip(weight.chunks_exact(m * c * taps)) {
                panels(out, weight, (m, c, taps));
            }
        }
        Algorithm::Depthwise => {
            for (channel, weight) in weight.chunks_exact(taps).enumerate() {
                for (tap, &w) in weight.iter().enumerate() {
                    out[tap * g.channels + channel] = w;
                }
            }
        }
        Algorithm::Winograd { side: 4 } => winograd::<4>(out, weight, (m, c), &F2),
        Algorithm::Winograd { .. } => winograd::<6>(out, weight, (m, c), &F4),
    }
    Ok(packed)
}

/// Channels that are packed together: their taps and columns fit the first-level cache.
const BLOCK: usize = 16;

/// Panels of weights `[m, c, taps]`: for each tap and channel the columns side by side.
fn panels(out: &mut [f32], weight: &[f32], (m, c, taps): (usize, usize, usize)) {
    let mut rest = out;
    for panel in 0..panel_count(m) {
        let width = panel_width(m, panel);
        let (out, left) = rest.split_at_mut(width * c * taps);
        rest = left;
        let first = panel * 2 * LANE;
        for block in (0..c).step_by(BLOCK) {
            for column in 0..width.min(m - first) {
                let weight = &weight[(first + column) * c * taps..][..c * taps];
                for i in block..c.min(block + BLOCK) {
                    for tap in 0..taps {
                        out[(tap * c + i) * width + column] = weight[i * taps + tap];
                    }
                }
            }
        }
    }
}

/// The weight transform `G` of F(2×2, 3×3).
const F2: [[f32; 3]; 4] = [[1., 0., 0.], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0., 0., 1.]];
/// The weight transform `G` of F(4×4, 3×3).
const F4: [[f32; 3]; 6] = [
    [0.25, 0., 0.],
    [-1. / 6., -1. / 6., -1. / 6.],
    [-1. / 6., 1. / 6., -1. / 6.],
    [1. / 24., 1. / 12., 1. / 6.],
    [1. / 24., -1. / 12., 1. / 6.],
    [0., 0., 1.],
];

/// For each position of `G w Gᵀ` the panels of `[m, c]`.
fn winograd<const S: usize>(
    out: &mut [f32],
    weight: &[f32],
    (m, c): (usize, usize),
    g: &[[f32; 3]; S],
) {
    let position = out.len() / (S * S);
    for panel in 0..panel_count(m) {
        let width = panel_width(m, panel);
        let first = panel * 2 * LANE;
        for block in (0..c).step_by(BLOCK) {
            for column in 0..width.min(m - first) {
                for i in block..c.min(block + BLOCK) {
                    let w = &weight[((first + column) * c + i) * 9..][..9];
                    let half: [[f32; 3]; S] = std::array::from_fn(|y| {
                        std::array::from_fn(|x| {
                            g[y][0] * w[x] + g[y][1] * w[3 + x] + g[y][2] * w[6 + x]
                        })
                    });
                    let at = first * c + i * width + column;
                    for (y, half) in half.iter().enumerate() {
                        for (x, g) in g.iter().enumerate() {
                            out[(y * S + x) * position + at] =
                                half[0] * g[0] + half[1] * g[1] + half[2] * g[2];
                        }
                    }
                }
            }
        }
    }
}
