//! Attention whose scores and weights graphs of the model change, as simpler operators.

use crate::graph::ValueId;
use crate::onnx::dtype;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    Binary, BinaryKind, Cast, Concat, MatMul, Reshape, Shape, Softmax, Transpose, Unary, UnaryKind,
};
use lgp_memory::DType;

/// Query, key and value are `[batch, heads, length, size]`. Each head of the key serves equally
/// many consecutive heads of the query, which are joined into one longer sequence.
pub(crate) fn flex_attention(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let given = cx.input(0).and_then(|q| cx.graph.info(q)).map(|info| info.ty.clone());
    let dtype = given.as_ref().map_or(DType::F32, |ty| ty.dtype);
    let precision = match cx.int("softmax_precision")? {
        Some(code) => dtype::from_onnx(code)
            .map_err(|code| format!("attribute 'softmax_precision' is {code}, expected a float"))?,
        None if dtype == DType::F64 => DType::F64,
        None => DType::F32,
    };
    let [q, k, v] = [0, 1, 2].map(|i| {
        let input = cx.input(i);
        Some(cx.emit(Cast { to: precision }, vec![input]))
    });
    let [batch, heads, size] = [(q, 0, 1), (k, 1, 2), (q, 3, 4)].map(|(x, s, e)| dims(cx, x, s, e));
    let [queries, keys, values] =
        [(q, 0, 3), (k, 2, 3), (v, 3, 4)].map(|(x, s, e)| dims(cx, x, s, e));
    let rest = Some(cx.emit_ints(&[-1])?);

    let grouped = reshape(cx, q, &[batch, heads, rest, size]);
    let turned = cx.emit(Transpose { perm: Some(vec![0, 1, 3, 2]) }, vec![k]);
    let products = Some(cx.emit(MatMul, vec![grouped, Some(turned)]));
    let scaled = match cx.float("scale")? {
        Some(scale) => {
            let scale = UnaryKind::Linear { scale, shift: 0. };
            Some(cx.emit(Unary::new(scale), vec![products]))
        }
        None => {
            let size = cx.emit(Cast { to: precision }, vec![size]);
            let root = cx.emit(Unary::new(UnaryKind::Sqrt), vec![Some(size)]);
            Some(cx.emit(Binary::new(BinaryKind::Div), vec![products, Some(root)]))
        }
    };
    let scores = reshape(cx, scaled, &[queries, keys]);
    let scores = changed(cx, "score_mod", scores)?;
    let softmax = Softmax { axis: -1, log: false, flatten: false };
    let weights = Some(cx.emit(softmax, vec![scores]));
    let weights = changed(cx, "prob_mod", weights)?;
    let weights = reshape(cx, weights, &[batch, heads, rest, keys]);
    let y = Some(cx.emit(MatMul, vec![weights, v]));
    let y = reshape(cx, y, &[queries, values]);
    cx.map_with(Cast { to: dtype }, vec![y])
}

/// Dimensions `start..end` of a value, as a value.
fn dims(cx: &mut NodeCx<'_>, x: Option<ValueId>, start: i64, end: i64) -> Option<ValueId> {
    Some(cx.emit(Shape { start, end: Some(end) }, vec![x]))
}

fn reshape(cx: &mut NodeCx<'_>, x: Option<ValueId>, dims: &[Option<ValueId>]) -> Option<ValueId> {
    let shape = cx.emit(Concat { axis: 0 }, dims.to_vec());
    Some(cx.emit(Reshape::default(), vec![x, Some(shape)]))
}

/// The value as an attribute's graph changes it, or unchanged without the attribute.
fn changed(
    cx: &mut NodeCx<'_>,
    key: &'static str,
    x: Option<ValueId>,
) -> Result<Option<ValueId>, Refusal> {
    let Some(x) = x.filter(|_| cx.has(key)) else { return Ok(x) };
    match cx.inline(key, &[x])?[..] {
        [y] => Ok(Some(y)),
        ref outputs => {
            Err(format!("the graph of '{key}' has {} outputs, expected 1", outputs.len()))
        }
    }
}
