//! Whisper (tiny) as optimum exports it: an encoder of half a minute of sound, and a decoder that
//! reads one more token beside the keys and values of those before it and of the sound.

use crate::layers::gelu;
use crate::nets::{Size, f32_type};
use crate::transformer::{Config, Writer, count};
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::{DType, Dim, SymShape, TensorType};

/// What its norms add to the variance.
const EPSILON: f32 = 1e-5;

/// Both halves have these layers; `positions` are those of the decoder.
fn config(size: Size) -> Config {
    match size {
        Size::Full => {
            Config { vocabulary: 51_865, positions: 448, hidden: 384, heads: 6, layers: 4 }
        }
        Size::Tiny => Config { vocabulary: 99, positions: 64, hidden: 64, heads: 4, layers: 2 },
    }
}

fn symbol(name: &str) -> Dim {
    Dim::Symbol(name.into())
}

/// From a spectrogram, `[batch, mel bands, frames]`, to features of every second frame.
pub(crate) fn encoder(size: Size) -> Result<Model> {
    let (bands, frames) = if size == Size::Full { (80, 3000) } else { (16, 60) };
    let mut net = Writer::new("whisper_encoder", config(size), 0x3e15);
    let hidden = net.config.hidden;
    let dims = [symbol("batch"), Dim::Known(bands), Dim::Known(frames)];
    let x = net.g.input("input_features", f32_type(dims));
    let y = conv(&mut net, "conv1", x, bands, 1)?;
    let y = gelu(&mut net.g, y)?;
    let y = conv(&mut net, "conv2", y, hidden, 2)?;
    let y = gelu(&mut net.g, y)?;
    let y = net.g.node("Transpose", &[y], [("perm", [0, 2, 1].into())]);
    let places = net.weight("embed_positions.weight", &[frames / 2, hidden])?;
    let mut x = net.g.node("Add", &[y, places], []);
    for layer in 0..net.config.layers {
        let name = format!("layers.{layer}");
        let y = net.layer_norm(&format!("{name}.self_attn_layer_norm"), x, EPSILON)?;
        let [keys, values] = keys_and_values(&mut net, &format!("{name}.self_attn"), y)?;
        let y = attention(&mut net, &format!("{name}.self_attn"), y, [keys, values])?;
        x = net.g.node("Add", &[x, y], []);
        x = products(&mut net, &name, x)?;
    }
    let y = net.layer_norm("layer_norm", x, EPSILON)?;
    let dims = [symbol("batch"), Dim::Known(frames / 2), Dim::Known(hidden)];
    net.g.output("last_hidden_state", y, f32_type(dims));
    net.g.finish()
}

/// One token on: its logits, and the decoder's own keys and values with it.
pub(crate) fn decoder(size: Size) -> Result<Model> {
    let mut net = Writer::new("whisper_decoder", config(size), 0x3e16);
    let Config { vocabulary, positions, hidden, heads, layers } = net.config;
    let ids = SymShape(vec![symbol("batch"), Dim::Known(1)]);
    let token = net.g.input("input_ids", TensorType { dtype: DType::I64, shape: Some(ids) });
    let cache = |length: &str| {
        let (heads, width) = (Dim::Known(heads), Dim::Known(hidden / heads));
        f32_type([symbol("batch"), heads, symbol(length), width])
    };
    let mut past = Vec::new();
    for layer in 0..layers {
        let of = [("decoder", "past_sequence"), ("encoder", "encoder_sequence")];
        past.push(of.map(|(half, length)| {
            ["key", "value"].map(|part| {
                let name = format!("past_key_values.{layer}.{half}.{part}");
                net.g.input(name, cache(length))
            })
        }));
    }
    let words = net.weight("embed_tokens.weight", &[vocabulary, hidden])?;
    let rows = net.weight("embed_positions.weight", &[positions, hidden])?;
    let x = net.g.node("Gather", &[words, token], []);
    let place = net.dim(past[0][0][0], 2)?;
    let place = net.g.node("Gather", &[rows, place], []);
    let mut x = net.g.node("Add", &[x, place], []);
    let mut present = Vec::new();
    for (layer, [own, sound]) in past.into_iter().enumerate() {
        let name = format!("layers.{layer}");
        let y = net.layer_norm(&format!("{name}.self_attn_layer_norm"), x, EPSILON)?;
        let new = keys_and_values(&mut net, &format!("{name}.self_attn"), y)?;
        let now = [0, 1]
            .map(|part| net.g.node("Concat", &[own[part], new[part]], [("axis", Attr::from(2))]));
        let y = attention(&mut net, &format!("{name}.self_attn"), y, now)?;
        x = net.g.node("Add", &[x, y], []);
        let y = net.layer_norm(&format!("{name}.encoder_attn_layer_norm"), x, EPSILON)?;
        let y = attention(&mut net, &format!("{name}.encoder_attn"), y, sound)?;
        x = net.g.node("Add", &[x, y], []);
        x = products(&mut net, &name, x)?;
        present.push(now);
    }
    let y = net.layer_norm("layer_norm", x, EPSILON)?;
    let head = net.g.node("Transpose", &[words], [("perm", [1, 0].into())]);
    let logits = net.g.node("MatMul", &[y, head], []);
    let dims = [symbol("batch"), Dim::Known(1), Dim::Known(vocabulary)];
    net.g.output("logits", logits, f32_type(dims));
    for (layer, now) in present.into_iter().enumerate() {
        for (part, value) in ["key", "value"].into_iter().zip(now) {
            let name = format!("present.{layer}.decoder.{part}");
            net.g.output(name, value, cache("past_sequence + 1"));
        }
    }
    net.g.finish()
}

