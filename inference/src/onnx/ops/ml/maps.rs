//! Maps: what scikit-learn's classifiers return, and what its vectorisers take.

use super::labels;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{CastMap, DictVectorizer, ZipMap};
use lgp_memory::{DType, Tensor};

pub(crate) fn zip_map(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let keys = labels(cx, "classlabels_int64s")?;
    cx.map(ZipMap { keys })
}

pub(crate) fn cast_map(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let to = match cx.text("cast_to")?.unwrap_or("TO_FLOAT") {
        "TO_FLOAT" => DType::F32,
        "TO_INT64" => DType::I64,
        "TO_STRING" => DType::Str,
        other => {
            return Err(unsupported("cast_to", other, &["TO_FLOAT", "TO_INT64", "TO_STRING"]));
        }
    };
    let columns = cx.size("max_map")?.unwrap_or(1);
    let width = match cx.text("map_form")?.unwrap_or("DENSE") {
        "DENSE" => None,
        "SPARSE" => Some(columns),
        other => return Err(unsupported("map_form", other, &["DENSE", "SPARSE"])),
    };
    cx.map(CastMap { to, width })
}

pub(crate) fn dict_vectorizer(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let texts = cx.texts("string_vocabulary")?;
    let ints = cx.ints("int64_vocabulary")?.unwrap_or_default();
    let keys = match (texts, ints.as_slice()) {
        (texts @ [_, ..], []) => Tensor::from_strings([texts.len()], texts),
        ([], ints @ [_, ..]) => Tensor::from_slice([ints.len()], ints),
        _ => return Err("expected either 'int64_vocabulary' or 'string_vocabulary'".into()),
    };
    let keys = keys.map_err(|e| e.to_string())?;
    cx.map(DictVectorizer::new(&keys).map_err(|e| e.to_string())?)
}
