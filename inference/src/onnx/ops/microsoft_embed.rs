//! Embeddings of words as ONNX Runtime's optimiser writes them.

use super::microsoft::add;
use super::quantized::dequantize;
use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    Binary, BinaryKind, Cast, ConstantOfShape, Gather, Identity, LayerNorm, Reduce, ReduceKind,
    Shape, Slice,
};
use lgp_memory::{DType, Tensor};

/// A table and, where it is of bytes, its scale and zero point.
type Table = [Option<ValueId>; 3];

/// Word, position and, where there are any, segment embeddings, summed and normalised.
pub(crate) fn embed_layer_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // A hint about the second output for shape inference.
    cx.ignore(&["mask_index_type"]);
    let tables = [2, 3, 4, 5, 6].map(|i| [cx.input(i), None, None]);
    let positions = cx.input(8);
    embedded(cx, tables, positions)?;
    mask_index(cx)
}

/// [`embed_layer_norm`] with tables of bytes: scales are inputs from 8 on, zero points from 13 on.
pub(crate) fn quantized_embed_layer_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let tables = [2, 3, 4, 5, 6].map(|i| [cx.input(i), cx.input(i + 6), cx.input(i + 11)]);
    embedded(cx, tables, None)?;
    mask_index(cx)
}

/// Tables of words, positions and segments, and the norm's scale and shift.
fn embedded(
    cx: &mut NodeCx<'_>,
    tables: [Table; 5],
    positions: Option<ValueId>,
) -> Result<(), Refusal> {
    let epsilon = cx.float("epsilon")?.unwrap_or(1e-12);
    let [words, places, segments, scale, shift] = tables;
    let words = rows(cx, words, cx.input(0));
    let positions = match positions {
        Some(ids) => rows(cx, places, Some(ids)),
        None => first_rows(cx, places)?,
    };
    let mut sum = add(cx, Some(words), Some(positions));
    if cx.input(1).is_some() && segments[0].is_some() {
        let segments = rows(cx, segments, cx.input(1));
        sum = add(cx, Some(sum), Some(segments));
    }
    if let Some(output) = cx.output(2) {
        cx.emit_into(Identity, vec![Some(sum)], vec![Some(output)]);
    }
    let [scale, shift] = [scale, shift].map(|table| floats(cx, table));
    let y = cx.output(0);
    cx.emit_into(LayerNorm { axis: -1, epsilon }, vec![Some(sum), scale, shift], vec![y]);
    Ok(())
}

/// A table's values as floats.
fn floats(cx: &mut NodeCx<'_>, [x, scale, zero]: Table) -> Option<ValueId> {
    if scale.is_none() { x } else { Some(dequantize(cx, [x, scale, zero], 0)) }
}

fn rows(cx: &mut NodeCx<'_>, [table, scale, zero]: Table, ids: Option<ValueId>) -> ValueId {
    let rows = cx.emit(Gather { axis: 0 }, vec![table, ids]);
    floats(cx, [Some(rows), scale, zero]).unwrap_or(rows)
}

/// The first rows of the positions' table, as many as a sequence is long.
fn first_rows(cx: &mut NodeCx<'_>, [table, scale, zero]: Table) -> Result<ValueId, Refusal> {
    let ids = cx.input(0);
    let length = cx.emit(Shape { start: 1, end: Some(2) }, vec![ids]);
    let start = cx.emit_ints(&[0])?;
    let cut = vec![table, Some(start), Some(length), Some(start)];
    let rows = cx.emit(Slice::default(), cut);
    Ok(floats(cx, [Some(rows), scale, zero]).unwrap_or(rows))
}

/// The second output: how many words of each sequence the mask, input 7, keeps, or 0 without one.
fn mask_index(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let Some(output) = cx.output(1) else { return Ok(()) };
    let integer = |n: i32| Tensor::from_slice([1], &[n]).map_err(|e| e.to_string());
    let Some(mask) = cx.input(7) else {
        let batch = cx.emit(Shape { start: 0, end: Some(1) }, vec![cx.input(0)]);
        let none = ConstantOfShape { value: integer(0)? };
        cx.emit_into(none, vec![Some(batch)], vec![Some(output)]);
        return Ok(());
    };
    let one = cx.emit_constant(integer(1)?);
    let kept = cx.emit(Binary::new(BinaryKind::Equal), vec![Some(mask), Some(one)]);
    let kept = cx.emit(Cast { to: DType::I32 }, vec![Some(kept)]);
    let mut count = Reduce::new(ReduceKind::Sum, Some(vec![1]));
    count.keep_dims = false;
    cx.emit_into(count, vec![Some(kept)], vec![Some(output)]);
    Ok(())
}
