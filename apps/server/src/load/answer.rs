//! The result of a request.

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
