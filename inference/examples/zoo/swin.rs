//! Swin-T as torchvision exports it: attention within windows of 7×7, which are cut by reshapes and
//! transposes and in every second block shifted by slices and concatenations.

use crate::layers::{Conv, Layers, float, gelu, ints};
use crate::nets::Size;
use crate::transformer::count;
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::Tensor;

/// Side of a window, and how far every second block shifts them.
const WINDOW: usize = 7;
const SHIFT: usize = 3;

/// What its norms add to the variance.
const EPSILON: f32 = 1e-5;

/// What keeps apart places that a shift has brought together.
const APART: f32 = -100.;

/// A stage's sizes: side of its map, channels, heads.
#[derive(Clone, Copy)]
struct Stage {
    side: usize,
    channels: usize,
    heads: usize,
}

/// The network for images of 224×224.
pub(crate) fn swin(size: Size) -> Result<Model> {
    let (image, width, depths): (usize, usize, &[usize]) =
        if size == Size::Full { (224, 96, &[2, 2, 6, 2]) } else { (112, 16, &[2, 2]) };
    let mut net = Layers::new("swin", 0x5317);
    let x = net.images("input", image);
    let x = net.conv("features.0.0", x, Conv::patches(3, width, 4))?;
    let x = net.transpose(x, [0, 2, 3, 1]);
    let mut x = net.layer_norm("features.0.2", x, width, EPSILON)?;
    let mut stage = Stage { side: image / 4, channels: width, heads: width.div_ceil(32) };
    for (number, &depth) in depths.iter().enumerate() {
        if number > 0 {
            x = merge(&mut net, &format!("features.{}", 2 * number), x, stage.channels)?;
            let Stage { side, channels, heads } = stage;
            stage = Stage { side: side / 2, channels: 2 * channels, heads: 2 * heads };
        }
        for at in 0..depth {
            // A map of one window has nothing to shift.
            let shift = if at % 2 == 1 && stage.side > WINDOW { SHIFT } else { 0 };
            x = block(&mut net, &format!("features.{}.{at}", 2 * number + 1), x, stage, shift)?;
        }
    }
    let x = net.layer_norm("norm", x, stage.channels, EPSILON)?;
    let x = net.transpose(x, [0, 3, 1, 2]);
    let x = net.pool(x);
    let classes = size.channels(1000);
    let y = net.gemm("head", x, [stage.channels, classes])?;
    net.finish(y, classes)
}

fn block(net: &mut Layers, name: &str, x: Value, stage: Stage, shift: usize) -> Result<Value> {
    let channels = stage.channels;
    let y = net.layer_norm(&format!("{name}.norm1"), x, channels, EPSILON)?;
    let y = shifted(net, &format!("{name}.attn"), y, stage, shift)?;
    let x = net.op("Add", &[x, y]);
    let y = net.layer_norm(&format!("{name}.norm2"), x, channels, EPSILON)?;
    let y = net.linear(&format!("{name}.mlp.0"), y, [channels, 4 * channels])?;
    let y = gelu(&mut net.g, y)?;
    let y = net.linear(&format!("{name}.mlp.3"), y, [4 * channels, channels])?;
    Ok(net.op("Add", &[x, y]))
}

/// Attention in windows that are shifted, and the map put back in its place.
fn shifted(net: &mut Layers, name: &str, x: Value, stage: Stage, shift: usize) -> Result<Value> {
    let (side, channels) = (count(stage.side), count(stage.channels));
    let (window, along) = (count(WINDOW), count(stage.side / WINDOW));
    let mut x = x;
    if shift > 0 {
        x = roll(net, x, count(shift))?;
    }
    x = net.reshape(x, &[-1, along, window, along, window, channels])?;
    x = net.transpose(x, [0, 1, 3, 2, 4, 5]);
    x = net.reshape(x, &[-1, window * window, channels])?;
    x = attention(net, name, x, stage, shift)?;
    x = net.reshape(x, &[-1, along, along, window, window, channels])?;
    x = net.transpose(x, [0, 1, 3, 2, 4, 5]);
    x = net.reshape(x, &[-1, side, side, channels])?;
    if shift > 0 { roll(net, x, -count(shift)) } else { Ok(x) }
}

/// Moves the map by `shift` towards its upper left corner; what leaves it comes back on the other
/// side.
fn roll(net: &mut Layers, x: Value, shift: i64) -> Result<Value> {
    let mut x = x;
    for axis in [1, 2] {
        let rest = net.slice(x, axis, [shift, i64::MAX, 1])?;
        let moved = net.slice(x, axis, [0, shift, 1])?;
        x = net.concat(&[rest, moved], axis);
    }
    Ok(x)
}

