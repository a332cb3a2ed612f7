//! The errors of bytes that are no frame.

/// Bytes that are not a frame of this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A length passes its limit.
    #[error("{what} of {given} bytes, at most {limit} are accepted")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Bytes stated.
        given: usize,
        /// Bytes accepted.
        limit: usize,
    },
    /// The type byte is unknown.
    #[error("frame type {code} is not known")]
    UnknownKind {
        /// The byte.
        code: u8,
    },
    /// A valid frame in the wrong place.
    #[error("a frame of type {given} where {expected} was expected")]
    Unexpected {
        /// The type that belongs here.
        expected: &'static str,
        /// The type that came.
        given: String,
    },
    /// The header does not decode.
    #[error("the header of {kind} does not decode: {reason}")]
    Header {
        /// The frame's type.
        kind: String,
        /// What the decoder said.
        reason: String,
    },
    /// Tensor descriptions that do not fit the body, or each other.
    #[error("tensors: {reason}")]
    Tensors {
        /// What is wrong.
        reason: String,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended after {given} of {expected} bytes")]
    Truncated {
        /// Bytes that came.
        given: usize,
        /// Bytes stated.
        expected: usize,
    },
}
