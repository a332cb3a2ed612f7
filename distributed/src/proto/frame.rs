//! Frames: a fixed prefix, a postcard header, then raw tensor bytes.
//!
//! The prefix is `u32 length | u8 type | u8 flags | u32 header length`, little-endian; `length`
//! counts header and body. Both lengths are checked before anything is allocated for them.
//! Flags are reserved: written as zero, ignored when read.

mod error;

pub use error::FrameError;

use crate::proto::message::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of the prefix.
pub const PREFIX_BYTES: usize = 10;
/// Bytes of the longest header.
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes of the longest body.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;

/// A checked prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    pub kind: Kind,
    /// At most [`HEADER_BYTES_MAX`].
    pub header_bytes: usize,
    /// At most [`BODY_BYTES_MAX`].
    pub body_bytes: usize,
}

impl Prefix {
    /// Reads and checks a prefix.
    pub fn decode(bytes: &[u8; PREFIX_BYTES]) -> Result<Self, FrameError> {
        let [l0, l1, l2, l3, code, _flags, h0, h1, h2, h3] = *bytes;
        // A length beyond the address space is beyond every limit too.
        let wide = |b| usize::try_from(u32::from_le_bytes(b)).unwrap_or(usize::MAX);
        let (length, header_bytes) = (wide([l0, l1, l2, l3]), wide([h0, h1, h2, h3]));
        let kind = Kind::from_code(code).ok_or(FrameError::UnknownKind { code })?;
        check("header", header_bytes, HEADER_BYTES_MAX)?;
        let body_bytes = length
            .checked_sub(header_bytes)
            .ok_or(FrameError::Truncated { given: length, expected: header_bytes })?;
        check("body", body_bytes, BODY_BYTES_MAX)?;
        Ok(Self { kind, header_bytes, body_bytes })
    }
}

fn check(what: &'static str, given: usize, limit: usize) -> Result<(), FrameError> {
    if given <= limit { Ok(()) } else { Err(FrameError::TooLong { what, given, limit }) }
}

/// Prefix and header of a frame whose body takes `body_bytes`; room for `spare` more bytes.
pub fn encode(
    kind: Kind,
    header: &impl Serialize,
    body_bytes: usize,
    spare: usize,
) -> Result<Vec<u8>, FrameError> {
    let reason = |e: postcard::Error| FrameError::Header {
        kind: format!("{kind:?}").to_lowercase(),
        reason: e.to_string(),
    };
    let mut frame = Vec::with_capacity(PREFIX_BYTES + 192 + spare);
    frame.resize(PREFIX_BYTES, 0);
    let mut frame = postcard::to_extend(header, frame).map_err(reason)?;
    let header_bytes = frame.len() - PREFIX_BYTES;
    check("header", header_bytes, HEADER_BYTES_MAX)?;
    check("body", body_bytes, BODY_BYTES_MAX)?;
    // Both are below the limits that were just checked, so neither saturates.
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    frame[0..4].copy_from_slice(&narrow(header_bytes + body_bytes));
    frame[4] = kind.code();
    frame[6..10].copy_from_slice(&narrow(header_bytes));
    Ok(frame)
}

