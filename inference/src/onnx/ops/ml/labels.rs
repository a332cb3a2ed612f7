//! Maps labels to other labels.

use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{Cast, Concat, Gather, IndexOf};
use lgp_memory::{DType, Tensor};

/// The names of a list's attributes, one for each type.
struct Names {
    tensor: &'static str,
    texts: &'static str,
    ints: &'static str,
    floats: &'static str,
}

const KEYS: Names = Names {
    tensor: "keys_tensor",
    texts: "keys_strings",
    ints: "keys_int64s",
    floats: "keys_floats",
};
const VALUES: Names = Names {
    tensor: "values_tensor",
    texts: "values_strings",
    ints: "values_int64s",
    floats: "values_floats",
};

fn text(e: lgp_memory::Error) -> Refusal {
    e.to_string()
}

/// The list, from the first of its attributes that the node has.
fn list(cx: &mut NodeCx<'_>, names: &Names) -> Result<Tensor, Refusal> {
    if let Some(tensor) = cx.tensor(names.tensor)? {
        return Ok(tensor);
    }
    if let texts @ [_, ..] = cx.texts(names.texts)? {
        return Tensor::from_strings([texts.len()], texts).map_err(text);
    }
    if let Some(ints) = cx.ints(names.ints)? {
        return Tensor::from_slice([ints.len()], &ints).map_err(text);
    }
    match cx.floats(names.floats)? {
        Some(floats) => Tensor::from_slice([floats.len()], &floats).map_err(text),
        None => Err(format!("attribute '{}' is missing, of any type", names.tensor)),
    }
}

/// The value of an element that is no key: in the dtype of the values, or a number to cast.
fn default(cx: &mut NodeCx<'_>, values: DType) -> Result<Tensor, Refusal> {
    // Defaults of other types may be there too, and mean nothing.
    let tensor = cx.tensor("default_tensor")?;
    let string = cx.text("default_string")?.unwrap_or("_Unused");
    let int = cx.int("default_int64")?.unwrap_or(-1);
    let float = cx.float("default_float")?.unwrap_or(-0.);
    if let Some(tensor) = tensor {
        return tensor.reshape([1]).map_err(text);
    }
    match values {
        DType::Str => Tensor::from_strings([1], &[string]),
        _ if values.is_float() => Tensor::from_slice([1], &[float]),
        _ => Tensor::from_slice([1], &[int]),
    }
    .map_err(text)
}

/// The value at the position that the input has among the keys.
fn look_up(cx: &mut NodeCx<'_>, keys: &Tensor, values: Tensor) -> Result<(), Refusal> {
    if keys.len() != values.len() {
        return Err(format!("{} keys for {} values", keys.len(), values.len()));
    }
    let dtype = values.dtype();
    let op = IndexOf::new(keys).map_err(|e| e.to_string())?;
    let values = values.reshape([keys.len()]).map_err(text)?;
    let default = default(cx, dtype)?;
    let casts = default.dtype() != dtype;
    let (values, mut default) = (cx.emit_constant(values), cx.emit_constant(default));
    if casts {
        default = cx.emit(Cast { to: dtype }, vec![Some(default)]);
    }
    let values = cx.emit(Concat { axis: 0 }, vec![Some(values), Some(default)]);
    let x = cx.input(0);
    let index = cx.emit(op, vec![x]);
    cx.map_with(Gather { axis: 0 }, vec![Some(values), Some(index)])
}

/// Whether the input is strings: by its declared type, or else by the node's default, which has the
/// type of the output.
fn from_strings(cx: &NodeCx<'_>) -> bool {
    let declared = cx.input(0).and_then(|id| cx.graph.values.get(id.0)?.info.as_ref());
    match declared {
        Some(info) => info.ty.dtype == DType::Str,
        None => cx.has("default_int64") || !cx.has("default_string"),
    }
}

pub(crate) fn label_encoder(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // The first version has one list, of strings; the integers are their positions.
    if let texts @ [_, ..] = cx.texts("classes_strings")? {
        let ints: Vec<i64> = (0..).take(texts.len()).collect();
        return between(cx, texts, &ints);
    }
    let (keys, values) = (list(cx, &KEYS)?, list(cx, &VALUES)?);
    look_up(cx, &keys, values)
}

pub(crate) fn category_mapper(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let texts = cx.texts("cats_strings")?;
    let ints = cx.ints("cats_int64s")?.unwrap_or_default();
    between(cx, texts, &ints)
}

/// From strings to integers, or back.
fn between(cx: &mut NodeCx<'_>, texts: &[String], ints: &[i64]) -> Result<(), Refusal> {
    let texts = Tensor::from_strings([texts.len()], texts).map_err(text)?;
    let ints = Tensor::from_slice([ints.len()], ints).map_err(text)?;
    if from_strings(cx) { look_up(cx, &texts, ints) } else { look_up(cx, &ints, texts) }
}
