//! The readers of requests as functions of bytes, for programs that make bytes up.

use crate::grpc::proto::ModelInferRequest;
use crate::oip::{self, Flat, InferRequest};
use crate::{cluster, grpc};
use lgp_sdk::{DType, Dim, SymShape, TensorType, ValueSpec};
use prost::Message;

/// Reads the body of an inference request, and the same as one of a task. A body that begins with `{` is
/// JSON; another one is the length of its JSON, a little-endian u16, then that JSON and raw tensors.
/// Whether it can be used as either.
#[must_use]
pub fn http(data: &[u8]) -> bool {
    let (json_bytes, body) = match data {
        [b'{', ..] => (None, data),
        [low, high, body @ ..] => (Some(usize::from(u16::from_le_bytes([*low, *high]))), body),
        _ => return false,
    };
    let is_task = cluster::can_read(json_bytes, body);
    let request = oip::decode((json_bytes, body), None, &inputs(), &outputs());
    is_task || request.is_ok_and(|request| written(&request))
}

/// Reads the message of an inference request.
#[must_use]
pub fn grpc(data: &[u8]) -> bool {
    let Ok(message) = ModelInferRequest::decode(data) else { return false };
    let request = grpc::read(message, None, &inputs(), &outputs());
    request.is_ok_and(|request| written(&request))
}

/// What was read is written, as an answer would be.
fn written(request: &InferRequest) -> bool {
    let json = |tensor| serde_json::to_vec(&Flat(tensor)).is_ok();
    request.inputs.tensors.iter().all(|input| json(&input.tensor))
}

/// Inputs of each kind that is read in its own way.
fn inputs() -> Vec<ValueSpec> {
    let n = || Dim::Symbol("n".into());
    [
        ("f", DType::F32, Some(vec![n(), Dim::Known(2)])),
        ("h", DType::F16, Some(vec![n()])),
        ("i", DType::I64, None),
        ("b", DType::Bool, Some(vec![n()])),
        ("s", DType::Str, Some(vec![n()])),
    ]
    .map(|(name, dtype, shape)| {
        ValueSpec::tensor(name, TensorType { dtype, shape: shape.map(SymShape) })
    })
    .into()
}

fn outputs() -> Vec<ValueSpec> {
    vec![ValueSpec::tensor("y", TensorType { dtype: DType::F32, shape: None })]
}
