//! The error of a connection that ended.

use crate::error::Error;

pub fn lost(error: impl std::fmt::Display) -> Error {
    Error::Connection(error.to_string())
}
