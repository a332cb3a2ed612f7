//! Reads files that hold one value each, as ONNX's test suite and other tools write them.

use super::proto::TensorProto;
use super::tensor;
use crate::error::{Error, Result};
use lgp_memory::{Datum, NamedTensor, ValueKind};
use prost::Message;

/// Reads the bytes of a file that holds one tensor (`TensorProto`), with its name, which may be
/// empty.
///
/// # Errors
/// [`Error::Malformed`] when the bytes are no such file, [`Error::Tensor`] when the parts of the
/// tensor do not fit together.
pub fn read_tensor(bytes: &[u8]) -> Result<NamedTensor> {
    let proto = TensorProto::decode(bytes)
        .map_err(|error| Error::Malformed { message: error.to_string() })?;
    let tensor = tensor::read(proto.name(), &proto, None)?;
    Ok(NamedTensor::new(proto.name(), tensor))
}

/// Reads the bytes of a file that holds one value of a kind: a tensor (`TensorProto`), a sequence
/// of tensors (`SequenceProto`) or an optional one of either (`OptionalProto`).
///
/// # Errors
/// As [`read_tensor`], and [`Error::Malformed`] for maps, which no file holds alone.
pub fn read_value(bytes: &[u8], kind: ValueKind) -> Result<Datum> {
    let malformed = |message: String| Error::Malformed { message };
    let failed = |e: prost::DecodeError| malformed(e.to_string());
    match kind {
        ValueKind::Tensor => Ok(read_tensor(bytes)?.tensor.into()),
        ValueKind::Sequence => Sequence::decode(bytes).map_err(failed)?.read(),
        ValueKind::Optional | ValueKind::OptionalSequence => {
            let optional = Optional::decode(bytes).map_err(failed)?;
            match (optional.tensor, optional.sequence) {
                (Some(proto), _) => Ok(tensor::read(proto.name(), &proto, None)?.into()),
                (None, Some(sequence)) => sequence.read(),
                (None, None) => Ok(Datum::Absent),
            }
        }
        other => Err(malformed(format!("{} is not read from a file", other.name()))),
    }
}

/// ONNX's `SequenceProto`, as far as it holds tensors (onnx-data.proto).
#[derive(Clone, PartialEq, prost::Message)]
struct Sequence {
    #[prost(message, repeated, tag = "3")]
    tensors: Vec<TensorProto>,
}

impl Sequence {
    fn read(&self) -> Result<Datum> {
        let items = self.tensors.iter();
        let items = items.map(|proto| Ok(tensor::read(proto.name(), proto, None)?.into()));
        Ok(Datum::Sequence(items.collect::<Result<_>>()?))
    }
}

/// ONNX's `OptionalProto`, as far as it holds tensors (onnx-data.proto).
#[derive(Clone, PartialEq, prost::Message)]
struct Optional {
    #[prost(message, optional, tag = "3")]
    tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "5")]
    sequence: Option<Sequence>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::tensor_proto::DataType;

    #[test]
    fn tensors_are_read_and_nonsense_is_not() {
        let proto = TensorProto {
            name: Some("x".into()),
            data_type: Some(DataType::Float.into()),
            dims: vec![2],
            float_data: vec![1., 2.],
            ..TensorProto::default()
        };
        let bytes = proto.encode_to_vec();
        let read = read_tensor(&bytes).unwrap();
        assert_eq!(
            (read.name.as_str(), read.tensor.as_slice::<f32>().unwrap()),
            ("x", &[1f32, 2.][..])
        );
        assert!(read_tensor(&bytes[..bytes.len() - 1]).is_err());
        assert!(read_tensor(&[]).is_err());
    }

    #[test]
    fn sequences_and_absent_values_are_read() {
        let one = TensorProto {
            data_type: Some(DataType::Int64.into()),
            int64_data: vec![7],
            ..TensorProto::default()
        };
        let sequence = Sequence { tensors: vec![one.clone(), one] };
        let seven = || Datum::Tensor(lgp_memory::Tensor::scalar(7i64).unwrap());
        let both = Datum::Sequence(vec![seven(), seven()]);
        let bytes = sequence.encode_to_vec();
        assert_eq!(read_value(&bytes, ValueKind::Sequence).unwrap(), both);
        let optional = Optional { tensor: None, sequence: Some(sequence) };
        let bytes = optional.encode_to_vec();
        assert_eq!(read_value(&bytes, ValueKind::OptionalSequence).unwrap(), both);
        assert_eq!(read_value(&[], ValueKind::Optional).unwrap(), Datum::Absent);
        assert!(read_value(&[], ValueKind::Map).is_err());
    }
}
