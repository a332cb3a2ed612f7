//! An inference request as bytes: JSON, optionally followed by raw little-endian tensors (extension
//! `binary_tensor_data`), or a single raw tensor.
#![deny(clippy::as_conversions)]

use super::blobs::{Data, Inputs};
use super::parameters::{Parameters, flag, number};
use super::{datatype, json_data, signature};
use crate::bodies::Room;
use crate::catalog::ModelEntry;
use crate::extract::{beyond_body, parse};
use crate::fault::Fault;
use crate::sequences::{Asked, Line, Ticket};
use crate::shared_memory::{Shared, Slot, Taken};
use axum::body::Bytes;
use lgp_sdk::cluster::Priority;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, NamedTensor, Shape, Tensor};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;

/// No model comes near this many dimensions; a request that does is an attack or a mistake.
const RANK_MAX: usize = 16;

/// The fewest bytes that a string takes in a request: two quotation marks and a comma. Binary data takes four.
const TEXT_BYTES_MIN: usize = 3;

/// A request that was parsed and fits the model's inputs.
#[derive(Debug)]
pub(crate) struct InferRequest {
    pub(crate) id: Option<String>,
    pub(crate) priority: Priority,
    pub(crate) timeout: Option<Duration>,
    pub(crate) inputs: Inputs,
    /// The outputs asked for, in order; empty means all of them.
    pub(crate) outputs: Vec<OutputChoice>,
    /// The form of outputs for which the request chooses none.
    pub(crate) form: Form,
    /// Space that inputs in shared memory hold in the room for bodies, kept as long as these inputs.
    pub(crate) room: Room,
    /// The request is a step of an ensemble. A step cannot be an ensemble.
    pub(crate) is_step: bool,
    /// The sequence that the request belongs to.
    pub(crate) sequence: Option<Asked>,
    /// The request's turn among the inferences of its sequence.
    pub(crate) ticket: Option<Ticket>,
}

/// How an output is answered.
#[derive(Debug)]
pub(crate) enum Form {
    Json,
    /// As raw bytes.
    Binary,
    /// In shared memory.
    Region(Slot),
}

impl Form {
    fn of(binary: bool) -> Self {
        if binary { Self::Binary } else { Self::Json }
    }
}

/// One requested output.
#[derive(Debug)]
pub(crate) struct OutputChoice {
    pub(crate) name: String,
    pub(crate) form: Form,
    /// If set, answers this many of the highest-scored classes instead of the elements.
    pub(crate) classes: Option<usize>,
}

#[derive(Deserialize)]
struct Body<'a> {
    id: Option<String>,
    parameters: Option<Parameters>,
    #[serde(borrow)]
    inputs: Vec<Input<'a>>,
    outputs: Option<Vec<Output>>,
}

/// Like `Body`, but `inputs` may be absent, because all of them may come another way.
#[derive(Deserialize)]
struct Partial<'a> {
    id: Option<String>,
    parameters: Option<Parameters>,
    #[serde(borrow)]
    inputs: Option<Vec<Input<'a>>>,
    outputs: Option<Vec<Output>>,
}

/// One input of a request or of a task of the cluster API.
#[derive(Deserialize)]
pub(crate) struct Input<'a> {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) datatype: String,
    pub(crate) parameters: Option<Parameters>,
    #[serde(borrow)]
    pub(crate) data: Option<&'a RawValue>,
}

/// One output that a request asks for.
#[derive(Deserialize)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) parameters: Option<Parameters>,
}

/// Parses a request for a model with these inputs and outputs.
///
/// `json_bytes` is the value of [`HEADER_LENGTH`](crate::extract::HEADER_LENGTH), if the request has that header.
pub(crate) fn decode(
    (json_bytes, body): (Option<usize>, &[u8]),
    shared: Option<&Shared>,
    inputs: &[ValueSpec],
    outputs: &[ValueSpec],
) -> Result<InferRequest, Fault> {
    let request = match Raw::split(json_bytes, body)? {
        (&[], Raw { rest: Some(raw), .. }) => raw_request(raw, inputs)?,
        (json, raw) => from_body(parse(json)?, raw.with(shared, inputs), outputs)?,
    };
    signature::check_all(inputs, &request.inputs)?;
    Ok(request)
}

