//! The network of a latent diffusion model at a small width, as diffusers exports it: residual blocks
//! that are told the time, attention to the map itself and to a text, and maps of the way down put
//! beside those of the way up.

use crate::layers::{Conv, Layers, attend, batch, gelu, ints, silu};
use crate::nets::{Size, f32_type};
use crate::transformer::count;
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};

/// Colours of a latent image.
const LATENT: usize = 4;

/// Residual blocks of a level on the way down; on the way up there is one more.
const DEPTH: usize = 2;

/// Levels that attend, of the outermost.
const ATTENDING: usize = 2;

struct Sizes {
    side: usize,
    /// Channels of each level, of which each has half the sides of the one before.
    widths: [usize; 3],
    /// Groups of a norm.
    groups: usize,
    heads: usize,
    /// Tokens of the text, and features of each.
    text: [usize; 2],
}

/// Writes the parts that depend on sizes.
struct Unet {
    net: Layers,
    sizes: Sizes,
    /// Features of the time, `[batch, 4 × first width]`, behind their activation.
    time: Value,
    text: Value,
}

/// A map with its channels and its side.
#[derive(Clone, Copy)]
struct Map {
    x: Value,
    channels: usize,
    side: usize,
}

/// The network for latents of 32×32.
pub(crate) fn unet(size: Size) -> Result<Model> {
    let sizes = match size {
        Size::Full => {
            Sizes { side: 32, widths: [128, 256, 512], groups: 32, heads: 8, text: [77, 768] }
        }
        Size::Tiny => Sizes { side: 8, widths: [16, 32, 32], groups: 4, heads: 2, text: [7, 24] },
    };
    let mut net = Layers::new("unet", 0x03e7);
    let [colours, height, width] = [LATENT, sizes.side, sizes.side].map(Dim::Known);
    let latent = f32_type([batch(), colours, height, width]);
    let sample = net.g.input("sample", latent.clone());
    let moment = TensorType { dtype: DType::I64, shape: Some(SymShape(vec![Dim::Known(1)])) };
    let moment = net.g.input("timestep", moment);
    let [tokens, features] = sizes.text.map(Dim::Known);
    let text = net.g.input("encoder_hidden_states", f32_type([batch(), tokens, features]));
    let first = sizes.widths[0];
    let time = time(&mut net, sample, moment, first)?;
    let x = net.conv("conv_in", sample, Conv::new(LATENT, first, 3))?;
    let map = Map { x, channels: first, side: sizes.side };
    let mut unet = Unet { net, sizes, time, text };
    let mut kept = vec![map];
    let map = unet.down(map, &mut kept)?;
    let map = unet.residual("mid_block.resnets.0", map, map.channels)?;
    let map = unet.transformer("mid_block.attentions.0", map)?;
    let map = unet.residual("mid_block.resnets.1", map, map.channels)?;
    let map = unet.up(map, kept)?;
    let y = unet.norm("conv_norm_out", map, 1e-5)?;
    let mut net = unet.net;
    let y = silu(&mut net.g, y);
    let y = net.conv("conv_out", y, Conv::new(map.channels, LATENT, 3))?;
    net.g.output("out_sample", y, latent);
    net.g.finish()
}

/// Waves of the moment at many paces, and two products: what every residual block is told.
fn time(net: &mut Layers, sample: Value, moment: Value, width: usize) -> Result<Value> {
    let shape = net.op("Shape", &[sample]);
    let samples = net.slice(shape, 0, [0, 1, 1])?;
    let moment = net.op("Expand", &[moment, samples]);
    let last = ints(&mut net.g, &[1])?;
    let moment = net.op("Unsqueeze", &[moment, last]);
    // ONNX's number of f32.
    let moment = net.g.node("Cast", &[moment], [("to", 1.into())]);
    let half = width / 2;
    let pace = |at: usize| 10_000f64.powf(-(at as f64) / half as f64) as f32;
    let paces: Vec<f32> = (0..half).map(pace).collect();
    let paces = net.g.initializer("time_proj", Tensor::from_slice([1, half], &paces)?);
    let angles = net.op("Mul", &[moment, paces]);
    let waves = ["Cos", "Sin"].map(|op| net.op(op, &[angles]));
    let y = net.concat(&waves, -1);
    let y = net.gemm("time_embedding.linear_1", y, [width, 4 * width])?;
    let y = silu(&mut net.g, y);
    let y = net.gemm("time_embedding.linear_2", y, [4 * width, 4 * width])?;
    Ok(silu(&mut net.g, y))
}