/// Attention among the places of each window, `[windows, places, channels]`.
fn attention(net: &mut Layers, name: &str, x: Value, stage: Stage, shift: usize) -> Result<Value> {
    let Stage { side, channels, heads } = stage;
    let width = channels / heads;
    let places = count(WINDOW * WINDOW);
    let all = net.linear(&format!("{name}.qkv"), x, [channels, 3 * channels])?;
    let all = net.reshape(all, &[-1, places, 3, count(heads), count(width)])?;
    let all = net.transpose(all, [2, 0, 3, 1, 4]);
    let mut parts = Vec::new();
    for part in 0..3i64 {
        let index = Tensor::scalar(part)?;
        let index = net.g.node("Constant", &[], [("value", index.into())]);
        parts.push(net.g.node("Gather", &[all, index], [("axis", 0.into())]));
    }
    let scale = float(&mut net.g, 1. / (width as f32).sqrt())?;
    let query = net.op("Mul", &[parts[0], scale]);
    let key = net.transpose(parts[1], [0, 1, 3, 2]);
    let scores = net.op("MatMul", &[query, key]);
    let bias = position_bias(net, name, heads)?;
    let mut scores = net.op("Add", &[scores, bias]);
    if shift > 0 {
        let windows = (side / WINDOW).pow(2);
        let dims = [1, windows, 1, WINDOW * WINDOW, WINDOW * WINDOW];
        let mask = Tensor::from_slice(dims, &mask(side, shift))?;
        let mask = net.g.initializer(format!("{name}.mask"), mask);
        scores = net.reshape(scores, &[-1, count(windows), count(heads), places, places])?;
        scores = net.op("Add", &[scores, mask]);
        scores = net.reshape(scores, &[-1, count(heads), places, places])?;
    }
    let shares = net.g.node("Softmax", &[scores], [("axis", (-1).into())]);
    let y = net.op("MatMul", &[shares, parts[2]]);
    let y = net.transpose(y, [0, 2, 1, 3]);
    let y = net.reshape(y, &[-1, places, count(channels)])?;
    net.linear(&format!("{name}.proj"), y, [channels; 2])
}

/// What each head adds to a score for where one place lies from the other: rows of a table.
fn position_bias(net: &mut Layers, name: &str, heads: usize) -> Result<Value> {
    let (reach, places) = (2 * WINDOW - 1, WINDOW * WINDOW);
    let rows = [reach * reach, heads];
    let table = net.uniform(&format!("{name}.relative_position_bias_table"), &rows, 0.5, 0.)?;
    let from = |one: usize, other: usize| one + WINDOW - 1 - other;
    let pairs = (0..places).flat_map(|a| (0..places).map(move |b| (a, b)));
    let index: Vec<i64> = pairs
        .map(|(a, b)| {
            let (row, column) = (from(a / WINDOW, b / WINDOW), from(a % WINDOW, b % WINDOW));
            count(row * reach + column)
        })
        .collect();
    let index = Tensor::from_slice([index.len()], &index)?;
    let index = net.g.initializer(format!("{name}.relative_position_index"), index);
    let bias = net.g.node("Gather", &[table, index], [("axis", Attr::from(0))]);
    let bias = net.reshape(bias, &[count(places), count(places), -1])?;
    let bias = net.transpose(bias, [2, 0, 1]);
    let front = ints(&mut net.g, &[0])?;
    Ok(net.op("Unsqueeze", &[bias, front]))
}

/// Zero for two places of a window that were neighbours before the shift, window by window.
fn mask(side: usize, shift: usize) -> Vec<f32> {
    // Which of the three parts of an axis a coordinate comes of.
    let part = |at: usize| usize::from(at + WINDOW >= side) + usize::from(at + shift >= side);
    let along = side / WINDOW;
    let mut mask = Vec::new();
    for window in 0..along * along {
        let origin = [window / along, window % along].map(|at| at * WINDOW);
        let place = |at: usize| [origin[0] + at / WINDOW, origin[1] + at % WINDOW].map(part);
        for a in 0..WINDOW * WINDOW {
            mask.extend(
                (0..WINDOW * WINDOW).map(|b| if place(a) == place(b) { 0. } else { APART }),
            );
        }
    }
    mask
}

/// Four neighbours become one, of twice the channels.
fn merge(net: &mut Layers, name: &str, x: Value, channels: usize) -> Result<Value> {
    let mut parts = Vec::new();
    for [row, column] in [[0, 0], [1, 0], [0, 1], [1, 1]] {
        let rows = net.slice(x, 1, [row, i64::MAX, 2])?;
        parts.push(net.slice(rows, 2, [column, i64::MAX, 2])?);
    }
    let all = net.concat(&parts, -1);
    let y = net.layer_norm(&format!("{name}.norm"), all, 4 * channels, EPSILON)?;
    net.product(&format!("{name}.reduction"), y, [4 * channels, 2 * channels])
}