/// A convolution of three frames over all bands.
fn conv(net: &mut Writer, name: &str, x: Value, bands: usize, stride: i64) -> Result<Value> {
    let hidden = net.config.hidden;
    let weight = net.weight(&format!("{name}.weight"), &[hidden, bands, 3])?;
    let bias = net.bias(&format!("{name}.bias"), hidden)?;
    let attributes = [
        ("dilations", Attr::from([1])),
        ("group", 1.into()),
        ("kernel_shape", [3].into()),
        ("pads", [1, 1].into()),
        ("strides", [stride].into()),
    ];
    Ok(net.g.node("Conv", &[x, weight, bias], attributes))
}

/// `[batch, sequence, hidden]` as `[batch, heads, sequence, width]`.
fn split(net: &mut Writer, y: Value) -> Result<Value> {
    let width = net.config.hidden / net.config.heads;
    let y = net.reshape(y, y, &[-1, count(width)])?;
    Ok(net.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]))
}

/// What others may attend to; keys have no bias.
fn keys_and_values(net: &mut Writer, name: &str, x: Value) -> Result<[Value; 2]> {
    let hidden = net.config.hidden;
    let weight = net.weight(&format!("{name}.k_proj.weight"), &[hidden; 2])?;
    let keys = net.g.node("MatMul", &[x, weight], []);
    let values = net.dense(&format!("{name}.v_proj"), x, [hidden; 2])?;
    Ok([split(net, keys)?, split(net, values)?])
}

/// Attention to keys and values; the queries take the whole scale.
fn attention(net: &mut Writer, name: &str, x: Value, [keys, values]: [Value; 2]) -> Result<Value> {
    let (hidden, heads) = (net.config.hidden, net.config.heads);
    let query = net.dense(&format!("{name}.q_proj"), x, [hidden; 2])?;
    let scale = net.float(1. / ((hidden / heads) as f32).sqrt())?;
    let query = net.g.node("Mul", &[query, scale], []);
    let query = split(net, query)?;
    let keys = net.g.node("Transpose", &[keys], [("perm", [0, 1, 3, 2].into())]);
    let scores = net.g.node("MatMul", &[query, keys], []);
    let shares = net.g.node("Softmax", &[scores], [("axis", (-1).into())]);
    let y = net.g.node("MatMul", &[shares, values], []);
    let y = net.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]);
    let y = net.reshape(y, x, &[count(hidden)])?;
    net.dense(&format!("{name}.out_proj"), y, [hidden; 2])
}

/// The two products at a layer's end, with what goes past them.
fn products(net: &mut Writer, name: &str, x: Value) -> Result<Value> {
    let hidden = net.config.hidden;
    let y = net.layer_norm(&format!("{name}.final_layer_norm"), x, EPSILON)?;
    let y = net.dense(&format!("{name}.fc1"), y, [hidden, 4 * hidden])?;
    let y = gelu(&mut net.g, y)?;
    let y = net.dense(&format!("{name}.fc2"), y, [4 * hidden, hidden])?;
    Ok(net.g.node("Add", &[x, y], []))
}