impl Unet {
    /// The way down; every map goes to `kept` too.
    fn down(&mut self, map: Map, kept: &mut Vec<Map>) -> Result<Map> {
        let mut map = map;
        for (level, width) in self.sizes.widths.into_iter().enumerate() {
            let name = format!("down_blocks.{level}");
            for at in 0..DEPTH {
                map = self.residual(&format!("{name}.resnets.{at}"), map, width)?;
                if level < ATTENDING {
                    map = self.transformer(&format!("{name}.attentions.{at}"), map)?;
                }
                kept.push(map);
            }
            if level + 1 < self.sizes.widths.len() {
                let conv = Conv::new(width, width, 3).stride(2);
                let x = self.net.conv(&format!("{name}.downsamplers.0.conv"), map.x, conv)?;
                map = Map { x, channels: width, side: map.side / 2 };
                kept.push(map);
            }
        }
        Ok(map)
    }

    /// The way up, with what was kept beside it, the last first.
    fn up(&mut self, map: Map, mut kept: Vec<Map>) -> Result<Map> {
        let mut map = map;
        for (level, width) in self.sizes.widths.into_iter().enumerate().rev() {
            let name = format!("up_blocks.{}", self.sizes.widths.len() - 1 - level);
            for (at, other) in kept.split_off(kept.len() - DEPTH - 1).into_iter().rev().enumerate()
            {
                let x = self.net.concat(&[map.x, other.x], 1);
                map = Map { x, channels: map.channels + other.channels, ..map };
                map = self.residual(&format!("{name}.resnets.{at}"), map, width)?;
                if level < ATTENDING {
                    map = self.transformer(&format!("{name}.attentions.{at}"), map)?;
                }
            }
            if level > 0 {
                let scales = Tensor::from_slice([4], &[1f32, 1., 2., 2.])?;
                let scales = self.net.g.node("Constant", &[], [("value", scales.into())]);
                let attributes = [
                    ("coordinate_transformation_mode", Attr::from("asymmetric")),
                    ("mode", "nearest".into()),
                    ("nearest_mode", "floor".into()),
                ];
                let inputs = [map.x, Value::ABSENT, scales];
                let x = self.net.g.node("Resize", &inputs, attributes);
                let conv = Conv::new(width, width, 3);
                let x = self.net.conv(&format!("{name}.upsamplers.0.conv"), x, conv)?;
                map = Map { x, channels: width, side: 2 * map.side };
            }
        }
        Ok(map)
    }

    /// A norm of groups of channels, as an instance norm of them between reshapes.
    fn norm(&mut self, name: &str, map: Map, epsilon: f32) -> Result<Value> {
        let (net, groups) = (&mut self.net, self.sizes.groups);
        let y = net.reshape(map.x, &[0, count(groups), -1])?;
        let ones = Tensor::from_slice([groups], &vec![1f32; groups])?;
        let ones = net.g.node("Constant", &[], [("value", ones.into())]);
        let zeros = Tensor::from_slice([groups], &vec![0f32; groups])?;
        let zeros = net.g.node("Constant", &[], [("value", zeros.into())]);
        let attributes = [("epsilon", Attr::from(epsilon))];
        let y = net.g.node("InstanceNormalization", &[y, ones, zeros], attributes);
        let shape = net.op("Shape", &[map.x]);
        let y = net.op("Reshape", &[y, shape]);
        let dims = [map.channels, 1, 1];
        let scale = net.uniform(&format!("{name}.weight"), &dims, 0.2, 1.)?;
        let y = net.op("Mul", &[y, scale]);
        let shift = net.uniform(&format!("{name}.bias"), &dims, 0.05, 0.)?;
        Ok(net.op("Add", &[y, shift]))
    }

