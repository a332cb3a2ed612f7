//! Recurrent layers.

use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    Activation, Binary, BinaryKind, Cast, Cell, Direction, Recurrent, Transpose, Unsqueeze,
};
use lgp_memory::DType;

pub(crate) fn rnn(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    layer(cx, Cell::Rnn)
}

pub(crate) fn gru(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let linear_before_reset = cx.flag("linear_before_reset")?.unwrap_or(false);
    layer(cx, Cell::Gru { linear_before_reset })
}

pub(crate) fn lstm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let input_forget = cx.flag("input_forget")?.unwrap_or(false);
    layer(cx, Cell::Lstm { input_forget })
}

/// ONNX Runtime's `LSTM` with weights of bytes, `[directions, inputs, gates]`. The weights become
/// floats. Activations stay floats; ONNX Runtime rounds them to bytes at every step.
pub(crate) fn dynamic_quantize_lstm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let w = float_weight(cx, 1, 8)?;
    let r = float_weight(cx, 2, 10)?;
    cx.inputs.truncate(8);
    (cx.inputs[1], cx.inputs[2]) = (Some(w), Some(r));
    lstm(cx)
}

/// A weight as `LSTM` takes it, from bytes with scales and zero points per direction or per gate.
fn float_weight(cx: &mut NodeCx<'_>, weight: usize, scale: usize) -> Result<ValueId, Refusal> {
    let axes = match cx.constant(scale).map(|scale| scale.shape().rank()) {
        Some(1) => vec![1, 2],
        Some(2) => vec![1],
        Some(rank) => return Err(format!("scales of rank {rank}, expected 1 or 2")),
        None => return Err(format!("input {scale}, scales, is not a constant")),
    };
    let mut float = |i: usize| Some(cx.emit(Cast { to: DType::F32 }, vec![cx.input(i)]));
    let (w, zero) = (float(weight), float(scale + 1));
    let scales = cx.input(scale);
    let mut wide = |x| Some(cx.emit(Unsqueeze { axes: Some(axes.clone()) }, vec![x]));
    let (zero, scale) = (wide(zero), wide(scales));
    let w = cx.emit(Binary::new(BinaryKind::Sub), vec![w, zero]);
    let w = cx.emit(Binary::new(BinaryKind::Mul), vec![Some(w), scale]);
    Ok(cx.emit(Transpose { perm: Some(vec![0, 2, 1]) }, vec![Some(w)]))
}

fn layer(cx: &mut NodeCx<'_>, cell: Cell) -> Result<(), Refusal> {
    // The weights tell `hidden_size`; `output_sequence` of opset 1 asked for the first output.
    cx.ignore(&["hidden_size", "output_sequence"]);
    let mut op = Recurrent::new(cell);
    op.direction = match cx.text("direction")?.unwrap_or("forward") {
        "forward" => Direction::Forward,
        "reverse" => Direction::Reverse,
        "bidirectional" => {
            op.activations = [op.activations.clone(), op.activations].concat();
            Direction::Bidirectional
        }
        other => {
            return Err(unsupported("direction", other, &["forward", "reverse", "bidirectional"]));
        }
    };
    op.clip = cx.float("clip")?;
    op.batch_first = cx.flag("layout")?.unwrap_or(false);
    let names = cx.texts("activations")?;
    // Each function takes the next values of the parameters that it uses.
    let mut alpha = cx.floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut beta = cx.floats("activation_beta")?.unwrap_or_default().into_iter();
    if !names.is_empty() {
        if names.len() < op.activations.len() {
            let (given, expected) = (names.len(), op.activations.len());
            return Err(format!(
                "attribute 'activations' has {given} entries, expected {expected}"
            ));
        }
        let names = names.iter().take(op.activations.len());
        op.activations =
            names.map(|name| activation(name, &mut alpha, &mut beta)).collect::<Result<_, _>>()?;
    }
    cx.map(op)
}

fn activation(
    name: &str,
    alpha: &mut impl Iterator<Item = f32>,
    beta: &mut impl Iterator<Item = f32>,
) -> Result<Activation, Refusal> {
    let mut a = |default| alpha.next().unwrap_or(default);
    let mut b = |default| beta.next().unwrap_or(default);
    Ok(match name.to_ascii_lowercase().as_str() {
        "relu" => Activation::Relu,
        "tanh" => Activation::Tanh,
        "sigmoid" => Activation::Sigmoid,
        "affine" => Activation::Affine { alpha: a(1.), beta: b(0.) },
        "leakyrelu" => Activation::LeakyRelu { alpha: a(0.01) },
        "thresholdedrelu" => Activation::ThresholdedRelu { alpha: a(1.) },
        "scaledtanh" => Activation::ScaledTanh { alpha: a(1.), beta: b(1.) },
        "hardsigmoid" => Activation::HardSigmoid { alpha: a(0.2), beta: b(0.5) },
        "elu" => Activation::Elu { alpha: a(1.) },
        "softsign" => Activation::Softsign,
        "softplus" => Activation::Softplus,
        other => {
            let known = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu"];
            let more = ["ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"];
            return Err(unsupported("activations", other, &[&known[..], &more[..]].concat()));
        }
    })
}
