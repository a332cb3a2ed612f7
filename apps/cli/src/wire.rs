//! Tensors as the cluster API writes them in JSON: name, shape, datatype, data.

use crate::failure::{Failure, Result};
use half::{bf16, f16};
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Dim, Element, NamedTensor, SymShape, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A tensor in a request or an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireTensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) datatype: String,
    pub(crate) data: Vec<Value>,
}

/// A model's input; −1 is an open dimension.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct WireSpec {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

const NAMES: [(DType, &str); 14] = [
    (DType::Bool, "BOOL"),
    (DType::U8, "UINT8"),
    (DType::U16, "UINT16"),
    (DType::U32, "UINT32"),
    (DType::U64, "UINT64"),
    (DType::I8, "INT8"),
    (DType::I16, "INT16"),
    (DType::I32, "INT32"),
    (DType::I64, "INT64"),
    (DType::F16, "FP16"),
    (DType::BF16, "BF16"),
    (DType::F32, "FP32"),
    (DType::F64, "FP64"),
    (DType::Str, "BYTES"),
];

fn dtype(name: &str) -> Result<DType> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype).ok_or_else(|| {
        Failure::new("bad_answer", format!("the coordinator speaks of datatype '{name}'"))
    })
}

impl WireSpec {
    /// As a session would describe the input.
    pub(crate) fn spec(&self) -> Result<ValueSpec> {
        let dims =
            self.shape.iter().map(|&dim| usize::try_from(dim).map_or(Dim::Unknown, Dim::Known));
        let shape = Some(SymShape(dims.collect()));
        let ty = TensorType { dtype: dtype(&self.datatype)?, shape };
        Ok(ValueSpec::tensor(self.name.clone(), ty))
    }
}

impl WireTensor {
    /// # Errors
    /// `bad_answer` when data, datatype and shape do not match.
    pub(crate) fn tensor(&self) -> Result<NamedTensor> {
        let odd = |what: String| {
            Failure::new("bad_answer", format!("output '{}' is damaged: {what}", self.name))
        };
        let tensor = from_values(dtype(&self.datatype)?, &self.shape, &self.data).map_err(odd)?;
        Ok(NamedTensor::new(self.name.clone(), tensor))
    }
}

/// Describes an input whose bytes follow the JSON.
pub(crate) fn describe(input: &NamedTensor) -> Value {
    let tensor = &input.tensor;
    let datatype = NAMES.iter().find(|(known, _)| *known == tensor.dtype()).map(|(_, name)| *name);
    json!({
        "name": input.name,
        "shape": tensor.shape().dims(),
        "datatype": datatype.unwrap_or_default(),
        "parameters": { "binary_data_size": tensor.packed_len() },
    })
}

