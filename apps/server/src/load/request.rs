//! The repeated request, in each form.

use super::{Load, LoadForm, Result};
use crate::inference::ModelInferRequest;
use crate::inference::model_infer_request::InferInputTensor;
use axum::body::Bytes;
use serde_json::json;

/// Name, dimensions and values of an input.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) dims: Vec<i64>,
    pub(crate) values: Vec<f32>,
}

impl Input {
    /// Parses `NAME:2x3`; the values are pseudo-random between -1 and 1, always the same.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (name, dims) = text.split_once(':').ok_or("--input is NAME:DIMxDIM")?;
        let dims = dims.split('x').map(str::parse).collect::<std::result::Result<Vec<i64>, _>>()?;
        let count = usize::try_from(dims.iter().product::<i64>())?;
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let values = (0..count).map(|_| next()).collect();
        Ok(Self { name: name.to_owned(), dims, values })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// An HTTP body, and the length of its JSON if tensors follow.
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    pub(crate) json_bytes: Option<usize>,
}

impl Body {
    /// The request. With shared memory, its tensors lie in the regions `in{lane}` and `out{lane}`.
    pub(crate) fn of(run: &Load, input: &Input, lane: usize) -> Result<Self> {
        let head = json!({"name": input.name, "shape": input.dims, "datatype": "FP32"});
        let with = |key: &str, value: serde_json::Value| {
            let mut tensor = head.clone();
            tensor[key] = value;
            tensor
        };
        let bytes = input.values.len() * 4;
        Ok(match run.form {
            LoadForm::Json => {
                let tensor = with("data", json!(input.values));
                let body = serde_json::to_vec(&json!({ "inputs": [tensor] }))?;
                Self { bytes: body.into(), json_bytes: None }
            }
            LoadForm::Binary => {
                let tensor = with("parameters", json!({ "binary_data_size": bytes }));
                let parameters = json!({ "binary_data_output": true });
                let request = json!({ "inputs": [tensor], "parameters": parameters });
                let mut body = serde_json::to_vec(&request)?;
                let json_bytes = body.len();
                body.extend(input.bytes());
                Self { bytes: body.into(), json_bytes: Some(json_bytes) }
            }
            LoadForm::Shared => {
                let region = |name: &str, size: usize| json!({"shared_memory_region": format!("{name}{lane}"), "shared_memory_byte_size": size});
                let tensor = with("parameters", region("in", bytes));
                let output =
                    json!({"name": run.output, "parameters": region("out", run.output_bytes)});
                let body = serde_json::to_vec(&json!({ "inputs": [tensor], "outputs": [output] }))?;
                Self { bytes: body.into(), json_bytes: None }
            }
        })
    }
}

/// The request as a gRPC message.
pub(crate) fn message(run: &Load, input: &Input) -> ModelInferRequest {
    let tensor = InferInputTensor {
        name: input.name.clone(),
        datatype: "FP32".to_owned(),
        shape: input.dims.clone(),
        ..InferInputTensor::default()
    };
    ModelInferRequest {
        model_name: run.model.clone(),
        inputs: vec![tensor],
        raw_input_contents: vec![input.bytes().into()],
        ..ModelInferRequest::default()
    }
}
