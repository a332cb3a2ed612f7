//! Operators that prepare features for a model.

use super::{floats, vector};
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{
    Binary, BinaryKind, Cast, CastAs, Concat, Flatten, Gather, IndexOf, Pad, PadMode, Reduce,
    ReduceKind, Reshape, Slice, Unary, UnaryKind, Unsqueeze, Where,
};
use lgp_memory::{DType, PowerRounding, Tensor};

/// `(x - offset) · scale`; a list of one serves every feature.
pub(crate) fn scaler(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (offset, scale) = (cx.floats("offset")?, cx.floats("scale")?);
    let (offset, scale) = (offset.unwrap_or_default(), scale.unwrap_or_default());
    if offset.len() != scale.len() || offset.is_empty() {
        let (a, b) = (offset.len(), scale.len());
        return Err(format!("{a} offsets and {b} scales, expected as many of both"));
    }
    let x = floats(cx);
    let (offset, scale) = (vector(cx, &offset)?, vector(cx, &scale)?);
    let moved = cx.emit(Binary::new(BinaryKind::Sub), vec![Some(x), Some(offset)]);
    cx.map_with(Binary::new(BinaryKind::Mul), vec![Some(moved), Some(scale)])
}

/// Each row divided by its norm, unless that is zero.
pub(crate) fn normalizer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let kind = match cx.text("norm")?.unwrap_or("MAX") {
        "MAX" => ReduceKind::Max,
        "L1" => ReduceKind::L1,
        "L2" => ReduceKind::L2,
        other => return Err(unsupported("norm", other, &["MAX", "L1", "L2"])),
    };
    let x = floats(cx);
    let norm = cx.emit(Reduce::new(kind, Some(vec![-1])), vec![Some(x)]);
    let (zero, one) = (cx.emit_float(0.)?, cx.emit_float(1.)?);
    let empty = cx.emit(Binary::new(BinaryKind::Equal), vec![Some(norm), Some(zero)]);
    let norm = cx.emit(Where, vec![Some(empty), Some(one), Some(norm)]);
    cx.map_with(Binary::new(BinaryKind::Div), vec![Some(x), Some(norm)])
}

/// 1 above the threshold, 0 elsewhere, in the input's dtype.
pub(crate) fn binarizer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let threshold = cx.float("threshold")?.unwrap_or(0.);
    let (x, threshold) = (cx.input(0), cx.emit_float(threshold)?);
    let threshold = cx.emit(like(), vec![Some(threshold), x]);
    let above = cx.emit(Binary::new(BinaryKind::Greater), vec![x, Some(threshold)]);
    cx.map_with(like(), vec![Some(above), x])
}

/// An element equal to the replaced value, 0 by default, becomes its feature's imputed value.
pub(crate) fn imputer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let (floats, ints) = (cx.floats("imputed_value_floats")?, cx.ints("imputed_value_int64s")?);
    let old_float = cx.float("replaced_value_float")?;
    let old_int = cx.int("replaced_value_int64")?;
    let x = cx.input(0);
    let (imputed, replaced) = match (floats, ints) {
        (Some(values), None) => (vector(cx, &values)?, cx.emit_float(old_float.unwrap_or(0.))?),
        (None, Some(values)) => {
            let old = Tensor::scalar(old_int.unwrap_or(0)).map_err(|e| e.to_string())?;
            (cx.emit_ints(&values)?, cx.emit_constant(old))
        }
        _ => return Err("expected either imputed floats or imputed integers".into()),
    };
    let imputed = cx.emit(like(), vec![Some(imputed), x]);
    let missing = if old_float.is_some_and(f32::is_nan) {
        cx.emit(Unary::new(UnaryKind::IsNaN), vec![x])
    } else {
        let replaced = cx.emit(like(), vec![Some(replaced), x]);
        cx.emit(Binary::new(BinaryKind::Equal), vec![x, Some(replaced)])
    };
    cx.map_with(Where, vec![Some(missing), Some(imputed), x])
}

