//! Weights that ONNX Runtime's quantisers store in blocks of a few bits. Constant weights of
//! products are expanded to floats when the model is compiled; tables are expanded row by row.

use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    Binary, BinaryKind, Bitwise, BitwiseKind, Cast, Concat, DequantizeLinear, Gather, MatMul,
    Reshape, Shape, Slice, Transpose, Unsqueeze,
};
use lgp_memory::{DType, Tensor};

/// The values of 4 bits in bitsandbytes: floats with an exponent of 2 bits, and quantiles of the
/// normal distribution.
const FP4: [f32; 16] = [
    0.,
    0.005_208_333_5,
    0.666_666_7,
    1.,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    0.,
    -0.005_208_333_5,
    -0.666_666_7,
    -1.,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];
const NF4: [f32; 16] = [
    -1.,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.,
];

/// Inputs: a, the weight `[n, k]` as one row of nibbles, the first of a byte in its upper half, and
/// the largest value of each block.
pub(crate) fn mat_mul_bnb4(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mut int = |key| cx.int(key)?.ok_or_else(|| format!("attribute '{key}' is missing"));
    let (k, n, block) = (int("K")?, int("N")?, int("block_size")?);
    let table = match int("quant_type")? {
        0 => FP4,
        1 => NF4,
        other => return Err(format!("attribute 'quant_type' is {other}, expected 0 or 1")),
    };
    if cx.flag("training_mode")? == Some(true) || cx.flag("transB")? == Some(false) {
        return Err("attributes 'training_mode' 1 and 'transB' 0 are not supported".into());
    }
    let whole = k > 0 && n > 0 && block > 0 && k.checked_mul(n).is_some_and(|all| all % block == 0);
    if !whole || block % 2 != 0 {
        return Err(format!("a weight of {n} by {k} in blocks of {block} is not supported"));
    }
    let codes = nibbles(cx, cx.input(1), true)?;
    let codes = cx.emit(Cast { to: DType::I32 }, vec![Some(codes)]);
    let blocks = cx.emit_ints(&[-1, block])?;
    let codes = cx.emit(Reshape::default(), vec![Some(codes), Some(blocks)]);
    let table = Tensor::from_slice([16], &table).map_err(|e| e.to_string())?;
    let table = cx.emit_constant(table);
    let values = cx.emit(Gather { axis: 0 }, vec![Some(table), Some(codes)]);
    let column = cx.emit_ints(&[-1, 1])?;
    let largest = cx.emit(Reshape::default(), vec![cx.input(2), Some(column)]);
    let product = Binary::new(BinaryKind::Mul);
    let values = cx.emit(product, vec![Some(values), Some(largest)]);
    let shape = cx.emit_ints(&[n, k])?;
    let weight = cx.emit(Reshape::default(), vec![Some(values), Some(shape)]);
    let weight = cx.emit(Transpose { perm: Some(vec![1, 0]) }, vec![Some(weight)]);
    cx.map_with(MatMul, vec![cx.input(0), Some(weight)])
}

/// The two halves of each byte as two bytes: the last axis becomes twice as long.
fn nibbles(cx: &mut NodeCx<'_>, x: Option<ValueId>, upper_first: bool) -> Result<ValueId, Refusal> {
    let byte = |n: u8| Tensor::from_slice([1], &[n]).map_err(|e| e.to_string());
    let [mask, shift] = [byte(15)?, byte(16)?].map(|t| Some(cx.emit_constant(t)));
    let low = cx.emit(Bitwise { kind: BitwiseKind::And }, vec![x, mask]);
    let high = cx.emit(Binary::new(BinaryKind::Div), vec![x, shift]);
    let pair = if upper_first { [high, low] } else { [low, high] };
    let pair = pair.map(|x| Some(cx.emit(Unsqueeze { axes: Some(vec![-1]) }, vec![Some(x)])));
    let pairs = cx.emit(Concat { axis: -1 }, pair.to_vec());
    let outer = cx.emit(Shape { start: 0, end: Some(-1) }, vec![x]);
    let last = cx.emit_ints(&[-1])?;
    let shape = cx.emit(Concat { axis: 0 }, vec![Some(outer), Some(last)]);
    Ok(cx.emit(Reshape::default(), vec![Some(pairs), Some(shape)]))
}

/// Inputs data, indices, scales, zero points (optional). Only the gathered rows become floats.
pub(crate) fn gather_block_quantized(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let bits = cx.int("bits")?.unwrap_or(4);
    let block = cx.size("block_size")?.unwrap_or(128);
    let data = cx.constant(0).ok_or("the data is not a constant")?;
    let (dtype, rank) = (data.dtype(), data.shape().rank());
    let from_back = |axis: i64| {
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        if axis < 0 { axis } else { axis.saturating_sub(rank) }
    };
    let gathered = from_back(cx.int("gather_axis")?.unwrap_or(0));
    let blocks = from_back(cx.int("quantize_axis")?.unwrap_or(1));
    if gathered >= blocks || blocks >= 0 {
        return Err(format!("axis {blocks} of the blocks is not after axis {gathered}"));
    }
    let packed = match (dtype, bits) {
        (DType::U8, 4) => true,
        (DType::U8, 8) | (DType::I4 | DType::U4, 4) => false,
        _ => return Err(format!("data of dtype {dtype} with {bits} bits is not supported")),
    };
    let mut parts = [cx.input(0), cx.input(2), cx.input(3)];
    if dtype == DType::U8 {
        parts[2] = Some(byte_zeros(cx, packed)?);
    }
    let indices = cx.input(1);
    let mut rows = parts
        .map(|part| part.map(|part| cx.emit(Gather { axis: gathered }, vec![Some(part), indices])));
    if packed {
        rows[0] = Some(nibbles(cx, rows[0], false)?);
    }
    let op = DequantizeLinear { axis: blocks, block, to: None };
    cx.map_with(op, rows.to_vec())
}

/// Zero points as bytes, one per scale; the middle of the range where none are given.
fn byte_zeros(cx: &mut NodeCx<'_>, packed: bool) -> Result<ValueId, Refusal> {
    let scales = cx.constant(2).ok_or("the scales are not a constant")?;
    let (shape, count) = (scales.shape().clone(), scales.len());
    let Some(zeros) = cx.input(3) else {
        let middle = if packed { 8u8 } else { 128 };
        let zeros = Tensor::from_slice(shape, &vec![middle; count]).map_err(|e| e.to_string())?;
        return Ok(cx.emit_constant(zeros));
    };
    if !packed {
        return Ok(zeros);
    }
    // The upper half of a row's last byte may be unused.
    let zeros = nibbles(cx, Some(zeros), false)?;
    let blocks = shape.last().and_then(|&n| i64::try_from(n).ok());
    let ends = blocks.map(|n| vec![n]);
    let cut = Slice { starts: Some(vec![0]), ends, axes: Some(vec![-1]), steps: None };
    Ok(cx.emit(cut, vec![Some(zeros)]))
}
