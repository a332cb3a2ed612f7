//! Weights in the order in which the kernels read them.

use super::kernel::LANE;
use super::kernel::tile::{panel_count, panel_width};
use super::{Algorithm, ConvNhwc, grouped};
use crate::error::{Error, Result};
use crate::gemm;
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
        Algorithm::DirectBf16 => taps
            .and_then(|n| n.checked_mul(g.channels.div_ceil(2)))
            .and_then(|n| n.checked_mul(columns(g.maps / g.group)?)),
        Algorithm::Depthwise => taps.and_then(|n| n.checked_mul(g.channels)),
        Algorithm::Grouped { per_group } => grouped::packed_len(g, per_group),
        Algorithm::Winograd { side } => {
            columns(g.maps).and_then(|n| n.checked_mul(g.channels)?.checked_mul(side * side))
        }
    };
    len.ok_or_else(|| Error::invalid("the weight is too large"))
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
        Algorithm::DirectBf16 => {
            let words = c.div_ceil(2);
            let packed = out.chunks_exact_mut(out.len() / g.group);
            for (out, weight) in packed.zip(weight.chunks_exact(m * c * taps)) {
                panels(out, &pairs(weight, c, taps), (m, words, taps));
            }
        }
        Algorithm::Depthwise => {
            for (channel, weight) in weight.chunks_exact(taps).enumerate() {
                for (tap, &w) in weight.iter().enumerate() {
                    out[tap * g.channels + channel] = w;
                }
            }
        }
        Algorithm::Grouped { per_group } => grouped::pack(out, weight, per_group, g.kernel[0]),
        Algorithm::Winograd { side: 4 } => winograd::<4>(out, weight, (m, c), &F2),
        Algorithm::Winograd { .. } => winograd::<6>(out, weight, (m, c), &F4),
    }
    Ok(packed)
}

/// Calls `body` for up to [`LANE`] columns at a time: with the first of them, how many they are,
/// where their elements of the first row begin, and how far rows are apart.
fn lanes(columns: usize, rows: usize, mut body: impl FnMut(usize, usize, usize, usize)) {
    let mut start = 0;
    for panel in 0..panel_count(columns) {
        let width = panel_width(columns, panel);
        for at in (0..width).step_by(LANE) {
            let column = panel * 2 * LANE + at;
            body(column, LANE.min(columns - column), start + at, width);
        }
        start += width * rows;
    }
}

/// Panels of weights `[m, c, taps]`: for each tap and channel the columns side by side.
fn panels(out: &mut [f32], weight: &[f32], (m, c, taps): (usize, usize, usize)) {
    let rows = c * taps;
    lanes(m, rows, |column, count, start, width| {
        let weight = &weight[column * rows..][..count * rows];
        for block in (0..rows).step_by(LANE) {
            let len = LANE.min(rows - block);
            let mut tile = [[0f32; LANE]; LANE];
            for (tile, weight) in tile.iter_mut().zip(weight.chunks_exact(rows)) {
                match weight[block..].first_chunk() {
                    Some(whole) => *tile = *whole,
                    None => tile[..len].copy_from_slice(&weight[block..]),
                }
            }
            for (i, at) in (block..block + len).enumerate() {
                let row = at % taps * c + at / taps;
                let out = &mut out[start + row * width..][..LANE];
                for (out, tile) in out.iter_mut().zip(&tile) {
                    *out = tile[i];
                }
            }
        }
    });
}

/// Weights `[m, c, taps]` as words `[m, c / 2, taps]`, each of two neighbouring channels in bf16; an
/// odd last channel is paired with zeros.
fn pairs(weight: &[f32], c: usize, taps: usize) -> Vec<f32> {
    let mut words = vec![0f32; weight.len() / c * c.div_ceil(2)];
    let maps = weight.chunks_exact(c * taps);
    for (words, map) in words.chunks_exact_mut(c.div_ceil(2) * taps).zip(maps) {
        for (words, two) in words.chunks_exact_mut(taps).zip(map.chunks(2 * taps)) {
            for (tap, word) in words.iter_mut().enumerate() {
                let second = two.get(taps + tap).copied().unwrap_or(0.);
                gemm::pairs_of_row(&[two[tap], second], std::slice::from_mut(word));
            }
        }
    }
    words
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
    lanes(m, c, |column, count, start, width| {
        for i in 0..c {
            let mut w = [[0f32; LANE]; 9];
            for lane in 0..count {
                let taps = &weight[((column + lane) * c + i) * 9..][..9];
                for (w, &tap) in w.iter_mut().zip(taps) {
                    w[lane] = tap;
                }
            }
            for (y, gy) in g.iter().enumerate() {
                let mut half = [[0f32; LANE]; 3];
                for (x, half) in half.iter_mut().enumerate() {
                    sum(half, gy, [&w[x], &w[3 + x], &w[6 + x]]);
                }
                for (x, gx) in g.iter().enumerate() {
                    let at = (y * S + x) * position + start + i * width;
                    sum(&mut out[at..][..LANE], gx, [&half[0], &half[1], &half[2]]);
                }
            }
        }
    });
}

/// One entry of a product with `G`, for columns side by side.
fn sum(out: &mut [f32], g: &[f32; 3], w: [&[f32; LANE]; 3]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = g[0] * w[0][i] + g[1] * w[1][i] + g[2] * w[2][i];
    }
}