/// All inputs as f32, side by side. Rows are cut, or filled up with zeros, to the sizes that the
/// attribute gives; a vector is then one row.
pub(crate) fn feature_vectorizer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let sizes = cx.ints("inputdimensions")?.unwrap_or_default();
    let inputs = cx.inputs.clone();
    if let Some(size) = sizes.iter().find(|&&size| size < 0) {
        return Err(format!("attribute 'inputdimensions' has {size}, expected 0 or more"));
    }
    if !sizes.is_empty() && sizes.len() != inputs.len() {
        let (a, b) = (sizes.len(), inputs.len());
        return Err(format!("attribute 'inputdimensions' has {a} entries, expected {b}"));
    }
    let mut parts = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.into_iter().enumerate() {
        let mut part = cx.emit(Cast { to: DType::F32 }, vec![input]);
        if let Some(&size) = sizes.get(i) {
            part = if input.and_then(|id| super::rank(cx, id)) == Some(1) {
                cx.emit(Unsqueeze { axes: Some(vec![0]) }, vec![Some(part)])
            } else {
                cx.emit(Flatten { axis: 1 }, vec![Some(part)])
            };
            let pads = Some(vec![0, 0, 0, size]);
            part = cx.emit(Pad { mode: PadMode::Constant, pads, value: None }, vec![Some(part)]);
            let (starts, ends, axes) = (Some(vec![0]), Some(vec![size]), Some(vec![1]));
            part = cx.emit(Slice { starts, ends, axes, steps: None }, vec![Some(part)]);
        }
        parts.push(Some(part));
    }
    cx.map_with(Concat { axis: 1 }, parts)
}

/// Chosen columns. A vector is one row.
pub(crate) fn array_feature_extractor(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let shape = cx.emit_ints(&[-1])?;
    let (mut x, index) = (cx.input(0), cx.input(1));
    let index = cx.emit(Reshape::default(), vec![index, Some(shape)]);
    let rank = x.and_then(|id| super::rank(cx, id));
    if rank == Some(1) {
        x = Some(cx.emit(Unsqueeze { axes: Some(vec![0]) }, vec![x]));
    }
    cx.map_with(Gather { axis: -1 }, vec![x, Some(index)])
}

/// A column for each category, 1 where the input is that category. An input of no category makes a
/// row of zeros, or an error if `zeros` is 0.
pub(crate) fn one_hot_encoder(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let text = |e: lgp_memory::Error| e.to_string();
    let zeros = cx.flag("zeros")?.unwrap_or(true);
    let (texts, ints) = (cx.texts("cats_strings")?, cx.ints("cats_int64s")?.unwrap_or_default());
    let mut x = cx.input(0);
    let categories = match (texts, ints.as_slice()) {
        (texts @ [_, ..], []) => Tensor::from_strings([texts.len()], texts).map_err(text)?,
        ([], ints @ [_, ..]) => {
            x = Some(cx.emit(Cast { to: DType::I64 }, vec![x]));
            Tensor::from_slice([ints.len()], ints).map_err(text)?
        }
        _ => return Err("expected either 'cats_int64s' or 'cats_strings'".into()),
    };
    let op = IndexOf::new(&categories).map_err(|e| e.to_string())?;
    let index = cx.emit(if zeros { op } else { op.strict() }, vec![x]);
    let index = cx.emit(Unsqueeze { axes: Some(vec![-1]) }, vec![Some(index)]);
    let columns: Vec<i64> = (0..).take(categories.len()).collect();
    let columns = cx.emit_ints(&columns)?;
    let equal = cx.emit(Binary::new(BinaryKind::Equal), vec![Some(index), Some(columns)]);
    cx.map_with(Cast { to: DType::F32 }, vec![Some(equal)])
}

fn like() -> CastAs {
    CastAs { to: None, saturate: true, rounding: PowerRounding::Up }
}