/// Parses a request whose inputs come partly or all outside its JSON, which may be empty.
pub(super) fn decode_with(
    brought: Vec<Data>,
    json: &[u8],
    shared: Option<&Shared>,
    entry: &ModelEntry,
) -> Result<InferRequest, Fault> {
    let json = if json.is_empty() { b"{}" } else { json };
    let Partial { id, parameters, inputs, outputs } = parse(json)?;
    let body = Body { id, parameters, inputs: inputs.unwrap_or_default(), outputs };
    let (_, raw) = Raw::split(None, json)?;
    let mut request = from_body(body, raw.with(shared, entry.inputs()), entry.outputs())?;
    brought.into_iter().for_each(|data| request.inputs.push(data));
    signature::check_all(entry.inputs(), &request.inputs)?;
    Ok(request)
}

fn from_body(
    body: Body<'_>,
    mut raw: Raw<'_>,
    outputs: &[ValueSpec],
) -> Result<InferRequest, Fault> {
    let mut inputs = Inputs::default();
    for input in &body.inputs {
        inputs.push(input.data(&mut raw)?);
    }
    raw.finish()?;
    let parameters = body.parameters.unwrap_or_default();
    let asked = body.outputs.unwrap_or_default();
    let given = Given { id: body.id, parameters, inputs, asked, room: raw.taken.room };
    InferRequest::new(given, raw.shared, outputs)
}

/// The contents of a request, independent of its protocol.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) id: Option<String>,
    pub(crate) parameters: Parameters,
    pub(crate) inputs: Inputs,
    pub(crate) asked: Vec<Output>,
    pub(crate) room: Room,
}

impl InferRequest {
    /// Validates a request for a model with these outputs.
    pub(crate) fn new(
        given: Given,
        shared: Option<&Shared>,
        outputs: &[ValueSpec],
    ) -> Result<Self, Fault> {
        let Given { id, parameters, inputs, asked, room } = given;
        let parameters = &parameters;
        let binary_output = flag(parameters, "binary_data_output")?.unwrap_or(false);
        let mut choices: Vec<OutputChoice> = Vec::new();
        for output in &asked {
            // An output that is asked for twice would double the response.
            if choices.iter().any(|choice| choice.name == output.name) {
                let what = format!("output '{}' is asked for twice", output.name);
                return Err(Fault::bad_input(what));
            }
            choices.push(output.choice(binary_output, shared, outputs)?);
        }
        Ok(Self {
            id,
            priority: priority(number(parameters, "priority")?.unwrap_or(0)),
            timeout: number(parameters, "timeout")?.filter(|&us| us > 0).map(Duration::from_micros),
            inputs,
            outputs: choices,
            form: Form::of(binary_output),
            room,
            is_step: false,
            sequence: Asked::of(parameters)?,
            ticket: None,
        })
    }

    /// The request with its ticket in the line of its sequence, if it belongs to one.
    pub(crate) fn lined_up(mut self, line: Line) -> Self {
        self.ticket = self.sequence.clone().map(|asked| line.ticket(asked));
        self
    }

    /// Checks that the request also fits a model other than the one it was parsed for.
    pub(crate) fn check_fits(&self, entry: &ModelEntry) -> Result<(), Fault> {
        signature::check_all(entry.inputs(), &self.inputs)?;
        self.outputs.iter().try_for_each(|output| check_output(&output.name, entry.outputs()))
    }
}

/// A body that is a single raw tensor. The model must have one input, with at most one open dimension. For the
/// datatype BYTES the whole body is one element.
fn raw_request(raw: &[u8], inputs: &[ValueSpec]) -> Result<InferRequest, Fault> {
    let [input] = inputs else {
        return Err(Fault::bad_input(format!(
            "a raw body carries one input, but the model has {}: send JSON with binary_data_size",
            inputs.len()
        )));
    };
    let name = &input.name;
    let data = match input.ty.dtype {
        DType::Str => {
            Data::of(name, &signature::shape_of_one(input)?, vec![Bytes::copy_from_slice(raw)])?
        }
        dtype => {
            let shape = signature::shape_of_raw(input, raw.len())?;
            let tensor = Tensor::from_bytes(dtype, shape, raw);
            let tensor = tensor.map_err(|e| Fault::bad_input(format!("input '{name}': {e}")))?;
            Data::Tensor(NamedTensor::new(name.clone(), tensor))
        }
    };
    let mut inputs = Inputs::default();
    inputs.push(data);
    Ok(InferRequest {
        id: None,
        priority: Priority::Normal,
        timeout: None,
        inputs,
        outputs: Vec::new(),
        form: Form::Binary,
        room: Room::default(),
        is_step: false,
        sequence: None,
        ticket: None,
    })
}

