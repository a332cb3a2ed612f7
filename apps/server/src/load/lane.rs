//! A lane sends one request at a time and waits for its answer.

use super::Result;
use super::answer::Answer;
use super::grpc::{Streamed, Unary};
use super::http::Http;

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
