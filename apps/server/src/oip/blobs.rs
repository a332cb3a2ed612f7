//! Elements of the datatype BYTES that need not be text, such as images. Tensors of models only
//! hold text, so these elements go only to an ensemble's own steps.
#![deny(clippy::as_conversions)]

use super::packed;
use crate::fault::Fault;
use axum::body::Bytes;
use lgp_memory::Buffer;
use lgp_sdk::tensor::{DType, NamedTensor, Shape, Tensor};

/// Bytes before each element of binary data: its length.
const LENGTH_BYTES: usize = 4;

/// An input of BYTES with an element that is not text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blobs {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// Row-major; their number fits the shape.
    pub(crate) elements: Vec<Bytes>,
}

/// One input of a request.
#[derive(Debug)]
pub(crate) enum Data {
    Tensor(NamedTensor),
    Blobs(Blobs),
}

/// The inputs of a request.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) tensors: Vec<NamedTensor>,
    pub(crate) blobs: Vec<Blobs>,
}

impl Inputs {
    pub(crate) fn push(&mut self, data: Data) {
        match data {
            Data::Tensor(tensor) => self.tensors.push(tensor),
            Data::Blobs(blobs) => self.blobs.push(blobs),
        }
    }
}

impl From<Vec<NamedTensor>> for Inputs {
    fn from(tensors: Vec<NamedTensor>) -> Self {
        Self { tensors, blobs: Vec::new() }
    }
}

impl Data {
    /// Wraps elements: as a tensor if all are text, else as blobs.
    pub(crate) fn of(name: &str, shape: &[usize], elements: Vec<Bytes>) -> Result<Self, Fault> {
        let expected = Shape::from(shape).elements();
        let expected = expected.map_err(|e| Fault::bad_input(format!("input '{name}': {e}")))?;
        if expected != elements.len() {
            return Err(Fault::bad_input(format!(
                "input '{name}' of shape {shape:?} needs {expected} elements, its contents of that \
                 type have {}",
                elements.len()
            )));
        }
        let texts: Result<Vec<&str>, _> =
            elements.iter().map(|text| str::from_utf8(text)).collect();
        let Ok(texts) = texts else {
            return Ok(Self::Blobs(Blobs {
                name: name.to_owned(),
                shape: shape.to_vec(),
                elements,
            }));
        };
        let tensor = Tensor::from_strings(shape, &texts)
            .map_err(|error| Fault::bad_input(format!("input '{name}': {error}")))?;
        Ok(Self::Tensor(NamedTensor::new(name, tensor)))
    }

    /// Parses binary data.
    pub(crate) fn binary(
        name: &str,
        dtype: DType,
        shape: &[usize],
        bytes: &[u8],
    ) -> Result<Self, Fault> {
        let fault = match packed::binary(name, dtype, shape, bytes) {
            Ok(tensor) => return Ok(Self::Tensor(NamedTensor::new(name, tensor))),
            Err(fault) => fault,
        };
        // Well-formed elements can only have failed for not being text.
        let expected = Shape::from(shape).elements().ok().filter(|_| dtype == DType::Str);
        match expected.and_then(|expected| unpacked(bytes, expected)) {
            Some(elements) => Self::of(name, shape, elements),
            None => Err(fault),
        }
    }

    /// Like `binary`, for bytes without other owners: numbers are not copied.
    pub(crate) fn owned(
        name: &str,
        dtype: DType,
        shape: &[usize],
        bytes: Buffer,
    ) -> Result<Self, Fault> {
        if dtype == DType::Str {
            return Self::binary(name, dtype, shape, &bytes);
        }
        let tensor = packed::numbers(name, dtype, shape, bytes)?;
        Ok(Self::Tensor(NamedTensor::new(name, tensor)))
    }

    /// The input as a tensor; blobs are refused.
    pub(crate) fn tensor(self) -> Result<NamedTensor, Fault> {
        match self {
            Self::Tensor(tensor) => Ok(tensor),
            Self::Blobs(blobs) => Err(blobs.is_no_text()),
        }
    }
}

impl Blobs {
    /// The refusal of a model that got blobs.
    pub(crate) fn is_no_text(&self) -> Fault {
        let at = self.elements.iter().position(|element| str::from_utf8(element).is_err());
        let (name, at) = (&self.name, at.unwrap_or_default());
        Fault::bad_input(format!(
            "input '{name}' has a string that is not UTF-8, at element {at}: models take text, and an \
             ensemble may take pictures"
        ))
    }
}

/// Splits bytes into this many elements, each after its length, a little-endian u32.
fn unpacked(mut rest: &[u8], expected: usize) -> Option<Vec<Bytes>> {
    if expected > rest.len() / LENGTH_BYTES {
        return None;
    }
    let mut elements = Vec::with_capacity(expected);
    for _ in 0..expected {
        let (length, behind) = rest.split_first_chunk::<LENGTH_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (element, behind) = behind.split_at_checked(length)?;
        elements.push(Bytes::copy_from_slice(element));
        rest = behind;
    }
    rest.is_empty().then_some(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text_is_a_tensor_and_what_is_not_is_kept() {
        let text = [&[2, 0, 0, 0], &b"ab"[..], &[0; 4]].concat();
        let read = |bytes: &[u8], shape: &[usize]| Data::binary("x", DType::Str, shape, bytes);
        let Ok(Data::Tensor(tensor)) = read(&text, &[2]) else { panic!("it is text") };
        assert_eq!(tensor.tensor.strings().expect("strings"), ["ab", ""]);
        let picture = [&[3, 0, 0, 0, 0xff, 0xd8, 0], &text[..]].concat();
        let Ok(Data::Blobs(blobs)) = read(&picture, &[3]) else { panic!("it is no text") };
        assert_eq!(blobs.elements, [&[0xff, 0xd8, 0][..], b"ab", b""]);
        assert!(blobs.is_no_text().message.contains("'x'"), "{:?}", blobs.is_no_text());
        for (bytes, shape) in [
            (&picture[..6], &[1][..]),
            (&picture[..], &[2][..]),
            (&picture[..], &[usize::MAX, 2][..]),
            (&[255, 255, 255, 255, 0xff][..], &[1][..]),
        ] {
            let fault = read(bytes, shape).expect_err("it does not fit");
            assert!(fault.status == 400 && fault.message.contains("'x'"), "{}", fault.message);
        }
        let fault = read(&picture, &[3]).and_then(Data::tensor).expect_err("no text");
        assert!(fault.message.contains("UTF-8"), "{}", fault.message);
    }
}
