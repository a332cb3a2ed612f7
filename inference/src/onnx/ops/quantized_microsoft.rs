//! The quantised operators of ONNX Runtime's own domain, which its quantiser writes.

use super::conv::{check_kernel, pads};
use super::microsoft_images::{channels_first, map_channels_last};
use super::quantized::{dequantize, dequantized, dequantized_conv, emit_all, quantize, quantized};
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    Binary, BinaryKind, Cast, Concat, DequantizeLinear, DynamicQuantizeLinear, Gemm, GlobalPool,
    GlobalPoolKind, MatMul, MatMulInteger, Pool, PoolKind, Reduce, ReduceKind, Softmax, Unary,
    UnaryKind, UnpackBits, Where,
};
use lgp_memory::DType;

pub(crate) fn q_linear_add(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    binary(cx, BinaryKind::Add)
}

pub(crate) fn q_linear_mul(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    binary(cx, BinaryKind::Mul)
}

fn binary(cx: &mut NodeCx<'_>, kind: BinaryKind) -> Result<(), Refusal> {
    let a = dequantized(cx, 0, 0);
    let b = dequantized(cx, 3, 0);
    let y = cx.emit(Binary::new(kind), vec![Some(a), Some(b)]);
    quantized(cx, y, 6)
}

pub(crate) fn q_linear_sigmoid(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    unary(cx, UnaryKind::Sigmoid)
}

pub(crate) fn q_linear_leaky_relu(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let alpha = cx.float("alpha")?.unwrap_or(0.01);
    unary(cx, UnaryKind::LeakyRelu { alpha })
}

fn unary(cx: &mut NodeCx<'_>, kind: UnaryKind) -> Result<(), Refusal> {
    let x = dequantized(cx, 0, 0);
    let y = cx.emit(Unary::new(kind), vec![Some(x)]);
    quantized(cx, y, 3)
}

pub(crate) fn q_linear_softmax(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let flatten = cx.int("opset")?.is_some_and(|opset| opset < 13);
    let axis = cx.int("axis")?.unwrap_or(-1);
    let x = dequantized(cx, 0, 0);
    let y = cx.emit(Softmax { axis, log: false, flatten }, vec![Some(x)]);
    quantized(cx, y, 3)
}

pub(crate) fn q_linear_global_average_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let last = cx.flag("channels_last")?.unwrap_or(false);
    let x = dequantized(cx, 0, 0);
    let y = if last {
        let mut mean = Reduce::new(ReduceKind::Mean, Some(vec![1, 2]));
        mean.keep_dims = true;
        cx.emit(mean, vec![Some(x)])
    } else {
        cx.emit(GlobalPool { kind: GlobalPoolKind::Average }, vec![Some(x)])
    };
    quantized(cx, y, 3)
}

pub(crate) fn q_linear_average_pool(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let last = cx.flag("channels_last")?.unwrap_or(false);
    let count_include_pad = cx.flag("count_include_pad")?.unwrap_or(false);
    let pool = Pool {
        kind: PoolKind::Average { count_include_pad },
        kernel: cx.sizes("kernel_shape")?,
        strides: cx.sizes("strides")?,
        pads: pads(cx)?,
        dilations: Vec::new(),
        ceil_mode: cx.flag("ceil_mode")?.unwrap_or(false),
    };
    let rank = pool.kernel.len() + 2;
    if last {
        let first = channels_first(cx, cx.input(0), rank);
        cx.inputs[0] = Some(first);
    }
    let x = dequantized(cx, 0, 0);
    let y = cx.emit(pool, vec![Some(x)]);
    if !last {
        return quantized(cx, y, 3);
    }
    let y = quantize(cx, y, 3)?;
    map_channels_last(cx, y, rank)
}

/// ONNX's convolution, with channels that may come last.
pub(crate) fn q_linear_conv(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    if cx.flag("channels_last")? != Some(true) {
        return super::quantized::q_linear_conv(cx);
    }
    check_kernel(cx, 3)?;
    let weight = cx.constant(3).map(|w| w.shape().rank());
    let rank = weight.filter(|&n| n > 2).ok_or("the weight is not a constant of rank 3 or more")?;
    let first = channels_first(cx, cx.input(0), rank);
    let x = dequantize(cx, [Some(first), cx.input(1), cx.input(2)], 1);
    let y = dequantized_conv(cx, x)?;
    let y = quantize(cx, y, 6)?;
    map_channels_last(cx, y, rank)
}

/// Inputs: the condition, then values, scale and zero point of each side.
pub(crate) fn q_linear_where(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let [x, y] = [1, 4].map(|first| Some(dequantized(cx, first, 0)));
    let z = cx.emit(Where, vec![cx.input(0), x, y]);
    quantized(cx, z, 7)
}

pub(crate) fn q_linear_reduce_mean(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let mut mean = Reduce::new(ReduceKind::Mean, cx.ints("axes")?);
    mean.keep_dims = cx.flag("keepdims")?.unwrap_or(true);
    let x = dequantized(cx, 0, 0);
    let y = cx.emit(mean, vec![Some(x)]);
    quantized(cx, y, 3)
}

