//! An inference answer as bytes: JSON, followed by the raw little-endian outputs that were
//! requested as binary data.

use super::request::{Form, InferRequest, OutputChoice};
use super::{classes, datatype, json_data};
use crate::access::Caller;
use crate::answers;
use crate::catalog::ModelEntry;
use crate::extract::HEADER_LENGTH;
use crate::fault::Fault;
use crate::place::Ran;
use crate::state::ServerState;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use lgp_sdk::tensor::NamedTensor;
use serde::Serialize;
use std::borrow::Cow;
use std::io;

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
    parameters: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<json_data::Flat<'a>>,
}

#[derive(Serialize)]
struct Size {
    binary_data_size: usize,
}

/// An answer, independent of the protocol.
pub(crate) struct Answer {
    pub(crate) entry: ModelEntry,
    pub(crate) id: String,
    pub(crate) choice: Choice,
    pub(crate) outputs: Vec<NamedTensor>,
    /// The model's run; `None` for a cached answer or an ensemble's.
    pub(crate) ran: Option<Ran>,
}

/// An encoded answer.
#[derive(Debug)]
pub(crate) struct Encoded {
    body: Vec<u8>,
    /// Length of the JSON, if raw tensors follow it.
    json_length: Option<usize>,
    ran: Option<Ran>,
}

/// Encodes the chosen outputs in the requested order, with at most `json_bytes_max` bytes of JSON.
pub(crate) fn encode(answer: Answer, json_bytes_max: usize) -> Result<Encoded, Fault> {
    let Answer { entry, id, choice, outputs, .. } = &answer;
    let chosen = choice.select(entry, outputs)?;
    let json = Json {
        model_name: entry.name(),
        model_version: entry.version().to_string(),
        id,
        outputs: chosen.iter().map(|(output, form)| describe(output, form)).collect(),
    };
    let mut body = Bounded { bytes: Vec::with_capacity(128), most: json_bytes_max };
    serde_json::to_writer(&mut body, &json).map_err(|error| match error.io_error_kind() {
        Some(_) => too_long(json_bytes_max),
        None => Fault::internal(error),
    })?;
    let mut body = body.bytes;
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
    let json_length = any_binary.then_some(json_length);
    Ok(Encoded { body, json_length, ran: answer.ran })
}

/// A buffer that refuses bytes beyond its limit.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        self.write_all(more).map(|()| more.len())
    }

    fn write_all(&mut self, more: &[u8]) -> io::Result<()> {
        if self.most.saturating_sub(self.bytes.len()) < more.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn too_long(most: usize) -> Fault {
    let message = format!(
        "the answer's JSON has more than {most} bytes; ask for binary data with the parameter \
         binary_data_output"
    );
    Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

/// Outputs in shared memory have no parameters: Triton's client reads any as binary data.
fn describe<'a>(output: &'a NamedTensor, form: &Form) -> Output<'a> {
    let size = || Size { binary_data_size: output.tensor.packed_len() };
    Output {
        name: &output.name,
        datatype: datatype::name(output.tensor.dtype()),
        shape: output.tensor.shape().dims(),
        parameters: matches!(form, Form::Binary).then(size),
        data: matches!(form, Form::Json).then_some(json_data::Flat(&output.tensor)),
    }
}

/// Which outputs to answer and how; kept while the request's inputs go to the workers.
#[derive(Debug)]
pub(crate) struct Choice {
    outputs: Vec<OutputChoice>,
    /// The form of all outputs, if the request names none.
    form: Form,
}

impl Choice {
    /// Takes the choice out of a request.
    pub(crate) fn of(request: &mut InferRequest) -> Self {
        let form = std::mem::replace(&mut request.form, Form::Json);
        Self { outputs: std::mem::take(&mut request.outputs), form }
    }

    /// The chosen outputs, in the requested order.
    pub(crate) fn select<'a>(
        &'a self,
        entry: &ModelEntry,
        all: &'a [NamedTensor],
    ) -> Result<Vec<(Cow<'a, NamedTensor>, &'a Form)>, Fault> {
        if self.outputs.is_empty() {
            return Ok(all.iter().map(|output| (Cow::Borrowed(output), &self.form)).collect());
        }
        let find = |choice: &'a OutputChoice| {
            let output = all.iter().find(|output| output.name == choice.name);
            let output = output.ok_or_else(|| {
                Fault::internal(format!("the model did not answer its output '{}'", choice.name))
            })?;
            let output = match choice.classes {
                None => Cow::Borrowed(output),
                Some(count) => Cow::Owned(classes::classify(output, count, entry.labels())?),
            };
            Ok((output, &choice.form))
        };
        self.outputs.iter().map(find).collect()
    }
}

impl Encoded {
    /// Makes the response, after taking room that is held until the client has taken it.
    ///
    /// # Errors
    /// 503 if there is no room.
    pub(crate) async fn into_response(
        self,
        state: &ServerState,
        caller: &Caller,
    ) -> Result<Response, Fault> {
        let room = state.answers().room_for(caller.id(), self.body.len()).await?;
        let mut response = Response::new(Body::from(answers::held(self.body, vec![room])));
        let headers = response.headers_mut();
        let content_type = match self.json_length {
            Some(length) => {
                headers.insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(length));
                "application/octet-stream"
            }
            None => "application/json",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(ran) = &self.ran {
            ran.add_to(headers);
        }
        Ok(response)
    }
}
