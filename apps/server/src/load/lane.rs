//! One request in flight: it is sent, and its answer waited for.

use super::Result;
use super::grpc::{Streamed, Unary};
use super::http::Http;

/// What came of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// With the time in the model, if the server says it, in microseconds.
    Good { model_us: Option<f64> },
    /// The server has too much to do, and may have said when to come again.
    Refused { says_when: bool },
    /// Anything else, in its words.
    Bad(String),
}

/// A way to the server that one request at a time takes.
pub(crate) enum Lane {
    Http(Http),
    Unary(Box<Unary>),
    Streamed(Streamed),
}

impl Lane {
    pub(crate) async fn ask(&mut self) -> Result<Answer> {
        match self {
            Self::Http(lane) => lane.ask().await,
            Self::Unary(lane) => lane.ask().await,
            Self::Streamed(lane) => lane.ask().await,
        }
    }
}
