//! Operators of training: dropout and losses.

use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{ConstantOfShape, Dropout, Identity, NllLoss, Reduction, Shape, Softmax};
use lgp_memory::{DType, Tensor};

/// Up to opset 6 a flag tells training from inference; files without the flag mean inference.
/// Opsets 7 to 11 know inference only; later ones take the mode as an input.
pub(crate) fn dropout(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let text = |e: lgp_memory::Error| e.to_string();
    cx.ignore(&["consumed_inputs"]);
    let ratio = cx.float("ratio")?;
    // Without a seed each node has its own stream.
    let seed = match cx.int("seed")? {
        Some(seed) => u32::try_from(seed & 0xffff_ffff).unwrap_or(0),
        None => u32::try_from(cx.graph.nodes.len()).unwrap_or(0),
    };
    let trains = cx.flag("is_test")? == Some(false);
    let training = match cx.input(2) {
        None => trains.then(|| Tensor::scalar(true)).transpose().map_err(text)?,
        Some(_) if cx.constant(2).is_some_and(|t| t.as_bytes().iter().all(|&b| b == 0)) => None,
        Some(mode) => {
            cx.map_with(Dropout { seed }, vec![cx.input(0), cx.input(1), Some(mode)])?;
            return Ok(());
        }
    };
    if let Some(mode) = training {
        let ratio = cx.emit_float(ratio.unwrap_or(0.5))?;
        let mode = cx.emit_constant(mode);
        cx.at_most_outputs(1)?;
        return cx.map_with(Dropout { seed }, vec![cx.input(0), Some(ratio), Some(mode)]);
    }
    if let Some(mask) = cx.output(1) {
        // The mask had the type of the data before opset 10.
        let given = cx.input(0).and_then(|x| cx.graph.info(x)).map_or(DType::F32, |x| x.ty.dtype);
        let value = match given {
            _ if cx.opset >= 10 => Tensor::scalar(true),
            DType::F64 => Tensor::scalar(1f64),
            DType::F16 => Tensor::from_bytes(DType::F16, [], &0x3c00u16.to_ne_bytes()),
            _ => Tensor::scalar(1f32),
        };
        let value = value.and_then(|v| v.reshape([1])).map_err(text)?;
        let shape = cx.emit(Shape::default(), vec![cx.input(0)]);
        cx.emit_into(ConstantOfShape { value }, vec![Some(shape)], vec![Some(mask)]);
    }
    let y = cx.output(0);
    cx.emit_into(Identity, vec![cx.input(0)], vec![y]);
    Ok(())
}

pub(crate) fn negative_log_likelihood(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = loss(cx)?;
    cx.map(op)
}

pub(crate) fn softmax_cross_entropy(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = loss(cx)?;
    let softmax = Softmax { axis: 1, log: true, flatten: false };
    let log = match cx.output(1) {
        Some(log) => {
            cx.emit_into(softmax, vec![cx.input(0)], vec![Some(log)]);
            log
        }
        None => cx.emit(softmax, vec![cx.input(0)]),
    };
    let mut inputs = cx.inputs.clone();
    if let Some(scores) = inputs.first_mut() {
        *scores = Some(log);
    }
    let loss = cx.output(0);
    cx.emit_into(op, inputs, vec![loss]);
    Ok(())
}

fn loss(cx: &mut NodeCx<'_>) -> Result<NllLoss, Refusal> {
    let reduction = match cx.text("reduction")?.unwrap_or("mean") {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        other => return Err(unsupported("reduction", other, &["none", "sum", "mean"])),
    };
    Ok(NllLoss { reduction, ignore_index: cx.int("ignore_index")? })
}
