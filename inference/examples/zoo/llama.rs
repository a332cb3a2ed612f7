//! A decoder of Llama's kind in the sizes of SmolLM2-135M, as optimum exports it: root mean square
//! norms, rotated queries and keys, fewer keys than queries, a gated product, and the keys and values
//! of earlier tokens as inputs and outputs.

use crate::layers::{attend, silu};
use crate::nets::{Size, f32_type};
use crate::transformer::{Config, Writer, count};
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};

/// What its norms add to the mean of squares.
const EPSILON: f32 = 1e-5;

/// The slowest rotation takes nearly this many tokens for a radian.
const THETA: f64 = 100_000.;

/// Sizes that a plain transformer has not.
#[derive(Clone, Copy)]
struct Shared {
    /// Heads of keys and values.
    heads: usize,
    /// Features of the gated product.
    inner: usize,
}

/// Cosines and sines of the new tokens' places, `[batch, 1, sequence, width]`.
#[derive(Clone, Copy)]
struct Rotation {
    cos: Value,
    sin: Value,
}

/// The decoder with its head; batch, sequence and the length of what was read before are symbolic.
pub(crate) fn llama(size: Size) -> Result<Model> {
    let (config, shared) = match size {
        Size::Full => (
            Config { vocabulary: 49_152, positions: 8192, hidden: 576, heads: 9, layers: 30 },
            Shared { heads: 3, inner: 1536 },
        ),
        Size::Tiny => (
            Config { vocabulary: 99, positions: 64, hidden: 48, heads: 6, layers: 2 },
            Shared { heads: 2, inner: 96 },
        ),
    };
    let Config { vocabulary, hidden, heads, layers, .. } = config;
    let mut net = Writer::new("llama", config, 0x11a3);
    let names = ["batch", "sequence", "past_sequence", "past_sequence + sequence"];
    let [batch, sequence, before, total] = names.map(|name| Dim::Symbol(name.into()));
    let ids = |length: &Dim| TensorType {
        dtype: DType::I64,
        shape: Some(SymShape(vec![batch.clone(), length.clone()])),
    };
    let tokens = net.g.input("input_ids", ids(&sequence));
    let mask = net.g.input("attention_mask", ids(&total));
    let places = net.g.input("position_ids", ids(&sequence));
    let width = Dim::Known(hidden / heads);
    let cache = |length: &Dim| {
        f32_type([batch.clone(), Dim::Known(shared.heads), length.clone(), width.clone()])
    };
    let mut past = Vec::new();
    for layer in 0..layers {
        let names = ["key", "value"].map(|part| format!("past_key_values.{layer}.{part}"));
        past.push(names.map(|name| net.g.input(name, cache(&before))));
    }
    let mask = scores_mask(&mut net, tokens, mask, past[0][0])?;
    let turn = rotation(&mut net, places)?;
    let words = net.weight("model.embed_tokens.weight", &[vocabulary, hidden])?;
    let mut x = net.g.node("Gather", &[words, tokens], []);
    let mut present = Vec::new();
    for (layer, past) in past.into_iter().enumerate() {
        let name = format!("model.layers.{layer}");
        let y = rms_norm(&mut net, &format!("{name}.input_layernorm"), x)?;
        let (y, now) =
            attention(&mut net, &format!("{name}.self_attn"), y, past, (turn, mask), shared)?;
        x = net.g.node("Add", &[x, y], []);
        let y = rms_norm(&mut net, &format!("{name}.post_attention_layernorm"), x)?;
        let y = gated(&mut net, &format!("{name}.mlp"), y, shared.inner)?;
        x = net.g.node("Add", &[x, y], []);
        present.push(now);
    }
    let x = rms_norm(&mut net, "model.norm", x)?;
    let head = net.g.node("Transpose", &[words], [("perm", [1, 0].into())]);
    let logits = net.g.node("MatMul", &[x, head], []);
    let dims = [batch.clone(), sequence.clone(), Dim::Known(vocabulary)];
    net.g.output("logits", logits, f32_type(dims));
    for (layer, now) in present.into_iter().enumerate() {
        for (part, value) in ["key", "value"].into_iter().zip(now) {
            net.g.output(format!("present.{layer}.{part}"), value, cache(&total));
        }
    }
    net.g.finish()
}

/// What is added to attention scores so that no token sees a later one or padding.
fn scores_mask(net: &mut Writer, tokens: Value, mask: Value, past: Value) -> Result<Value> {
    let (_, later) = net.places(tokens, past)?;
    let axes = net.ints(&[2], &[1, 2])?;
    // ONNX's number of bool.
    let counts = net.g.node("Cast", &[mask], [("to", 9.into())]);
    let counts = net.g.node("Unsqueeze", &[counts, axes], []);
    let lowest = net.float(f32::MIN)?;
    Ok(net.g.node("Where", &[counts, later, lowest], []))
}

