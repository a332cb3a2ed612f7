//! The crate's error type.

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of compression and training, and of reading their data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row of a data file does not fit the format.
    #[error("row {row} of the digits data: {found}, expected {expected}")]
    Row {
        /// The row, counted from 0.
        row: usize,
        /// What the row has.
        found: String,
        /// What the row should have.
        expected: &'static str,
    },
    /// A data file cannot be read.
    #[cfg(feature = "training")]
    #[error("cannot read the digits data")]
    Data(#[from] csv::Error),
    /// A part of the data holds no images.
    #[error("the {part} part holds no images, expected at least one")]
    Empty {
        /// `train` or `test`.
        part: &'static str,
    },
    /// A setting has a value that is not allowed.
    #[error("{name} is {value}, expected {expected}")]
    Setting {
        /// The setting's name.
        name: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// Samples do not fit the model, or each other.
    #[error("samples: {message}")]
    Samples {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// A changed model gives infinities, or no numbers at all.
    #[error("output '{output}' of the changed model is not finite, where the original's is")]
    Diverged {
        /// The output.
        output: String,
    },
    /// A matrix or tensor that a method cannot work on.
    #[error("cannot {method}: {message}")]
    Compression {
        /// What the method does, as "quantise by GPTQ".
        method: &'static str,
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The work was asked to end.
    #[error("stopped")]
    Stopped,
    /// A model cannot be read, changed, run or written.
    #[error(transparent)]
    Inference(#[from] lgp_inference::Error),
    /// A tensor cannot be made.
    #[error("cannot store the weights")]
    Memory(#[from] lgp_memory::Error),
    /// A file of the pipeline's progress cannot be read or written.
    #[error("cannot {action} {path}")]
    Io {
        /// `read`, `write` or `remove`.
        action: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Candle, the autograd toolkit, failed.
    #[cfg(feature = "training")]
    #[error("training failed")]
    Candle(#[from] candle_core::Error),
}

impl Error {
    pub(crate) fn samples(message: impl Into<String>) -> Self {
        Self::Samples { message: message.into() }
    }

    pub(crate) fn compression(method: &'static str, message: impl Into<String>) -> Self {
        Self::Compression { method, message: message.into() }
    }
}