/// Decodes a header. Bytes after the known fields belong to newer versions and are ignored.
pub fn decode<T: DeserializeOwned>(kind: Kind, header: &[u8]) -> Result<T, FrameError> {
    postcard::take_from_bytes(header).map(|(value, _)| value).map_err(|e| FrameError::Header {
        kind: format!("{kind:?}").to_lowercase(),
        reason: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::ExecError;
    use crate::proto::message::{
        AttemptId, Heartbeat, Hello, Loaded, OutcomeHeader, SharedBody, Stint, TaskHeader,
        TensorBlob, TensorMeta, Verdict, Welcome,
    };
    use crate::proto::tensors::plan;
    use proptest::prelude::*;

    fn prefix(length: u32, code: u8, header: u32) -> [u8; PREFIX_BYTES] {
        let mut bytes = [0; PREFIX_BYTES];
        bytes[0..4].copy_from_slice(&length.to_le_bytes());
        bytes[4] = code;
        bytes[6..10].copy_from_slice(&header.to_le_bytes());
        bytes
    }

    #[test]
    fn lengths_are_checked_before_anything_is_read() {
        let cases = [
            (prefix(70_000, 10, 65_537), "header of 65537 bytes, at most 65536 are accepted"),
            (prefix(u32::MAX, 10, u32::MAX), "header of 4294967295 bytes, at most 65536"),
            (prefix(67_108_866, 10, 1), "body of 67108865 bytes, at most 67108864 are accepted"),
            (prefix(u32::MAX, 10, 0), "body of 4294967295 bytes, at most 67108864 are accepted"),
            (prefix(9, 10, 10), "the stream ended after 9 of 10 bytes"),
            (prefix(0, 0, 0), "frame type 0 is not known"),
            (prefix(0, 255, 0), "frame type 255 is not known"),
        ];
        for (bytes, expected) in cases {
            let message = Prefix::decode(&bytes).expect_err(expected).to_string();
            assert!(message.starts_with(expected), "{message}");
        }
        let good = Prefix::decode(&prefix(67_174_400, 10, 65_536));
        let expected =
            Prefix { kind: Kind::Task, header_bytes: 65_536, body_bytes: BODY_BYTES_MAX };
        assert_eq!(good, Ok(expected));
    }

    #[test]
    fn a_header_survives_the_trip_and_newer_fields_are_left() {
        let welcome = Welcome {
            version: 1,
            epoch: 7,
            heartbeat_ms: 500,
            link: None,
            stint: Stint { epoch: 7, session: 9 },
        };
        let mut frame = encode(Kind::Welcome, &welcome, 3, 0).expect("small");
        let start: [u8; PREFIX_BYTES] = frame[..PREFIX_BYTES].try_into().expect("long enough");
        let prefix = Prefix::decode(&start).expect("own frame");
        assert_eq!((prefix.kind, prefix.body_bytes), (Kind::Welcome, 3));
        assert_eq!(frame.len(), PREFIX_BYTES + prefix.header_bytes);
        frame.extend([9; 20]);
        assert_eq!(decode::<Welcome>(prefix.kind, &frame[PREFIX_BYTES..]), Ok(welcome));
    }

    #[test]
    fn oversized_frames_are_not_written() {
        let long = Loaded {
            device: 0,
            model: crate::ModelRef { name: "m".into(), version: 1, sha256: String::new() },
            result: Err(ExecError::failed("x".repeat(HEADER_BYTES_MAX))),
            took_us: None,
        };
        assert!(matches!(
            encode(Kind::Loaded, &long, 0, 0),
            Err(FrameError::TooLong { what: "header", .. })
        ));
        assert!(matches!(
            encode(Kind::Drain, &(), BODY_BYTES_MAX + 1, 0),
            Err(FrameError::TooLong { what: "body", .. })
        ));
    }

    /// Decodes bytes as everything that a peer may send.
    fn decode_as_anything(bytes: &[u8]) {
        let _ = decode::<Hello>(Kind::Hello, bytes);
        let _ = decode::<Welcome>(Kind::Welcome, bytes);
        let _ = decode::<Heartbeat>(Kind::Heartbeat, bytes);
        let _ = decode::<Loaded>(Kind::Loaded, bytes);
        let _ = decode::<AttemptId>(Kind::Released, bytes);
        let of_task = decode::<TaskHeader>(Kind::Task, bytes).map(|h| h.tensors);
        let of_outcome = decode::<OutcomeHeader>(Kind::Outcome, bytes).map(|h| match h.verdict {
            Verdict::Done(tensors) => tensors,
            _ => Vec::new(),
        });
        for tensors in [of_task, of_outcome].into_iter().flatten() {
            // Tensors that are accepted may not ask for more than the body holds.
            if let Ok(planned) = plan(tensors, bytes.len()) {
                let total: usize = planned.iter().map(|t| t.bytes).sum();
                assert_eq!(total, bytes.len());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_prefix_is_refused_or_within_the_limits(bytes in any::<[u8; PREFIX_BYTES]>()) {
            if let Ok(prefix) = Prefix::decode(&bytes) {
                prop_assert!(prefix.header_bytes <= HEADER_BYTES_MAX);
                prop_assert!(prefix.body_bytes <= BODY_BYTES_MAX);
            }
        }

        #[test]
        fn any_header_is_refused_or_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            decode_as_anything(&bytes);
        }

        #[test]
        fn a_damaged_header_is_refused_or_decoded(
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let header = TaskHeader {
                device: 0,
                id: AttemptId { epoch: 1, seq: 2, attempt: 3 },
                priority: crate::Priority::High,
                model: crate::ModelRef { name: "digits".into(), version: 1, sha256: "ab".repeat(32) },
                tensors: vec![
                    TensorMeta { name: "image".into(), dtype: 3, shape: vec![1, 1, 8, 8] },
                    TensorMeta { name: "mask".into(), dtype: 13, shape: vec![3] },
                ],
                shared: Some(SharedBody { ticket: 9, bytes: 259 }),
                blob: Some(TensorBlob { sha256: [7; 32], bytes: 259 }),
                batching: Some(Box::new(crate::Batching {
                    max: std::num::NonZeroU32::MIN,
                    preferred: vec![std::num::NonZeroU32::MIN],
                    delay_us: 300,
                })),
                traced: true,
            };
            let mut bytes = postcard::to_stdvec(&header).expect("serialisable");
            for (at, value) in flips {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            decode_as_anything(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            decode_as_anything(&bytes);
        }
    }
}
