//! Takes a model's message apart while it is read: raw data of stored tensors goes straight into
//! buffers. Decoding the message whole would hold all weights in memory twice.

use super::proto::{GraphProto, ModelProto, TensorProto};
use crate::error::{Error, Result};
use lgp_memory::Buffer;
use prost::Message;
use prost::bytes::Bytes;
use prost::encoding::encode_varint;
use std::io::Read;

/// Numbers of the fields that lead to a stored tensor's raw data.
const MODEL_GRAPH: u64 = 7;
const GRAPH_INITIALIZER: u64 = 5;
const TENSOR_RAW_DATA: u64 = 9;

/// The error of a file that was cut off, and of many files that are not ONNX.
const ENDS_EARLY: &str = "the file ends within a field";

/// A model's message, taken apart.
pub(crate) struct Parts {
    pub(crate) proto: ModelProto,
    /// The raw data of each initializer of the graph, which `proto` lacks.
    pub(crate) raw: Vec<Option<Buffer>>,
}

/// Reads a message of `len` bytes.
///
/// # Errors
/// [`Error::Malformed`], or out of memory for the data that the message holds.
pub(crate) fn read(from: impl Read, len: u64) -> Result<Parts> {
    if len == 0 {
        return Err(malformed("the file is empty"));
    }
    let mut input = Input { from, at: 0 };
    let (mut model, mut graph) = (Vec::new(), None);
    let (mut initializers, mut raw) = (Vec::new(), Vec::new());
    input.message(len, &mut model, &mut |input, field, end| {
        if field != MODEL_GRAPH {
            return Ok(false);
        }
        let graph = graph.get_or_insert_default();
        input.message(end, graph, &mut |input, field, end| {
            if field != GRAPH_INITIALIZER {
                return Ok(false);
            }
            let (tensor, data) = initializer(input, end)?;
            initializers.push(tensor);
            raw.push(data);
            Ok(true)
        })?;
        Ok(true)
    })?;
    let mut proto: ModelProto = decode(model)?;
    if let Some(graph) = graph {
        proto.graph = Some(GraphProto { initializer: initializers, ..decode(graph)? });
    }
    Ok(Parts { proto, raw })
}

fn initializer<R: Read>(input: &mut Input<R>, end: u64) -> Result<(TensorProto, Option<Buffer>)> {
    let (mut tensor, mut raw) = (Vec::new(), None);
    input.message(end, &mut tensor, &mut |input, field, end| {
        if field != TENSOR_RAW_DATA {
            return Ok(false);
        }
        let len = usize::try_from(end - input.at).map_err(|e| malformed(e.to_string()))?;
        let mut buffer = Buffer::zeroed(len)?;
        input.fill(&mut buffer)?;
        raw = Some(buffer);
        Ok(true)
    })?;
    Ok((decode(tensor)?, raw))
}

fn decode<M: Message + Default>(bytes: Vec<u8>) -> Result<M> {
    M::decode(Bytes::from(bytes)).map_err(|error| malformed(shown(&error.to_string())))
}

/// A decoder's error, which names each enclosing field, shortened to the last of many.
fn shown(message: &str) -> String {
    const FIELDS_MAX: usize = 3;
    let parts: Vec<&str> = message.split(": ").collect();
    match parts.as_slice() {
        [first, .., field, what] if parts.len() > FIELDS_MAX + 2 => {
            format!("{first}: … {field}: {what}")
        }
        _ => message.to_owned(),
    }
}

fn malformed(message: impl Into<String>) -> Error {
    Error::Malformed { message: message.into() }
}

/// The source of a message.
struct Input<R> {
    from: R,
    /// Bytes read so far.
    at: u64,
}

/// Takes the number of a length-delimited field and the offset of its end. Reads the field if it is
/// to be taken apart; otherwise reads nothing and answers `false`.
type Apart<'a, R> = &'a mut dyn FnMut(&mut Input<R>, u64, u64) -> Result<bool>;

