//! Recurrent networks as PyTorch's `LSTM` and `GRU` are exported: two layers, each both ways, over
//! batches that come first.

use crate::layers::{Layers, batch, ints};
use crate::nets::{Size, f32_type};
use crate::transformer::count;
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::{Dim, Tensor};

/// Layers, and ways of each.
const LAYERS: usize = 2;
const WAYS: usize = 2;

/// Which cell, with how many gates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm = 4,
    Gru = 3,
}

/// Long short-term memory.
pub(crate) fn lstm(size: Size) -> Result<Model> {
    network("lstm", size, Cell::Lstm)
}

/// Gated recurrent units.
pub(crate) fn gru(size: Size) -> Result<Model> {
    network("gru", size, Cell::Gru)
}

fn network(name: &str, size: Size, cell: Cell) -> Result<Model> {
    let (features, hidden) = if size == Size::Full { (256, 256) } else { (24, 16) };
    let mut net = Layers::new(name, 0x2ec0);
    let sequence = || Dim::Symbol("sequence".into());
    let input = net.g.input("input", f32_type([batch(), sequence(), Dim::Known(features)]));
    let zeros = states(&mut net, input, hidden)?;
    let mut x = net.transpose(input, [1, 0, 2]);
    let mut inputs = features;
    let mut last = Vec::new();
    for number in 0..LAYERS {
        let first = count(WAYS * number);
        let state = net.slice(zeros, 0, [first, first + count(WAYS), 1])?;
        let (y, states) = layer(&mut net, number, [x, state], [inputs, hidden], cell)?;
        // `[sequence, ways, batch, hidden]`; the ways go beside each other.
        let y = net.transpose(y, [0, 2, 1, 3]);
        x = net.reshape(y, &[0, 0, -1])?;
        inputs = WAYS * hidden;
        last.push(states);
    }
    let y = net.transpose(x, [1, 0, 2]);
    net.g.output("output", y, f32_type([batch(), sequence(), Dim::Known(inputs)]));
    for (at, name) in ["h_n", "c_n"].into_iter().enumerate() {
        let parts: Vec<Value> = last.iter().filter_map(|states| states.get(at).copied()).collect();
        if !parts.is_empty() {
            let state = net.concat(&parts, 0);
            let dims = [Dim::Known(WAYS * LAYERS), batch(), Dim::Known(hidden)];
            net.g.output(name, state, f32_type(dims));
        }
    }
    net.g.finish()
}

/// What every layer begins with: zeros, `[ways of all layers, batch, hidden]`.
fn states(net: &mut Layers, input: Value, hidden: usize) -> Result<Value> {
    let shape = net.op("Shape", &[input]);
    let samples = net.slice(shape, 0, [0, 1, 1])?;
    let front = ints(&mut net.g, &[count(WAYS * LAYERS)])?;
    let back = ints(&mut net.g, &[count(hidden)])?;
    let dims = net.concat(&[front, samples, back], 0);
    let zero = Tensor::from_slice([1], &[0f32])?;
    Ok(net.g.node("ConstantOfShape", &[dims], [("value", zero.into())]))
}

/// One layer: its outputs, and each of its states after the last step.
fn layer(
    net: &mut Layers,
    number: usize,
    [x, state]: [Value; 2],
    [inputs, hidden]: [usize; 2],
    cell: Cell,
) -> Result<(Value, Vec<Value>)> {
    let gates = cell as usize * hidden;
    // PyTorch's own spread.
    let spread = 1. / (hidden as f32).sqrt();
    let mut weight = |part: &str, dims: &[usize]| {
        net.uniform(&format!("layer{number}.{part}"), dims, spread, 0.)
    };
    let w = weight("W", &[WAYS, gates, inputs])?;
    let r = weight("R", &[WAYS, gates, hidden])?;
    let b = weight("B", &[WAYS, 2 * gates])?;
    let size = ("hidden_size", Attr::from(count(hidden)));
    let ways = ("direction", Attr::from("bidirectional"));
    Ok(match cell {
        Cell::Lstm => {
            let inputs = [x, w, r, b, Value::ABSENT, state, state];
            let [y, h, c] = net.g.node_with_outputs("LSTM", &inputs, [size, ways]);
            (y, vec![h, c])
        }
        Cell::Gru => {
            let inputs = [x, w, r, b, Value::ABSENT, state];
            let reset = ("linear_before_reset", Attr::from(1));
            let [y, h] = net.g.node_with_outputs("GRU", &inputs, [size, ways, reset]);
            (y, vec![h])
        }
    })
}
