//! SegFormer-B0 as transformers exports it, on images of 512×512: attention of every pixel to keys
//! and values of a smaller map, a depthwise window between two products, and a decoder of products.

use crate::layers::{Conv, Layers, batch, float, gelu};
use crate::nets::{Size, f32_type};
use crate::transformer::count;
use lgp_inference::{Model, Result, Value};
use lgp_memory::Dim;

/// What its norms add to the variance.
const EPSILON: f32 = 1e-5;

/// How much smaller the sides of each stage's keys and values are.
const REDUCTIONS: [usize; 4] = [8, 4, 2, 1];

/// A stage's sizes: side of its map, channels, heads, reduction.
#[derive(Clone, Copy)]
struct Stage {
    side: usize,
    channels: usize,
    heads: usize,
    reduction: usize,
}

/// The network with its decoder.
pub(crate) fn segformer(size: Size) -> Result<Model> {
    let full = size == Size::Full;
    let (image, depth, hidden, classes) = if full { (512, 2, 256, 150) } else { (64, 1, 32, 19) };
    let widths = if full { [32, 64, 160, 256] } else { [8, 16, 24, 32] };
    let heads = if full { [1, 2, 5, 8] } else { [1, 2, 3, 4] };
    let mut net = Layers::new("segformer", 0x5e9f);
    let mut x = net.images("pixel_values", image);
    let (mut inputs, mut side) = (3, image);
    let mut maps = Vec::new();
    for (number, (channels, heads)) in widths.into_iter().zip(heads).enumerate() {
        let (kernel, stride) = if number == 0 { (7, 4) } else { (3, 2) };
        side /= stride;
        let stage = Stage { side, channels, heads, reduction: REDUCTIONS[number] };
        let name = format!("segformer.encoder.patch_embeddings.{number}");
        let embed = Conv::new(inputs, channels, kernel).stride(stride);
        let y = net.conv(&format!("{name}.proj"), x, embed)?;
        let y = rows(&mut net, y, channels)?;
        let mut y = net.layer_norm(&format!("{name}.layer_norm"), y, channels, EPSILON)?;
        for at in 0..depth {
            y = block(&mut net, &format!("segformer.encoder.block.{number}.{at}"), y, stage)?;
        }
        let name = format!("segformer.encoder.layer_norm.{number}");
        let y = net.layer_norm(&name, y, channels, EPSILON)?;
        let y = net.reshape(y, &[0, count(side), count(side), count(channels)])?;
        x = net.transpose(y, [0, 3, 1, 2]);
        maps.push((x, stage));
        inputs = channels;
    }
    let side = maps[0].1.side;
    let y = decode(&mut net, &maps, hidden, classes)?;
    let dims = [batch(), Dim::Known(classes), Dim::Known(side), Dim::Known(side)];
    net.g.output("logits", y, f32_type(dims));
    net.g.finish()
}

/// From a map to a row for each pixel.
fn rows(net: &mut Layers, x: Value, channels: usize) -> Result<Value> {
    let y = net.reshape(x, &[0, count(channels), -1])?;
    Ok(net.transpose(y, [0, 2, 1]))
}

/// From a row for each pixel to a map.
fn map(net: &mut Layers, x: Value, channels: usize, side: usize) -> Result<Value> {
    let y = net.transpose(x, [0, 2, 1]);
    net.reshape(y, &[0, count(channels), count(side), count(side)])
}

fn block(net: &mut Layers, name: &str, x: Value, stage: Stage) -> Result<Value> {
    let Stage { side, channels, .. } = stage;
    let y = net.layer_norm(&format!("{name}.layer_norm_1"), x, channels, EPSILON)?;
    let y = attention(net, &format!("{name}.attention"), y, stage)?;
    let x = net.op("Add", &[y, x]);
    let y = net.layer_norm(&format!("{name}.layer_norm_2"), x, channels, EPSILON)?;
    let wide = 4 * channels;
    let y = net.linear(&format!("{name}.mlp.dense1"), y, [channels, wide])?;
    let y = map(net, y, wide, side)?;
    let y = net.conv(&format!("{name}.mlp.dwconv"), y, Conv::depthwise(wide, 3))?;
    let y = rows(net, y, wide)?;
    let y = gelu(&mut net.g, y)?;
    let y = net.linear(&format!("{name}.mlp.dense2"), y, [wide, channels])?;
    Ok(net.op("Add", &[y, x]))
}

/// Attention of each pixel to patches of the map.
fn attention(net: &mut Layers, name: &str, x: Value, stage: Stage) -> Result<Value> {
    let Stage { side, channels, heads, reduction } = stage;
    let width = channels / heads;
    let mut patches = x;
    if reduction > 1 {
        let y = map(net, x, channels, side)?;
        let y = net.conv(&format!("{name}.sr"), y, Conv::patches(channels, channels, reduction))?;
        let y = rows(net, y, channels)?;
        patches = net.layer_norm(&format!("{name}.layer_norm"), y, channels, EPSILON)?;
    }
    let mut parts = Vec::new();
    for (part, read) in [("query", x), ("key", patches), ("value", patches)] {
        let y = net.linear(&format!("{name}.self.{part}"), read, [channels; 2])?;
        let y = net.reshape(y, &[0, -1, count(heads), count(width)])?;
        parts.push(net.transpose(y, [0, 2, 1, 3]));
    }
    let key = net.transpose(parts[1], [0, 1, 3, 2]);
    let scores = net.op("MatMul", &[parts[0], key]);
    let root = float(&mut net.g, (width as f32).sqrt())?;
    let scores = net.op("Div", &[scores, root]);
    let shares = net.g.node("Softmax", &[scores], [("axis", (-1).into())]);
    let y = net.op("MatMul", &[shares, parts[2]]);
    let y = net.transpose(y, [0, 2, 1, 3]);
    let y = net.reshape(y, &[0, -1, count(channels)])?;
    net.linear(&format!("{name}.output.dense"), y, [channels; 2])
}

/// Brings all maps to the size of the first and mixes them.
fn decode(
    net: &mut Layers,
    maps: &[(Value, Stage)],
    hidden: usize,
    classes: usize,
) -> Result<Value> {
    let mut parts = Vec::new();
    for (number, &(x, Stage { side, channels, .. })) in maps.iter().enumerate() {
        let y = rows(net, x, channels)?;
        let y = net.linear(&format!("decode_head.linear_c.{number}"), y, [channels, hidden])?;
        let y = map(net, y, hidden, side)?;
        parts.push(net.resize(y, [maps[0].1.side; 2])?);
    }
    parts.reverse();
    let y = net.concat(&parts, 1);
    let fuse = Conv::new(parts.len() * hidden, hidden, 1);
    let y = net.conv("decode_head.linear_fuse", y, fuse)?;
    let y = net.op("Relu", &[y]);
    net.conv("decode_head.classifier", y, Conv::new(hidden, classes, 1))
}
