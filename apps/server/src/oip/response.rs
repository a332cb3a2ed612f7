//! An inference answer as bytes: JSON, followed by the raw little-endian outputs that were asked
//! for as binary data.

use super::infer::Answer;
use super::request::{Form, HEADER_LENGTH, InferRequest, OutputChoice};
use super::{datatype, json_data};
use crate::fault::Fault;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use lgp_sdk::NamedTensor;
use serde::Serialize;

#[derive(Serialize)]
struct Json<'a> {
    model_name: &'a str,
    model_version: String,
    id: &'a str,
    outputs: Vec<Output<'a>>,
}

#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Elsewhere<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<json_data::Flat<'a>>,
}

/// Where an output's data is, if not in the JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Elsewhere<'a> {
    Binary {
        binary_data_size: usize,
    },
    Region {
        shared_memory_region: &'a str,
        shared_memory_offset: u64,
        shared_memory_byte_size: usize,
    },
}

/// An encoded answer.
#[derive(Debug)]
pub(crate) struct Encoded {
    body: Vec<u8>,
    /// Length of the JSON part, where raw tensors follow it.
    json_length: Option<usize>,
}

/// Writes the outputs that were chosen, in the order in which they were.
pub(crate) fn encode(answer: Answer) -> Result<Encoded, Fault> {
    let Answer { entry, id, choice, outputs } = &answer;
    let chosen = choice.select(outputs)?;
    let json = Json {
        model_name: entry.name(),
        model_version: entry.version().to_string(),
        id,
        outputs: chosen.iter().map(|&(output, form)| describe(output, form)).collect(),
    };
    let mut body = serde_json::to_vec(&json).map_err(Fault::internal)?;
    let json_length = body.len();
    let mut any_binary = false;
    for (output, form) in chosen {
        match form {
            Form::Json => {}
            Form::Binary => {
                body.extend_from_slice(&output.tensor.packed());
                any_binary = true;
            }
            Form::Region(slot) => slot.write(&output.name, &output.tensor.packed())?,
        }
    }
    Ok(Encoded { body, json_length: any_binary.then_some(json_length) })
}

fn describe<'a>(output: &'a NamedTensor, form: &'a Form) -> Output<'a> {
    let bytes = output.tensor.packed_len();
    let parameters = match form {
        Form::Json => None,
        Form::Binary => Some(Elsewhere::Binary { binary_data_size: bytes }),
        Form::Region(slot) => Some(Elsewhere::Region {
            shared_memory_region: &slot.name,
            shared_memory_offset: slot.offset,
            shared_memory_byte_size: bytes,
        }),
    };
    let data = parameters.is_none().then_some(json_data::Flat(&output.tensor));
    Output {
        name: &output.name,
        datatype: datatype::name(output.tensor.dtype()),
        shape: output.tensor.shape().dims(),
        parameters,
        data,
    }
}

/// Which outputs to answer, and how: what is left of a request once its inputs are on their way.
#[derive(Debug)]
pub(crate) struct Choice {
    outputs: Vec<OutputChoice>,
    /// The form of all outputs, where none was asked for by name.
    form: Form,
}

impl Choice {
    /// Takes the choice out of a request.
    pub(crate) fn of(request: &mut InferRequest) -> Self {
        let form = std::mem::replace(&mut request.form, Form::Json);
        Self { outputs: std::mem::take(&mut request.outputs), form }
    }

    pub(crate) fn select<'a>(
        &'a self,
        all: &'a [NamedTensor],
    ) -> Result<Vec<(&'a NamedTensor, &'a Form)>, Fault> {
        if self.outputs.is_empty() {
            return Ok(all.iter().map(|o| (o, &self.form)).collect());
        }
        let find = |choice: &'a OutputChoice| {
            let output = all.iter().find(|o| o.name == choice.name);
            output.map(|o| (o, &choice.form)).ok_or_else(|| {
                Fault::internal(format!("the model did not answer its output '{}'", choice.name))
            })
        };
        self.outputs.iter().map(find).collect()
    }
}

impl Encoded {
    /// The answer with its headers.
    pub(crate) fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        let headers = response.headers_mut();
        let content_type = match self.json_length {
            Some(length) => {
                headers.insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(length));
                "application/octet-stream"
            }
            None => "application/json",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}