    /// Two convolutions, told the time in between.
    fn residual(&mut self, name: &str, map: Map, width: usize) -> Result<Map> {
        let y = self.norm(&format!("{name}.norm1"), map, 1e-5)?;
        let y = silu(&mut self.net.g, y);
        let y = self.net.conv(&format!("{name}.conv1"), y, Conv::new(map.channels, width, 3))?;
        let sizes = [4 * self.sizes.widths[0], width];
        let time = self.net.gemm(&format!("{name}.time_emb_proj"), self.time, sizes)?;
        let axes = ints(&mut self.net.g, &[2, 3])?;
        let time = self.net.op("Unsqueeze", &[time, axes]);
        let x = self.net.op("Add", &[y, time]);
        let y = self.norm(&format!("{name}.norm2"), Map { x, channels: width, ..map }, 1e-5)?;
        let y = silu(&mut self.net.g, y);
        let y = self.net.conv(&format!("{name}.conv2"), y, Conv::new(width, width, 3))?;
        let mut past = map.x;
        if map.channels != width {
            let conv = Conv::new(map.channels, width, 1);
            past = self.net.conv(&format!("{name}.conv_shortcut"), past, conv)?;
        }
        let x = self.net.op("Add", &[past, y]);
        Ok(Map { x, channels: width, ..map })
    }

    /// Attention of the pixels to each other and to the text, and a gated product.
    fn transformer(&mut self, name: &str, map: Map) -> Result<Map> {
        let Map { channels, side, .. } = map;
        let conv = Conv::new(channels, channels, 1);
        let y = self.norm(&format!("{name}.norm"), map, 1e-6)?;
        let y = self.net.conv(&format!("{name}.proj_in"), y, conv)?;
        let y = self.net.transpose(y, [0, 2, 3, 1]);
        let mut x = self.net.reshape(y, &[0, count(side * side), count(channels)])?;
        let block = format!("{name}.transformer_blocks.0");
        for (number, text) in [(1, None), (2, Some(self.text))] {
            let y = self.net.layer_norm(&format!("{block}.norm{number}"), x, channels, 1e-5)?;
            let y = self.attention(&format!("{block}.attn{number}"), y, text, channels)?;
            x = self.net.op("Add", &[y, x]);
        }
        let net = &mut self.net;
        let y = net.layer_norm(&format!("{block}.norm3"), x, channels, 1e-5)?;
        let y = net.linear(&format!("{block}.ff.net.0.proj"), y, [channels, 8 * channels])?;
        let halves = ints(&mut net.g, &[count(4 * channels); 2])?;
        let [y, gate] = net.g.node_with_outputs("Split", &[y, halves], [("axis", (-1).into())]);
        let gate = gelu(&mut net.g, gate)?;
        let y = net.op("Mul", &[y, gate]);
        let y = net.linear(&format!("{block}.ff.net.2"), y, [4 * channels, channels])?;
        let y = net.op("Add", &[y, x]);
        let y = net.reshape(y, &[0, count(side), count(side), count(channels)])?;
        let y = net.transpose(y, [0, 3, 1, 2]);
        let y = net.conv(&format!("{name}.proj_out"), y, conv)?;
        Ok(Map { x: net.op("Add", &[y, map.x]), ..map })
    }

    /// Attention to a text, or to what asks itself.
    fn attention(
        &mut self,
        name: &str,
        x: Value,
        text: Option<Value>,
        channels: usize,
    ) -> Result<Value> {
        let (net, heads) = (&mut self.net, self.sizes.heads);
        let (read, features) = text.map_or((x, channels), |text| (text, self.sizes.text[1]));
        let mut parts = Vec::new();
        for (part, x, inputs) in [("q", x, channels), ("k", read, features), ("v", read, features)]
        {
            let y = net.product(&format!("{name}.to_{part}"), x, [inputs, channels])?;
            let y = net.reshape(y, &[0, -1, count(heads), count(channels / heads)])?;
            parts.push(net.transpose(y, [0, 2, 1, 3]));
        }
        let y = attend(&mut net.g, [parts[0], parts[1], parts[2]], None)?;
        let y = net.transpose(y, [0, 2, 1, 3]);
        let y = net.reshape(y, &[0, -1, count(channels)])?;
        net.linear(&format!("{name}.to_out.0"), y, [channels; 2])
    }
}