impl<R: Read> Input<R> {
    /// Reads the fields of a message that ends at `end`. Fields that `apart` does not read are
    /// appended to `kept` unchanged.
    fn message(&mut self, end: u64, kept: &mut Vec<u8>, apart: Apart<'_, R>) -> Result<()> {
        while self.at < end {
            let tag = self.varint()?;
            let mut head = Vec::new();
            encode_varint(tag, &mut head);
            let len = match tag & 7 {
                0 => {
                    encode_varint(self.varint()?, &mut head);
                    0
                }
                1 => 8,
                2 => {
                    let len = self.varint()?;
                    encode_varint(len, &mut head);
                    len
                }
                5 => 4,
                other => return Err(malformed(format!("a field has wire type {other}"))),
            };
            let stop = self.at.checked_add(len).filter(|&stop| stop <= end);
            let stop = stop.ok_or_else(|| malformed("a field is longer than its message"))?;
            if tag & 7 == 2 && apart(self, tag >> 3, stop)? {
                continue;
            }
            kept.extend(head);
            // Memory grows with the bytes that arrive, not with the length that the field claims.
            let copied = (&mut self.from).take(len).read_to_end(kept).map_err(unreadable)?;
            self.at = stop;
            if u64::try_from(copied) != Ok(len) {
                return Err(malformed(ENDS_EARLY));
            }
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.fill(&mut byte)?;
            let [byte] = byte;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            if byte < 0x80 && (bits << shift) >> shift == bits {
                return Ok(value);
            }
        }
        Err(malformed("a number has more than 64 bits"))
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<()> {
        self.from.read_exact(out).map_err(unreadable)?;
        self.at = self.at.saturating_add(u64::try_from(out.len()).unwrap_or(u64::MAX));
        Ok(())
    }
}

fn unreadable(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => malformed(ENDS_EARLY),
        _ => malformed(format!("the file cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{AttributeProto, NodeProto};

    #[test]
    fn parts_are_what_the_whole_message_has() -> Result<()> {
        let tensor = |name: &str, raw: Option<&'static [u8]>| TensorProto {
            name: Some(name.into()),
            dims: vec![2, -1],
            raw_data: raw.map(Bytes::from_static),
            ..TensorProto::default()
        };
        let initializer = vec![tensor("a", Some(&[1, 2, 3])), tensor("b", None)];
        let graph = GraphProto { name: Some("g".into()), initializer, ..GraphProto::default() };
        let whole = ModelProto { graph: Some(graph), ir_version: Some(9), ..Default::default() };
        let bytes = whole.encode_to_vec();
        let len = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap();
        let Parts { mut proto, raw } = read(&bytes[..], len(&bytes))?;
        let raw: Vec<_> = raw.iter().map(Option::as_deref).collect();
        assert_eq!(raw, [Some(&[1u8, 2, 3][..]), None]);
        let graph = proto.graph.as_mut().unwrap();
        assert_eq!(graph.initializer[0].raw_data, None);
        graph.initializer[0].raw_data = Some(Bytes::from_static(&[1, 2, 3]));
        assert_eq!(proto, whole);
        for cut in 0..bytes.len() {
            let cut = &bytes[..cut];
            let same = read(cut, len(cut)).is_ok() == ModelProto::decode(cut).is_ok();
            assert!(same || cut.is_empty(), "{cut:?}");
            assert!(read(cut, len(&bytes)).is_err(), "{cut:?}");
        }
        Ok(())
    }

    #[test]
    fn what_nests_too_deeply_is_told_in_few_words() {
        let mut graph = GraphProto::default();
        for _ in 0..60 {
            let attribute = AttributeProto { g: Some(graph), ..Default::default() };
            let node = NodeProto { attribute: vec![attribute], ..Default::default() };
            graph = GraphProto { node: vec![node], ..Default::default() };
        }
        let bytes = ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec();
        let error =
            read(&bytes[..], u64::try_from(bytes.len()).unwrap()).err().unwrap().to_string();
        assert!(error.contains("recursion limit reached") && error.len() < 200, "{error}");
    }

    #[test]
    fn damage_is_named() {
        let cases: [(&[u8], &str); 5] = [
            (&[], "the file is empty"),
            (&[0xff; 11], "a number has more than 64 bits"),
            (&[0x3b], "a field has wire type 3"),
            (&[0x3a, 0x02, 0x2a, 0x7f], "a field is longer than its message"),
            (&[0x3a], "the file ends within a field"),
        ];
        for (bytes, want) in cases {
            let error = read(bytes, u64::try_from(bytes.len()).unwrap()).err();
            assert!(
                matches!(&error, Some(Error::Malformed { message }) if message == want),
                "{error:?}"
            );
        }
    }
}