/// The output's scale and zero point come first, then three inputs for each tensor.
pub(crate) fn q_linear_concat(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.ok_or("attribute 'axis' is missing")?;
    let firsts = (2..cx.inputs.len()).step_by(3);
    let parts: Vec<_> = firsts.map(|first| Some(dequantized(cx, first, 0))).collect();
    let y = cx.emit(Concat { axis }, parts);
    quantized(cx, y, 0)
}

/// The output stays a float where it has no scale.
pub(crate) fn q_gemm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let alpha = cx.float("alpha")?.unwrap_or(1.);
    let trans_a = cx.flag("transA")?.unwrap_or(false);
    let trans_b = cx.flag("transB")?.unwrap_or(false);
    let a = dequantized(cx, 0, 0);
    let b = dequantized(cx, 3, if trans_b { 0 } else { 1 });
    let mut inputs = vec![Some(a), Some(b)];
    if let Some(bias) = cx.input(6) {
        let scale = cx.emit(Binary::new(BinaryKind::Mul), vec![cx.input(1), cx.input(4)]);
        let op = DequantizeLinear { axis: -1, ..DequantizeLinear::default() };
        inputs.push(Some(cx.emit(op, vec![Some(bias), Some(scale)])));
    }
    // The addend is quantised with the scale `alpha · a_scale · b_scale`.
    let gemm = Gemm { alpha, beta: alpha, trans_a, trans_b };
    if cx.input(7).is_none() {
        return cx.map_with(gemm, inputs);
    }
    let y = cx.emit(gemm, inputs);
    quantized(cx, y, 7)
}

pub(crate) fn dynamic_quantize_mat_mul(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let a = emit_all(cx, DynamicQuantizeLinear, vec![cx.input(0)], 3);
    let [a, scale, zero] = a[..] else { return Err("three outputs are expected".into()) };
    let inputs = vec![Some(a), cx.input(1), Some(zero), cx.input(3)];
    let y = cx.emit(MatMulInteger, inputs);
    scaled(cx, y, Some(scale), cx.input(2), cx.input(4))
}

pub(crate) fn mat_mul_integer_to_float(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let inputs = vec![cx.input(0), cx.input(1), cx.input(4), cx.input(5)];
    let y = cx.emit(MatMulInteger, inputs);
    scaled(cx, y, cx.input(2), cx.input(3), cx.input(6))
}

/// The product, as floats, of two matrices of bytes with zero points and scales.
pub(super) fn integer_product(
    cx: &mut NodeCx<'_>,
    [a, b, a_zero, b_zero]: [Option<ValueId>; 4],
    [a_scale, b_scale]: [Option<ValueId>; 2],
) -> ValueId {
    let sums = cx.emit(MatMulInteger, vec![a, b, a_zero, b_zero]);
    let sums = cx.emit(Cast { to: DType::F32 }, vec![Some(sums)]);
    let scale = cx.emit(Binary::new(BinaryKind::Mul), vec![a_scale, b_scale]);
    cx.emit(Binary::new(BinaryKind::Mul), vec![Some(sums), Some(scale)])
}

/// Integer sums as floats: times both scales, plus a bias.
fn scaled(
    cx: &mut NodeCx<'_>,
    sums: ValueId,
    a_scale: Option<ValueId>,
    b_scale: Option<ValueId>,
    bias: Option<ValueId>,
) -> Result<(), Refusal> {
    let sums = cx.emit(Cast { to: DType::F32 }, vec![Some(sums)]);
    let scale = cx.emit(Binary::new(BinaryKind::Mul), vec![a_scale, b_scale]);
    let inputs = vec![Some(sums), Some(scale)];
    match bias {
        None => cx.map_with(Binary::new(BinaryKind::Mul), inputs),
        Some(bias) => {
            let y = cx.emit(Binary::new(BinaryKind::Mul), inputs);
            cx.map_with(Binary::new(BinaryKind::Add), vec![Some(y), Some(bias)])
        }
    }
}

pub(crate) fn mat_mul_n_bits(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // `accuracy_level` 2 to 4 allow less precision; products here have that of f32 at all levels.
    cx.ignore(&["accuracy_level", "weight_prepacked"]);
    if cx.input(4).is_some() {
        return Err("input 'g_idx' is not supported".into());
    }
    let mut size = |key| cx.size(key)?.ok_or_else(|| format!("attribute '{key}' is missing"));
    let (k, n, block) = (size("K")?, size("N")?, size("block_size")?);
    let bits = cx.size("bits")?.unwrap_or(4);
    if !matches!(bits, 2 | 4 | 8) {
        return Err(format!("attribute 'bits' is {bits}, supported: 2, 4 and 8"));
    }
    let op = UnpackBits { k, n, bits, block };
    let weight = cx.emit(op, vec![cx.input(1), cx.input(2), cx.input(3)]);
    let inputs = vec![cx.input(0), Some(weight)];
    match cx.input(5) {
        None => cx.map_with(MatMul, inputs),
        Some(bias) => {
            let y = cx.emit(MatMul, inputs);
            cx.map_with(Binary::new(BinaryKind::Add), vec![Some(y), Some(bias)])
        }
    }
}
