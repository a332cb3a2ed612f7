//! Values that no `.npy` file holds, as JSON: strings and maps.

use lgp_sdk::{DType, Datum, Tensor};
use serde_json::{Map, Value, json};

/// A value: tensors as nested lists, sequences as lists, maps as objects, what is absent as null.
pub(crate) fn json(value: &Datum) -> Value {
    match value {
        Datum::Tensor(x) => tensor(x),
        Datum::Sequence(items) => Value::Array(items.iter().map(json).collect()),
        Datum::Map { keys, values } => {
            let keys = elements(keys).into_iter().map(|key| match key {
                Value::String(text) => text,
                other => other.to_string(),
            });
            Value::Object(keys.zip(elements(values)).collect::<Map<_, _>>())
        }
        Datum::Absent => Value::Null,
    }
}

/// A tensor as nested lists, a scalar as one value.
pub(crate) fn tensor(x: &Tensor) -> Value {
    nested(&mut elements(x).into_iter(), x.shape().dims())
}

fn nested(elements: &mut impl Iterator<Item = Value>, dims: &[usize]) -> Value {
    match dims.split_first() {
        None => elements.next().unwrap_or(Value::Null),
        Some((&n, inner)) => (0..n).map(|_| nested(elements, inner)).collect(),
    }
}

/// The elements of the dtypes that maps and string tensors have; of others, null.
fn elements(x: &Tensor) -> Vec<Value> {
    let all = match x.dtype() {
        DType::Str => x.strings().map(|v| v.into_iter().map(|s| json!(s)).collect()),
        DType::I64 => x.as_slice::<i64>().map(|v| v.iter().map(|n| json!(n)).collect()),
        DType::F32 => x.as_slice::<f32>().map(|v| v.iter().map(|n| json!(n)).collect()),
        DType::F64 => x.as_slice::<f64>().map(|v| v.iter().map(|n| json!(n)).collect()),
        _ => Ok(vec![Value::Null; x.len()]),
    };
    all.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_maps_are_json() {
        let text = Tensor::from_strings([2, 1], &["a", "b"]).expect("two strings");
        assert_eq!(tensor(&text), json!([["a"], ["b"]]));
        let keys = Tensor::from_slice([2], &[0i64, 1]).expect("two keys");
        let values = Tensor::from_slice([2], &[0.25f32, 0.75]).expect("two values");
        let maps = Datum::Sequence(vec![Datum::Map { keys, values }, Datum::Absent]);
        assert_eq!(json(&maps), json!([{ "0": 0.25, "1": 0.75 }, null]));
    }
}
