//! Frames.

/// Bytes that are not a frame of this protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length field passes the limit.
    #[error("{what} of {given} bytes, at most {limit} are accepted")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Bytes stated.
        given: usize,
        /// Bytes accepted.
        limit: usize,
    },
}
