//! The parsers of requests as functions of bytes, for fuzzers.

use crate::grpc::proto::ModelInferRequest;
use crate::oip::{self, Flat, InferRequest};
use crate::{cluster, frigate, grpc, immich};
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Dim, SymShape, TensorType};
use prost::Message;

/// Parses bytes as an inference request and as a task; returns whether either is valid. Bytes that begin with `{`
/// are JSON; with `--`, a form; with `I`, one of Immich's forms; with 0xff, a whole session of Frigate's detector;
/// with `Z`, an image of that detector: the length of its description as little-endian u16, the description and the
/// tensor. Other bytes are the length of the JSON as little-endian u16, the JSON and raw tensors.
#[must_use]
pub fn http(data: &[u8]) -> bool {
    let (json_bytes, body) = match data {
        [b'{', ..] => (None, data),
        [b'-', b'-', ..] => return oip::can_take_form(data),
        [b'I', form @ ..] => return immich::can_read(form),
        [0xff, ..] => return frigate::can_talk(data),
        [b'Z', low, high, parts @ ..] => {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let parts = parts.split_at_checked(length);
            return parts.is_some_and(|parts| frigate::can_read(parts, &image()));
        }
        [low, high, body @ ..] => (Some(usize::from(u16::from_le_bytes([*low, *high]))), body),
        _ => return false,
    };
    let is_task = cluster::can_read(json_bytes, body);
    let request = oip::decode((json_bytes, body), None, &inputs(), &outputs());
    is_task || request.is_ok_and(|request| written(&request))
}

/// Follows the bytes as messages of a gRPC call, and parses them as an inference request.
#[must_use]
pub fn grpc(data: &[u8]) -> bool {
    grpc::follow(data);
    let Ok(message) = ModelInferRequest::decode(data) else { return false };
    let request = grpc::read(message, None, &inputs(), &outputs());
    request.is_ok_and(|request| written(&request))
}

/// Writes the parsed inputs, as an answer would be.
fn written(request: &InferRequest) -> bool {
    let json = |tensor| serde_json::to_vec(&Flat(tensor)).is_ok();
    request.inputs.tensors.iter().all(|input| json(&input.tensor))
}

/// Inputs of each kind with its own parser.
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

/// The input of a detector's network.
fn image() -> Vec<ValueSpec> {
    vec![ValueSpec::tensor("image", TensorType { dtype: DType::F32, shape: None })]
}

fn outputs() -> Vec<ValueSpec> {
    vec![ValueSpec::tensor("y", TensorType { dtype: DType::F32, shape: None })]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A detector's session: a greeting and an image of four bytes.
    fn detector(header: &[u8]) -> Vec<u8> {
        let mut greeting = [0; 64];
        greeting[0] = 0xff;
        greeting[9..12].copy_from_slice(&[0x7f, 3, 1]);
        greeting[12..16].copy_from_slice(b"NULL");
        let ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ";
        let length = u8::try_from(header.len()).expect("short");
        let image = [&[1, 0, 1, length][..], header, &[0, 4, 0, 0, 0, 0]].concat();
        [&greeting[..], ready, &image].concat()
    }

    #[test]
    fn seeds_are_sound() {
        let form = b"--B\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n--B--\r\n";
        let header = br#"{"shape":[1,1,1,1],"dtype":"float32","model_type":"ssd"}"#;
        let length = u16::try_from(header.len()).expect("short").to_le_bytes();
        let image = [b"Z", &length[..], header, &[0; 4]].concat();
        let entries = r#"{"clip":{"visual":{"modelName":"m"}}}"#;
        let immich = format!(
            "I--B\r\nContent-Disposition: form-data; name=\"entries\"\r\n\r\n{entries}\r\n--B\r\n\
             Content-Disposition: form-data; name=\"text\"\r\n\r\ndog\r\n--B--\r\n"
        );
        for sound in [&form[..], &image, immich.as_bytes(), &detector(header)] {
            assert!(http(sound), "{}", String::from_utf8_lossy(sound));
            assert!(!http(&sound[..sound.len() - 3]));
        }
    }
}
