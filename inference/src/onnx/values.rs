//! Reads files that hold one value each, as ONNX's test suite and other tools write them.

use super::proto::TensorProto;
use super::tensor;
use crate::error::{Error, Result};
use lgp_memory::NamedTensor;
use prost::Message;

/// Reads the bytes of a file that holds one tensor (`TensorProto`), with its name, which may be
/// empty.
///
/// # Errors
/// [`Error::Malformed`] when the bytes are no such file, [`Error::Tensor`] when what they hold
/// does not fit together.
pub fn read_tensor(bytes: &[u8]) -> Result<NamedTensor> {
    let proto = TensorProto::decode(bytes)
        .map_err(|error| Error::Malformed { message: error.to_string() })?;
    let tensor = tensor::read(proto.name(), &proto, None)?;
    Ok(NamedTensor::new(proto.name(), tensor))
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
}
