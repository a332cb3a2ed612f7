//! Estimates the memory of an inference message after parsing. Tiny encoded parts become large objects, so the
//! estimate follows the bytes as they arrive, before they are parsed.
#![deny(clippy::as_conversions)]

/// Bytes that count for each part besides its content: its place in a list that grows by doubling, and its copies
/// on the way to a tensor.
const INPUT: usize = 640;
const OTHER: usize = 128;
const ELEMENT: usize = 64;
const NUMBER: usize = 24;
/// Memory per encoded byte: a number of eight bytes, three times if elements are converted.
const BYTE_OF_OTHER: usize = 8;
const BYTE_OF_INTEGERS: usize = 24;
const BYTE_OF_FLOATS: usize = 3;

/// Follows the bytes of a `ModelInferRequest`, in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Weight {
    bytes: usize,
    /// Length of the message, and the position in it.
    total: usize,
    at: usize,
    /// The ends of the nested messages at this position: an input, and its contents.
    ends: Vec<usize>,
    step: Step,
    value: u64,
    shift: u32,
}

#[derive(Debug, Default, Clone, Copy)]
enum Step {
    #[default]
    Tag,
    Varint,
    /// The length of a field with this number.
    Length(u64),
    Skip(usize),
    /// The bytes are not a valid message; parsing will refuse them.
    Lost,
}

impl Weight {
    /// The weight of a message of this length.
    pub(super) fn of(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// Estimated memory of the bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Follows more bytes of the message.
    pub(super) fn add(&mut self, mut data: &[u8]) {
        while let Some((&byte, rest)) = data.split_first() {
            match self.step {
                Step::Lost => return,
                Step::Skip(left) => {
                    let skipped = left.min(data.len());
                    self.at = self.at.saturating_add(skipped);
                    data = data.get(skipped..).unwrap_or_default();
                    self.step =
                        if skipped == left { Step::Tag } else { Step::Skip(left - skipped) };
                }
                Step::Tag | Step::Varint | Step::Length(_) => {
                    if self.shift == 0 && matches!(self.step, Step::Tag) {
                        self.ends.retain(|&end| end > self.at);
                    }
                    self.at = self.at.saturating_add(1);
                    data = rest;
                    self.digit(byte);
                }
            }
        }
    }

    /// Takes the next byte of a varint.
    fn digit(&mut self, byte: u8) {
        self.value |= u64::from(byte & 0x7f) << self.shift;
        if byte & 0x80 == 0 {
            self.shift = 0;
            let value = std::mem::take(&mut self.value);
            self.step = self.next(value);
        } else if self.shift < 63 {
            self.shift += 7;
        } else {
            self.step = Step::Lost;
        }
    }

    fn next(&mut self, value: u64) -> Step {
        match self.step {
            Step::Tag => {
                let kind = value & 7;
                self.count(if kind == 2 { 0 } else { NUMBER });
                match kind {
                    0 => Step::Varint,
                    1 => Step::Skip(8),
                    2 => Step::Length(value >> 3),
                    // No field here is a group, so a group's parts count as fields.
                    3 | 4 => Step::Tag,
                    5 => Step::Skip(4),
                    _ => Step::Lost,
                }
            }
            Step::Varint => Step::Tag,
            Step::Length(field) => {
                // A field cannot extend beyond its message.
                let left = self.total.saturating_sub(self.at);
                let length = usize::try_from(value).unwrap_or(usize::MAX).min(left);
                let times = |bytes: usize| length.saturating_mul(bytes);
                match (self.ends.len(), field) {
                    (0, 5) => return self.enter(length, INPUT),
                    (1, 5) => return self.enter(length, OTHER),
                    (0, 7) | (2, 8) => self.count(ELEMENT),
                    (2, 1..=5) => self.count(times(BYTE_OF_INTEGERS)),
                    (2, 6 | 7) => self.count(times(BYTE_OF_FLOATS)),
                    _ => self.count(times(BYTE_OF_OTHER).saturating_add(OTHER)),
                }
                Step::Skip(length)
            }
            Step::Skip(_) | Step::Lost => Step::Lost,
        }
    }

    fn enter(&mut self, length: usize, cost: usize) -> Step {
        self.count(cost);
        self.ends.push(self.at.saturating_add(length));
        Step::Tag
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::proto::model_infer_request::InferInputTensor;
    use crate::grpc::proto::{InferTensorContents, ModelInferRequest};
    use axum::body::Bytes;
    use prost::Message;

    fn weight(message: &ModelInferRequest, piece: usize) -> usize {
        let bytes = message.encode_to_vec();
        let mut weight = Weight::of(bytes.len());
        bytes.chunks(piece).for_each(|piece| weight.add(piece));
        assert!(matches!(weight.step, Step::Tag | Step::Skip(0)), "{weight:?}");
        weight.bytes()
    }

    fn with(contents: InferTensorContents) -> ModelInferRequest {
        let input = InferInputTensor { contents: Some(contents), ..InferInputTensor::default() };
        ModelInferRequest { inputs: vec![input; 2], ..ModelInferRequest::default() }
    }

    #[test]
    fn what_a_message_claims_weighs_no_more_than_it_can_hold() {
        // An input whose contents claim 13 MB of integers.
        let claimed = [0x2a, 0x7f, 0x2a, 0x7f, 0x1a, 0x80, 0x80, 0x98, 0x06];
        let mut weight = Weight::of(40);
        weight.add(&claimed);
        let most = INPUT + OTHER + 40 * BYTE_OF_INTEGERS;
        assert!((INPUT..=most).contains(&weight.bytes()), "{weight:?}");
    }

    #[test]
    fn small_parts_weigh_what_they_become_and_raw_tensors_nothing() {
        const MANY: usize = 1_000;
        let inputs = vec![InferInputTensor::default(); MANY];
        let inputs = ModelInferRequest { inputs, ..ModelInferRequest::default() };
        let raw_input_contents = vec![Bytes::new(); MANY];
        let empty = ModelInferRequest { raw_input_contents, ..ModelInferRequest::default() };
        let texts = InferTensorContents {
            bytes_contents: vec![Bytes::new(); MANY],
            ..InferTensorContents::default()
        };
        let numbers =
            InferTensorContents { int64_contents: vec![1; MANY], ..InferTensorContents::default() };
        let floats = InferTensorContents {
            fp32_contents: vec![1.0; MANY],
            ..InferTensorContents::default()
        };
        for (what, message, each) in [
            ("inputs", &inputs, INPUT),
            ("raw contents", &empty, ELEMENT),
            ("texts", &with(texts), 2 * ELEMENT),
            ("integers", &with(numbers), 2 * BYTE_OF_INTEGERS),
            ("floats", &with(floats), 2 * 4 * BYTE_OF_FLOATS),
        ] {
            let weights = [1, 7, usize::MAX].map(|piece| weight(message, piece));
            assert!(weights.iter().all(|w| w == &weights[0]), "{what}: {weights:?}");
            let least = each * MANY;
            assert!((least..least + 4 * INPUT).contains(&weights[0]), "{what}: {weights:?}");
        }
        let raw_input_contents = vec![vec![7; 1 << 20].into()];
        let large = ModelInferRequest { raw_input_contents, ..ModelInferRequest::default() };
        assert_eq!(weight(&large, 1_000), ELEMENT);
    }

    #[test]
    fn what_is_no_message_is_followed_to_its_end() {
        for bytes in
            [&[0xff; 40][..], &[0x07; 40], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f, 1], &[0x2a]]
        {
            let mut weight = Weight::default();
            weight.add(bytes);
            weight.add(bytes);
        }
    }
}
