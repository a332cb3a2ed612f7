//! Values that no `.npy` file holds, as JSON: strings and maps.

use lgp_sdk::tensor::{DType, Datum, Tensor};
use serde_json::{Map, Value, json};

/// A value as JSON: tensors as nested lists, sequences as lists, maps as objects, absent values as
/// null.
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

/// A tensor of strings from a text or nested lists of texts; the lists' lengths are the shape.
///
/// # Errors
/// Where the value does not have this form.
pub(crate) fn strings(value: &Value) -> Result<Tensor, String> {
    let mut shape = Vec::new();
    let mut inner = value;
    while let Value::Array(items) = inner {
        shape.push(items.len());
        inner = items.first().unwrap_or(&Value::Null);
    }
    let mut texts = Vec::new();
    flatten(value, &shape, &mut texts)?;
    Tensor::from_strings(shape, &texts).map_err(|error| error.to_string())
}

fn flatten<'a>(value: &'a Value, shape: &[usize], into: &mut Vec<&'a str>) -> Result<(), String> {
    match (value, shape.split_first()) {
        (Value::Array(items), Some((&length, inner))) if items.len() == length => {
            items.iter().try_for_each(|item| flatten(item, inner, into))
        }
        (Value::Array(items), Some((length, _))) => {
            Err(format!("a list has {} entries where the first has {length}", items.len()))
        }
        (Value::String(text), None) => {
            into.push(text);
            Ok(())
        }
        (other, _) => Err(format!("{other} is not a string, or nested otherwise than the first")),
    }
}

fn nested(elements: &mut impl Iterator<Item = Value>, dims: &[usize]) -> Value {
    match dims.split_first() {
        None => elements.next().unwrap_or(Value::Null),
        Some((&n, inner)) => (0..n).map(|_| nested(elements, inner)).collect(),
    }
}

/// The elements of the dtypes that maps and string tensors use; null for other dtypes.
fn elements(x: &Tensor) -> Vec<Value> {
    let all = match x.dtype() {
        DType::Str => x.strings().map(|v| v.into_iter().map(|s| json!(s)).collect()),
        DType::I64 => x.as_slice::<i64>().map(|v| v.iter().map(|n| json!(n)).collect()),
        DType::F32 => x.as_slice::<f32>().map(|v| v.iter().map(|n| json!(short(*n))).collect()),
        DType::F64 => x.as_slice::<f64>().map(|v| v.iter().map(|n| json!(n)).collect()),
        _ => Ok(vec![Value::Null; x.len()]),
    };
    all.unwrap_or_default()
}

/// A number with only the digits that f32 needs: as f64, 0.1 would be 0.10000000149011612.
pub(crate) fn short(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_they_are_written() {
        for written in [json!([["a", ""], ["ü", "a"]]), json!([]), json!("one"), json!([[], []])] {
            let read = strings(&written).expect("strings");
            assert_eq!(tensor(&read), written);
        }
        for (odd, part) in [
            (json!([["a", "b"], ["c"]]), "a list has 1 entries where the first has 2"),
            (json!(["a", ["b"]]), "nested otherwise"),
            (json!([["a"], "b"]), "nested otherwise"),
            (json!(["a", 1]), "1 is not a string"),
            (json!([null]), "null is not a string"),
            (json!({ "a": "b" }), "is not a string"),
        ] {
            let error = strings(&odd).expect_err(part);
            assert!(error.contains(part), "{odd}: {error}");
        }
    }

    #[test]
    fn strings_and_maps_are_json() {
        let text = Tensor::from_strings([2, 1], &["a", "b"]).expect("two strings");
        assert_eq!(tensor(&text), json!([["a"], ["b"]]));
        let keys = Tensor::from_slice([2], &[0i64, 1]).expect("two keys");
        let values = Tensor::from_slice([2], &[0.1f32, f32::NAN]).expect("two values");
        let maps = Datum::Sequence(vec![Datum::Map { keys, values }, Datum::Absent]);
        assert_eq!(json(&maps).to_string(), r#"[{"0":0.1,"1":null},null]"#);
    }
}
