//! What can be wrong with an operator's inputs or attributes.

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of operators.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Inputs or attributes do not fit the operator.
    #[error("{op}: {message}")]
    Invalid {
        /// The operator.
        op: &'static str,
        /// What was wrong and what was expected.
        message: String,
    },
    /// The operator is right but this build has no kernel for it.
    #[error("{op} is not supported for {what}")]
    Unsupported {
        /// The operator.
        op: &'static str,
        /// Dtype, rank or attribute without a kernel.
        what: String,
    },
    /// The run was asked to end.
    #[error(transparent)]
    Stopped(#[from] crate::stop::Stopped),
    /// What a device or its driver refuses.
    #[error(transparent)]
    Device(#[from] lgp_hal::Error),
    /// A device failed before all bytes of a transfer had arrived.
    #[error("{missing_bytes} bytes from device {from} to device {to} did not arrive: {source}")]
    Transfer {
        /// Number of the device that the bytes come from.
        from: usize,
        /// Number of the device that they go to.
        to: usize,
        /// How many had not arrived.
        missing_bytes: usize,
        /// What the device said.
        source: Box<lgp_hal::Error>,
    },
    /// A folder that cannot keep programs.
    #[error("programs cannot be kept in {}: {reason}", folder.display())]
    Cache {
        /// The folder.
        folder: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A shape, dtype or allocation error.
    #[error(transparent)]
    Memory(#[from] lgp_memory::Error),
}

impl Error {
    /// Whether a device was lost.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        match self {
            Self::Device(source) => matches!(source, lgp_hal::Error::DeviceLost { .. }),
            Self::Memory(source) => source.is_device_lost(),
            _ => false,
        }
    }

    /// Shorthand for [`Error::Invalid`].
    pub fn invalid(op: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { op, message: message.into() }
    }

    /// Shorthand for [`Error::Unsupported`].
    pub fn unsupported(op: &'static str, what: impl Into<String>) -> Self {
        Self::Unsupported { op, what: what.into() }
    }
}