/// Tensors outside the JSON: raw ones that follow it, taken in order, and those in shared memory.
pub(crate) struct Raw<'a> {
    /// The raw bytes that are left; `None` if the request did not say where its JSON ends.
    rest: Option<&'a [u8]>,
    /// The caller's shared memory regions; `None` where regions are not allowed.
    shared: Option<&'a Shared>,
    /// The caller whose room for bodies the strings are charged to; `None` charges nobody.
    counted: Option<&'a Shared>,
    /// The model's inputs, if known.
    expected: Option<&'a [ValueSpec]>,
    /// Room that inputs in regions, and strings, have taken.
    taken: Taken,
}

impl<'a> Raw<'a> {
    /// Splits a body into its JSON and the bytes that follow.
    pub(crate) fn split(
        json_bytes: Option<usize>,
        body: &'a [u8],
    ) -> Result<(&'a [u8], Self), Fault> {
        let taken = Taken::default();
        let raw = |rest| Self { rest, shared: None, counted: None, expected: None, taken };
        let Some(bytes) = json_bytes else { return Ok((body, raw(None))) };
        let split = body.split_at_checked(bytes);
        let (json, rest) = split.ok_or_else(|| beyond_body(bytes, body.len()))?;
        Ok((json, raw(Some(rest))))
    }

    /// Adds the model's inputs and the caller's regions.
    fn with(self, shared: Option<&'a Shared>, expected: &'a [ValueSpec]) -> Self {
        Self { shared, counted: shared, expected: Some(expected), ..self }
    }

    /// Charges strings to `counted`, without allowing regions.
    pub(crate) fn counted(self, counted: Option<&'a Shared>) -> Self {
        Self { counted, ..self }
    }

    /// The room that was taken, to be kept as long as the inputs.
    pub(crate) fn into_room(self) -> Room {
        self.taken.room
    }

    /// Before strings are parsed: checks that the model takes strings here, and takes room for as many as `bytes` can
    /// hold.
    fn check_strings(&mut self, input: &str, shape: &[usize], bytes: usize) -> Result<(), Fault> {
        if let Some(expected) = self.expected {
            signature::check_declared(expected, (input, DType::Str, shape))?;
        }
        let Some(shared) = self.counted else { return Ok(()) };
        let count = Shape::from(shape).elements().unwrap_or(usize::MAX);
        self.taken.strings(shared, count.min(bytes / TEXT_BYTES_MIN))
    }

    fn take(&mut self, input: &str, size: u64) -> Result<&[u8], Fault> {
        let Some(rest) = self.rest else {
            return Err(Fault::bad_input(format!(
                "input '{input}' has binary_data_size, but the request lacks the header \
                 Inference-Header-Content-Length"
            )));
        };
        let (data, rest) =
            usize::try_from(size).ok().and_then(|n| rest.split_at_checked(n)).ok_or_else(|| {
                Fault::bad_input(format!(
                    "input '{input}' has binary_data_size {size}, but {} bytes are left",
                    rest.len()
                ))
            })?;
        self.rest = Some(rest);
        Ok(data)
    }

    /// Refuses bytes that are left over.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        match self.rest {
            Some(rest) if !rest.is_empty() => Err(Fault::bad_input(format!(
                "{} bytes follow the last binary input, expected none",
                rest.len()
            ))),
            _ => Ok(()),
        }
    }
}

