//! A lane sends one request at a time and waits for its answer.

use super::Result;
use super::grpc::{Streamed, Unary};
use super::http::Http;

/// The result of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// Success, with the time in the model in microseconds if the server reports it.
    Good { model_us: Option<f64> },
    /// The server is overloaded, and may have said when to retry.
    Refused { says_when: bool },
    /// Any other error, with its message.
    Bad(String),
}

/// A connection to the server that carries one request at a time.
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
