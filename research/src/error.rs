//! The crate's one error type.

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while weights are made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row of a data file does not fit the format.
    #[error("row {row} of the digits data: {found}, expected {expected}")]
    Row {
        /// Which row, counted from 0.
        row: usize,
        /// What was found in it.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A data file that cannot be read.
    #[error("cannot read the digits data")]
    Data(#[from] csv::Error),
    /// There is nothing to train or to measure on.
    #[error("the {part} part holds no images, expected at least one")]
    Empty {
        /// `train` or `test`.
        part: &'static str,
    },
    /// A setting that makes no sense.
    #[error("{name} is {value}, expected {expected}")]
    Setting {
        /// The setting's name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The network cannot be written as a model.
    #[error("cannot export the network")]
    Export(#[from] lgp_inference::Error),
    /// A tensor cannot be made.
    #[error("cannot store the weights")]
    Memory(#[from] lgp_memory::Error),
    /// The autograd toolkit failed.
    #[error("training failed")]
    Candle(#[from] candle_core::Error),
}