/// Angles grow with the place, for each pair of features at a pace of its own.
fn rotation(net: &mut Writer, places: Value) -> Result<Rotation> {
    let width = net.config.hidden / net.config.heads;
    let pace = |pair: usize| THETA.powf(-2. * pair as f64 / width as f64) as f32;
    let paces: Vec<f32> = (0..width / 2).map(pace).collect();
    let paces = Tensor::from_slice([1, paces.len(), 1], &paces)?;
    let paces = net.g.initializer("model.rotary_emb.inv_freq", paces);
    let axis = net.ints(&[1], &[1])?;
    let places = net.g.node("Unsqueeze", &[places, axis], []);
    // ONNX's number of f32.
    let places = net.g.node("Cast", &[places], [("to", 1.into())]);
    let angles = net.g.node("MatMul", &[paces, places], []);
    let angles = net.g.node("Transpose", &[angles], [("perm", [0, 2, 1].into())]);
    let angles = net.g.node("Concat", &[angles, angles], [("axis", (-1).into())]);
    let [cos, sin] = ["Cos", "Sin"].map(|op| {
        let y = net.g.node(op, &[angles], []);
        net.g.node("Unsqueeze", &[y, axis], [])
    });
    Ok(Rotation { cos, sin })
}

/// Divides by the root of the mean of squares.
fn rms_norm(net: &mut Writer, name: &str, x: Value) -> Result<Value> {
    let two = net.float(2.)?;
    let squares = net.g.node("Pow", &[x, two], []);
    let axis = net.ints(&[1], &[-1])?;
    let mean = net.g.node("ReduceMean", &[squares, axis], [("keepdims", 1.into())]);
    let epsilon = net.float(EPSILON)?;
    let mean = net.g.node("Add", &[mean, epsilon], []);
    let root = net.g.node("Sqrt", &[mean], []);
    let inverse = net.g.node("Reciprocal", &[root], []);
    let y = net.g.node("Mul", &[x, inverse], []);
    let scale = net.norm_scale(name)?;
    Ok(net.g.node("Mul", &[scale, y], []))
}

/// Attention to the earlier keys and values and to its own, which are answered too.
fn attention(
    net: &mut Writer,
    name: &str,
    x: Value,
    past: [Value; 2],
    (turn, mask): (Rotation, Value),
    shared: Shared,
) -> Result<(Value, [Value; 2])> {
    let Config { hidden, heads, .. } = net.config;
    let width = hidden / heads;
    let mut parts = Vec::new();
    for (part, heads) in [("q", heads), ("k", shared.heads), ("v", shared.heads)] {
        let y = product(net, &format!("{name}.{part}_proj"), x, [hidden, heads * width])?;
        let y = net.reshape(y, x, &[-1, count(width)])?;
        parts.push(net.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]));
    }
    let query = rotated(net, parts[0], turn, width)?;
    let key = rotated(net, parts[1], turn, width)?;
    let join = [("axis", Attr::from(2))];
    let keys = net.g.node("Concat", &[past[0], key], join.clone());
    let values = net.g.node("Concat", &[past[1], parts[2]], join);
    let (all_keys, all_values) = (repeated(net, keys, shared)?, repeated(net, values, shared)?);
    let y = attend(&mut net.g, [query, all_keys, all_values], Some(mask))?;
    let y = net.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]);
    let y = net.reshape(y, x, &[count(hidden)])?;
    Ok((product(net, &format!("{name}.o_proj"), y, [hidden; 2])?, [keys, values]))
}

/// Turns each pair of features, of which one lies in each half.
fn rotated(net: &mut Writer, x: Value, turn: Rotation, width: usize) -> Result<Value> {
    let half = count(width / 2);
    let (start, middle) = (net.ints(&[1], &[0])?, net.ints(&[1], &[half])?);
    let (end, axis) = (net.ints(&[1], &[i64::MAX])?, net.ints(&[1], &[3])?);
    let straight = net.g.node("Mul", &[x, turn.cos], []);
    let low = net.g.node("Slice", &[x, start, middle, axis], []);
    let high = net.g.node("Slice", &[x, middle, end, axis], []);
    let high = net.g.node("Neg", &[high], []);
    let across = net.g.node("Concat", &[high, low], [("axis", (-1).into())]);
    let across = net.g.node("Mul", &[across, turn.sin], []);
    Ok(net.g.node("Add", &[straight, across], []))
}

/// Each head of keys or values once for each head of queries that reads it.
fn repeated(net: &mut Writer, x: Value, shared: Shared) -> Result<Value> {
    let heads = net.config.heads;
    let width = net.config.hidden / heads;
    let axis = net.ints(&[1], &[2])?;
    let y = net.g.node("Unsqueeze", &[x, axis], []);
    let times = net.ints(&[5], &[1, 1, count(heads / shared.heads), 1, 1])?;
    let y = net.g.node("Expand", &[y, times], []);
    let dims = net.ints(&[4], &[0, count(heads), -1, count(width)])?;
    Ok(net.g.node("Reshape", &[y, dims], [("allowzero", 0.into())]))
}

/// A product, weighed by another and its sigmoid, and a third back.
fn gated(net: &mut Writer, name: &str, x: Value, inner: usize) -> Result<Value> {
    let hidden = net.config.hidden;
    let gate = product(net, &format!("{name}.gate_proj"), x, [hidden, inner])?;
    let gate = silu(&mut net.g, gate);
    let y = product(net, &format!("{name}.up_proj"), x, [hidden, inner])?;
    let y = net.g.node("Mul", &[gate, y], []);
    product(net, &format!("{name}.down_proj"), y, [inner, hidden])
}

/// A product with a stored matrix.
fn product(net: &mut Writer, name: &str, x: Value, dims: [usize; 2]) -> Result<Value> {
    let weight = net.weight(&format!("{name}.weight"), &dims)?;
    Ok(net.g.node("MatMul", &[x, weight], []))
}
