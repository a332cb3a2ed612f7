//! ONNX's quantised operators. An operator with scales of inputs and output is mapped to its
//! definition: dequantise, the float operator, quantise. A pass turns that form into integer
//! kernels, also where the model itself has it.

use super::conv::check_kernel;
use super::conv::pads;
use crate::graph::ValueId;
use crate::onnx::dtype;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::Op;
use lgp_compute::ops::{
    Binary, BinaryKind, Cast, Conv, ConvInteger, DequantizeLinear, DynamicQuantizeLinear, MatMul,
    MatMulInteger, QuantizeLinear,
};
use lgp_memory::DType;

pub(crate) fn quantize_linear(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    if let Some(precision) = cx.int("precision")?.filter(|&p| p != 0) {
        let precision = dtype_of(precision)?;
        let scale = cx.input(1).ok_or("input 1, the scale, is missing")?;
        let scale = cx.emit(Cast { to: precision }, vec![Some(scale)]);
        cx.inputs[1] = Some(scale);
    }
    let op = QuantizeLinear {
        axis: cx.int("axis")?.unwrap_or(1),
        block: cx.size("block_size")?.unwrap_or(0),
        to: output_dtype(cx)?,
        saturate: cx.flag("saturate")?.unwrap_or(true),
    };
    cx.map(op)
}

pub(crate) fn dequantize_linear(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = DequantizeLinear {
        axis: cx.int("axis")?.unwrap_or(1),
        block: cx.size("block_size")?.unwrap_or(0),
        to: output_dtype(cx)?,
    };
    cx.map(op)
}

fn output_dtype(cx: &mut NodeCx<'_>) -> Result<Option<DType>, Refusal> {
    cx.int("output_dtype")?.filter(|&d| d != 0).map(dtype_of).transpose()
}

fn dtype_of(code: i64) -> Result<DType, Refusal> {
    dtype::from_onnx(code).map_err(|given| format!("dtype {given} is not supported"))
}

pub(crate) fn dynamic_quantize_linear(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(DynamicQuantizeLinear)
}

pub(crate) fn mat_mul_integer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(MatMulInteger)
}

pub(crate) fn conv_integer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    check_kernel(cx, 1)?;
    let conv = conv(cx)?;
    cx.map(ConvInteger { conv })
}

fn conv(cx: &mut NodeCx<'_>) -> Result<Conv, Refusal> {
    Ok(Conv {
        strides: cx.sizes("strides")?,
        pads: pads(cx)?,
        dilations: cx.sizes("dilations")?,
        group: cx.size("group")?.unwrap_or(1),
    })
}

/// Dequantises three consecutive inputs: values, scale, zero point.
pub(crate) fn dequantized(cx: &mut NodeCx<'_>, first: usize, axis: i64) -> ValueId {
    dequantize(cx, [cx.input(first), cx.input(first + 1), cx.input(first + 2)], axis)
}

/// As [`dequantized`], for values of the graph.
pub(super) fn dequantize(
    cx: &mut NodeCx<'_>,
    [x, scale, zero]: [Option<ValueId>; 3],
    axis: i64,
) -> ValueId {
    let scale = single_precision(cx, scale);
    let op = DequantizeLinear { axis, ..DequantizeLinear::default() };
    cx.emit(op, vec![x, scale, zero])
}

/// Ends the node with `x`, quantised with input `scale` and the zero point after it.
pub(crate) fn quantized(cx: &mut NodeCx<'_>, x: ValueId, scale: usize) -> Result<(), Refusal> {
    let zero = cx.input(scale + 1);
    let scale = cx.input(scale);
    let scale = single_precision(cx, scale);
    let op = quantizer(cx, zero)?;
    cx.map_with(op, vec![Some(x), scale, zero])
}

/// Quantises a value with input `scale` and the zero point after it.
pub(super) fn quantize(cx: &mut NodeCx<'_>, x: ValueId, scale: usize) -> Result<ValueId, Refusal> {
    let zero = cx.input(scale + 1);
    let scale = cx.input(scale);
    let scale = single_precision(cx, scale);
    let op = quantizer(cx, zero)?;
    Ok(cx.emit(op, vec![Some(x), scale, zero]))
}

/// The result has the dtype of its zero point, or of the first quantised input without one.
fn quantizer(cx: &NodeCx<'_>, zero: Option<ValueId>) -> Result<QuantizeLinear, Refusal> {
    if zero.is_some() {
        return Ok(QuantizeLinear::default());
    }
    let first = match cx.node.op_type.as_str() {
        "QLinearWhere" => 1,
        "QLinearConcat" => 2,
        _ => 0,
    };
    let known = [first, first + 2].into_iter().find_map(|i| cx.graph.info(cx.input(i)?));
    let to = known.ok_or_else(|| {
        format!("the output has no zero point, and the dtype of input {first} is not known")
    })?;
    Ok(QuantizeLinear { to: Some(to.ty.dtype), ..QuantizeLinear::default() })
}

/// Scales may have half precision, in which the operators between them would then compute.
fn single_precision(cx: &mut NodeCx<'_>, scale: Option<ValueId>) -> Option<ValueId> {
    scale.map(|s| cx.emit(Cast { to: DType::F32 }, vec![Some(s)]))
}

pub(crate) fn q_linear_mat_mul(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let a = dequantized(cx, 0, -2);
    let b = dequantized(cx, 3, -1);
    let y = cx.emit(MatMul, vec![Some(a), Some(b)]);
    quantized(cx, y, 6)
}

pub(crate) fn q_linear_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    check_kernel(cx, 3)?;
    let x = dequantized(cx, 0, 1);
    let y = dequantized_conv(cx, x)?;
    quantized(cx, y, 6)
}

/// The convolution of `x` with the weight and bias of the node.
pub(super) fn dequantized_conv(cx: &mut NodeCx<'_>, x: ValueId) -> Result<ValueId, Refusal> {
    let conv = conv(cx)?;
    let w = dequantized(cx, 3, 0);
    let mut inputs = vec![Some(x), Some(w)];
    if let Some(bias) = cx.input(8) {
        let scales = vec![cx.input(1), cx.input(4)];
        let scale = cx.emit(Binary::new(BinaryKind::Mul), scales);
        let op = DequantizeLinear { axis: 0, ..DequantizeLinear::default() };
        inputs.push(Some(cx.emit(op, vec![Some(bias), Some(scale)])));
    }
    Ok(cx.emit(conv, inputs))
}

/// Adds an operator and returns its `count` outputs, for the operators that follow.
pub(crate) fn emit_all(
    cx: &mut NodeCx<'_>,
    op: impl Op,
    inputs: Vec<Option<ValueId>>,
    count: usize,
) -> Vec<ValueId> {
    let name = format!("{}.{}", cx.node.name, cx.graph.nodes.len());
    let outputs: Vec<ValueId> =
        (0..count).map(|i| cx.graph.add_value(format!("{name}.{i}"))).collect();
    let ids = outputs.iter().copied().map(Some).collect();
    cx.push(name, op, inputs, ids);
    outputs
}