fn from_values(dtype: DType, shape: &[usize], data: &[Value]) -> Result<Tensor, String> {
    fn all<T: Element>(
        shape: &[usize],
        data: &[Value],
        f: impl Fn(&Value) -> Option<T>,
    ) -> Result<Tensor, String> {
        let elements: Option<Vec<T>> = data.iter().map(f).collect();
        let elements = elements.ok_or("an element is not of its datatype")?;
        Tensor::from_slice(shape, &elements).map_err(|error| error.to_string())
    }
    fn int<T: TryFrom<i64>>(value: &Value) -> Option<T> {
        value.as_i64().and_then(|v| T::try_from(v).ok())
    }
    /// The API writes numbers that JSON lacks as strings.
    fn float(value: &Value) -> Option<f64> {
        match value.as_str() {
            None => value.as_f64(),
            Some("NaN") => Some(f64::NAN),
            Some("Infinity") => Some(f64::INFINITY),
            Some("-Infinity") => Some(f64::NEG_INFINITY),
            Some(_) => None,
        }
    }
    match dtype {
        DType::Bool => all(shape, data, Value::as_bool),
        DType::U8 => all(shape, data, int::<u8>),
        DType::U16 => all(shape, data, int::<u16>),
        DType::U32 => all(shape, data, int::<u32>),
        DType::U64 => all(shape, data, Value::as_u64),
        DType::I8 => all(shape, data, int::<i8>),
        DType::I16 => all(shape, data, int::<i16>),
        DType::I32 => all(shape, data, int::<i32>),
        DType::I64 => all(shape, data, Value::as_i64),
        DType::F16 => all(shape, data, |v| float(v).map(f16::from_f64)),
        DType::BF16 => all(shape, data, |v| float(v).map(bf16::from_f64)),
        DType::F32 => all(shape, data, |v| float(v).map(|v| v as f32)),
        DType::F64 => all(shape, data, float),
        DType::Str => {
            let texts: Option<Vec<&str>> = data.iter().map(Value::as_str).collect();
            let texts = texts.ok_or("an element is no string")?;
            Tensor::from_strings(shape, &texts).map_err(|error| error.to_string())
        }
        other => Err(format!("datatype {other} is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::tensor::Error as TensorError;

    /// One JSON value for each element; null for numbers that JSON lacks.
    fn to_values(tensor: &Tensor) -> Result<Vec<Value>, TensorError> {
        fn all<T: Element>(t: &Tensor, f: impl Fn(T) -> Value) -> Result<Vec<Value>, TensorError> {
            Ok(t.as_slice::<T>()?.iter().map(|&value| f(value)).collect())
        }
        match tensor.dtype() {
            DType::Bool => all::<bool>(tensor, Value::from),
            DType::U8 => all::<u8>(tensor, Value::from),
            DType::U16 => all::<u16>(tensor, Value::from),
            DType::U32 => all::<u32>(tensor, Value::from),
            DType::U64 => all::<u64>(tensor, Value::from),
            DType::I8 => all::<i8>(tensor, Value::from),
            DType::I16 => all::<i16>(tensor, Value::from),
            DType::I32 => all::<i32>(tensor, Value::from),
            DType::I64 => all::<i64>(tensor, Value::from),
            DType::F16 => all::<f16>(tensor, |v| Value::from(v.to_f32())),
            DType::BF16 => all::<bf16>(tensor, |v| Value::from(v.to_f32())),
            DType::F32 => all::<f32>(tensor, Value::from),
            DType::F64 => all::<f64>(tensor, Value::from),
            other => Err(TensorError::DType { expected: DType::F32, given: other }),
        }
    }

    #[test]
    fn tensors_survive_the_wire() {
        let tensors = [
            Tensor::from_slice([2], &[true, false]),
            Tensor::from_slice([2], &[0u8, 255]),
            Tensor::from_slice([1], &[u64::MAX]),
            Tensor::from_slice([2, 1], &[i64::MIN, 7]),
            Tensor::from_slice([2], &[0.1f32, -3.5e-20]),
            Tensor::from_slice([1], &[0.1f64]),
            Tensor::from_slice([1], &[f16::from_f32(0.1)]),
            Tensor::from_slice([1], &[bf16::from_f32(0.1)]),
            Tensor::from_slice([0], &[0f32; 0]),
        ];
        for tensor in tensors {
            let named = NamedTensor::new("x", tensor.expect("fits"));
            let wire = WireTensor {
                name: named.name.clone(),
                shape: named.tensor.shape().to_vec(),
                datatype: describe(&named)["datatype"].as_str().expect("known").to_owned(),
                data: to_values(&named.tensor).expect("numbers"),
            };
            let text = serde_json::to_string(&wire).expect("plain data");
            let back: WireTensor = serde_json::from_str(&text).expect("as written");
            assert_eq!(back.tensor().expect("as written"), named, "{text}");
        }
    }

    #[test]
    fn what_is_no_number_has_a_name_and_what_is_odd_is_refused() {
        let wire = |datatype: &str, shape: Vec<usize>, data: Value| {
            let data = data.as_array().expect("an array").clone();
            WireTensor { name: "x".to_owned(), shape, datatype: datatype.to_owned(), data }
        };
        let floats = wire("FP32", vec![4], json!([1, "NaN", "Infinity", "-Infinity"]));
        let floats = floats.tensor().expect("as written").tensor;
        let floats = floats.as_slice::<f32>().expect("floats");
        assert!(floats[1].is_nan(), "{floats:?}");
        assert_eq!((floats[0], &floats[2..]), (1.0, &[f32::INFINITY, f32::NEG_INFINITY][..]));
        let texts = wire("BYTES", vec![2], json!(["a", "ü"])).tensor().expect("as written").tensor;
        assert_eq!(texts.strings().expect("texts"), ["a", "ü"]);
        for odd in [
            wire("FP32", vec![2], json!([1])),
            wire("FP32", vec![1], json!([null])),
            wire("FP32", vec![1], json!(["nan"])),
            wire("UINT8", vec![1], json!([256])),
            wire("BYTES", vec![1], json!([1])),
            wire("STRING", vec![1], json!(["x"])),
        ] {
            assert_eq!(odd.tensor().expect_err("damaged").code, "bad_answer", "{odd:?}");
        }
    }

    #[test]
    fn open_dimensions_stay_open() {
        let wire =
            WireSpec { name: "x".to_owned(), datatype: "FP32".to_owned(), shape: vec![-1, 3] };
        let dims = wire.spec().expect("a known datatype").ty.shape.expect("a known rank").0;
        assert_eq!(dims, [Dim::Unknown, Dim::Known(3)]);
    }
}
