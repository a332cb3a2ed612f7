//! Runs a detector's network on an image, and finds the boxes in its outputs.
#![deny(clippy::as_conversions)]

use super::boxes::{self, Kind, Rows};
use crate::call::Call;
use crate::catalog::{ModelEntry, Named};
use crate::fault::Fault;
use crate::oip::{self, Answer, Given, InferRequest};
use crate::state::ServerState;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, NamedTensor, Tensor};
use serde::Deserialize;
use std::time::Duration;

/// The input of D-FINE networks for the image's size.
const SIZES: &str = "orig_target_sizes";

/// The description of a request: it asks for a model, sends one, or else comes with a tensor.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default)]
    pub(super) model_request: bool,
    #[serde(default)]
    pub(super) model_data: bool,
    #[serde(default)]
    pub(super) model_name: String,
    #[serde(default)]
    shape: Vec<usize>,
    #[serde(default)]
    dtype: String,
    #[serde(default)]
    model_type: String,
}

/// Runs a model on an image.
///
/// # Errors
/// If the tensor does not fit the model, and the errors of inference; 503 after `limit`.
pub(super) async fn detect(
    state: &ServerState,
    (call, entry): (&Call, &ModelEntry),
    (header, bytes): (Header, Vec<u8>),
    limit: Duration,
) -> Result<Rows, Fault> {
    let kind = Kind::parse(&header.model_type)?;
    let (size, count) = (size(&header.shape)?, bytes.len());
    let decode = move |entry: &ModelEntry| {
        let inputs = inputs(entry.inputs(), &header, &bytes, (kind, size))?;
        oip::check_inputs(entry.inputs(), &inputs)?;
        let given = Given { inputs: inputs.into(), ..Given::default() };
        let mut request = InferRequest::new(given, None, entry.outputs())?;
        request.timeout = Some(limit);
        Ok(request)
    };
    let encode = move |answer: Answer| {
        let named = |spec: &ValueSpec| {
            let found = answer.outputs.iter().find(|output| output.name == spec.name);
            found
                .map(|output| &output.tensor)
                .ok_or_else(|| Fault::internal("an output is missing"))
        };
        let outputs: Vec<&Tensor> =
            answer.entry.outputs().iter().map(named).collect::<Result<_, _>>()?;
        boxes::rows(kind, &outputs, size)
    };
    let named = Named::from(entry.clone());
    let serving = oip::serve(state, (call, &named), (count, decode), encode);
    tokio::time::timeout(limit, serving).await.unwrap_or_else(|_| {
        let ms = limit.as_millis();
        Err(Fault::unavailable("deadline_exceeded", format!("no result within {ms} ms")).hint(
            "raise request_timeout_ms of Frigate's detector, and frigate.timeout_ms below it",
        ))
    })
}

/// Width and height of an image whose one or three channels come first or last.
fn size(shape: &[usize]) -> Result<(u16, u16), Fault> {
    let (width, height) = match shape {
        [1, 1 | 3, height, width] | [1, height, width, _] => (width, height),
        _ => {
            let what =
                format!("the tensor has the shape {shape:?}, expected [1, 3, height, width]");
            return Err(Fault::bad_input(what + " or [1, height, width, 3]"));
        }
    };
    match (u16::try_from(*width), u16::try_from(*height)) {
        (Ok(width @ 1..), Ok(height @ 1..)) => Ok((width, height)),
        _ => Err(Fault::bad_input(format!(
            "the image has {width} × {height} pixels, expected 1 to 65535"
        ))),
    }
}

/// Whether a description and its tensor are valid inputs.
#[cfg(feature = "planted")]
pub(crate) fn can_read((header, bytes): (&[u8], &[u8]), specs: &[ValueSpec]) -> bool {
    let Ok(header) = serde_json::from_slice::<Header>(header) else { return false };
    let about = Kind::parse(&header.model_type).and_then(|kind| Ok((kind, size(&header.shape)?)));
    about.is_ok_and(|about| inputs(specs, &header, bytes, about).is_ok())
}

fn inputs(
    specs: &[ValueSpec],
    header: &Header,
    bytes: &[u8],
    (kind, (width, height)): (Kind, (u16, u16)),
) -> Result<Vec<NamedTensor>, Fault> {
    let images = |spec: &&ValueSpec| kind != Kind::DFine || spec.name != SIZES;
    let Some(spec) = specs.iter().find(images) else {
        return Err(Fault::bad_input("the model has no input for an image"));
    };
    let dtype = match header.dtype.as_str() {
        "uint8" => DType::U8,
        "float32" => DType::F32,
        other => {
            let what = format!("dtype is {other:?}, expected \"uint8\" or \"float32\"");
            return Err(Fault::bad_input(what));
        }
    };
    let bad = |error| Fault::bad_input(format!("the tensor does not fit its shape: {error}"));
    let mut image = Tensor::from_packed(dtype, header.shape.clone(), bytes).map_err(bad)?;
    if kind == Kind::DFine && dtype == DType::U8 {
        let values: Vec<f32> = bytes.iter().copied().map(f32::from).collect();
        image = Tensor::from_slice(header.shape.clone(), &values).map_err(bad)?;
    }
    if image.dtype() != spec.ty.dtype {
        let (given, wanted) =
            (oip::datatype_name(image.dtype()), oip::datatype_name(spec.ty.dtype));
        let what = format!("the tensor is {given}, and the model wants {wanted}");
        return Err(
            Fault::bad_input(what).hint("set input_dtype of Frigate's model: int, or float")
        );
    }
    let mut inputs = vec![NamedTensor::new(&spec.name, image)];
    if specs.iter().any(|spec| spec.name == SIZES) {
        let sizes = [i64::from(height), i64::from(width)];
        let sizes = Tensor::from_slice(vec![1, 2], &sizes).map_err(Fault::internal)?;
        inputs.push(NamedTensor::new(SIZES, sizes));
    }
    Ok(inputs)
}
