//! The crate's error type.

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of training, and of reading its data.
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
    /// The network cannot be written as a model.
    #[error("cannot export the network")]
    Export(#[from] lgp_inference::Error),
    /// A tensor cannot be made.
    #[error("cannot store the weights")]
    Memory(#[from] lgp_memory::Error),
    /// Candle, the autograd toolkit, failed.
    #[error("training failed")]
    Candle(#[from] candle_core::Error),
}