impl Input<'_> {
    /// The input as a tensor; an input in another form is an error.
    pub(crate) fn tensor(&self, raw: &mut Raw<'_>) -> Result<NamedTensor, Fault> {
        self.data(raw)?.tensor()
    }

    /// The input's data, from its JSON, the raw bytes or a region.
    fn data(&self, raw: &mut Raw<'_>) -> Result<Data, Fault> {
        let name = &self.name;
        let dtype = datatype::parse(name, &self.datatype)?;
        check_rank(name, self.shape.len())?;
        let parameters = self.parameters.clone().unwrap_or_default();
        let slot = slot(name, &parameters, raw.shared)?;
        let size = number(&parameters, "binary_data_size")?;
        if dtype == DType::Str {
            let json = self.data.map_or(0, |data| data.get().len());
            let region = slot.as_ref().map_or(0, |(_, slot)| slot.bytes());
            let binary = usize::try_from(size.unwrap_or(0)).unwrap_or(usize::MAX);
            raw.check_strings(name, &self.shape, json.max(region).max(binary))?;
        }
        match (size, self.data, slot) {
            (None, Some(data), None) => {
                let tensor = json_data::decode(name, dtype, &self.shape, data)?;
                Ok(Data::Tensor(NamedTensor::new(name.clone(), tensor)))
            }
            (Some(size), None, None) => {
                Data::binary(name, dtype, &self.shape, raw.take(name, size)?)
            }
            (None, None, Some((shared, slot))) => {
                Data::owned(name, dtype, &self.shape, shared.read(&slot, &mut raw.taken)?)
            }
            (None, None, None) => Err(Fault::bad_input(format!(
                "input '{name}' has neither data nor binary_data_size"
            ))),
            _ => Err(Fault::bad_input(format!(
                "input '{name}' has more than one of data, binary_data_size and \
                 shared_memory_region, expected one of them"
            ))),
        }
    }
}

/// Refuses more dimensions than any model has.
pub(crate) fn check_rank(name: &str, rank: usize) -> Result<(), Fault> {
    if rank > RANK_MAX {
        return Err(Fault::bad_input(format!(
            "input '{name}' has {rank} dimensions, expected at most {RANK_MAX}"
        )));
    }
    Ok(())
}

impl Output {
    fn choice(
        &self,
        default: bool,
        shared: Option<&Shared>,
        outputs: &[ValueSpec],
    ) -> Result<OutputChoice, Fault> {
        check_output(&self.name, outputs)?;
        let parameters = self.parameters.clone().unwrap_or_default();
        let slot = slot(&self.name, &parameters, shared)?;
        let classes = number(&parameters, "classification")?.filter(|&count| count > 0);
        let classes = classes.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        if classes.is_some() && slot.is_some() {
            return Err(Fault::bad_input(format!(
                "output '{}' has both classification and shared_memory_region, expected one of them",
                self.name
            )));
        }
        let binary = flag(&parameters, "binary_data")?.unwrap_or(default);
        let form = slot.map_or(Form::of(binary), |(_, slot)| Form::Region(slot));
        Ok(OutputChoice { name: self.name.clone(), form, classes })
    }
}

fn check_output(name: &str, outputs: &[ValueSpec]) -> Result<(), Fault> {
    if outputs.iter().any(|output| output.name == name) {
        return Ok(());
    }
    let known = signature::names(outputs);
    Err(Fault::bad_input(format!("output '{name}' is unknown, the model has {known}")))
}

/// The tensor's slot in shared memory, if it has one.
pub(crate) fn slot<'a>(
    name: &str,
    parameters: &Parameters,
    shared: Option<&'a Shared>,
) -> Result<Option<(&'a Shared, Slot)>, Fault> {
    match shared {
        Some(shared) => Ok(shared.slot(name, parameters)?.map(|slot| (shared, slot))),
        None if parameters.contains_key("shared_memory_region") => {
            Err(Fault::unsupported(format!(
                "tensor '{name}': shared_memory_region is offered for inference, not for tasks"
            )))
        }
        None => {
            for key in ["shared_memory_offset", "shared_memory_byte_size"] {
                number(parameters, key)?;
            }
            Ok(None)
        }
    }
}

/// Priorities of the protocol count from 1, the highest; 0 is the default.
fn priority(level: u64) -> Priority {
    match level {
        1 => Priority::Critical,
        2 => Priority::High,
        0 | 3 => Priority::Normal,
        4 => Priority::Low,
        _ => Priority::Background,
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
