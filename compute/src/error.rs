//! The errors of operators and of devices.

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of operators and of devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Inputs or attributes do not fit the operator.
    #[error("{}{message}", before(op))]
    Invalid {
        /// The operator, empty until [`Error::of`] names it.
        op: &'static str,
        /// What was wrong and what was expected.
        message: String,
    },
    /// The operator is valid, but this build has no kernel for it.
    #[error("{}not supported for {what}", is(op))]
    Unsupported {
        /// The operator, empty until [`Error::of`] names it.
        op: &'static str,
        /// The dtype, rank or attribute without a kernel.
        what: String,
    },
    /// The run was cancelled or its deadline passed.
    #[error(transparent)]
    Stopped(#[from] crate::stop::Stopped),
    /// An error of a device or its driver.
    #[error(transparent)]
    Device(#[from] lgp_hal::Error),
    /// A device failed before all bytes of a transfer had arrived.
    #[error("{missing_bytes} bytes from device {from} to device {to} did not arrive: {source}")]
    Transfer {
        /// Number of the device that the bytes come from.
        from: usize,
        /// Number of the device that they go to.
        to: usize,
        /// How many bytes had not arrived.
        missing_bytes: usize,
        /// The device's error.
        source: Box<lgp_hal::Error>,
    },
    /// A folder that cannot store compiled programs.
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

    /// Shorthand for [`Error::Invalid`] without an operator's name: [`Op::run`](crate::Op::run) and
    /// the other methods that call an operator's body add the name.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { op: "", message: message.into() }
    }

    /// Shorthand for [`Error::Unsupported`], without the operator's name as [`Error::invalid`].
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { op: "", what: what.into() }
    }

    /// The error with this operator's name. An error that has a name keeps it, because it comes
    /// from an operator that this one called.
    #[must_use]
    pub fn of(mut self, name: &'static str) -> Self {
        if let Self::Invalid { op, .. } | Self::Unsupported { op, .. } = &mut self
            && op.is_empty()
        {
            *op = name;
        }
        self
    }
}

/// The error of an input whose kind the operator does not take.
pub(crate) fn wrong_kind(input: usize, given: &str, expected: &str) -> Error {
    Error::invalid(format!("input {input} is {given}, expected {expected}"))
}

/// The error of an input whose dtype the operator does not take.
pub(crate) fn wrong_dtype(input: usize, given: lgp_memory::DType) -> Error {
    Error::invalid(format!("input {input} has dtype {given}, which the operator does not take"))
}

/// A name as the beginning of a message; empty without a name.
fn before(op: &str) -> String {
    if op.is_empty() { String::new() } else { format!("{op}: ") }
}

/// A name as the subject of a message.
fn is(op: &str) -> String {
    if op.is_empty() { String::new() } else { format!("{op} is ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_stays() {
        let invalid = Error::invalid("axis 3");
        assert_eq!(invalid.to_string(), "axis 3");
        let inner = invalid.of("Gather");
        assert_eq!(inner.to_string(), "Gather: axis 3");
        assert_eq!(inner.of("Loop").to_string(), "Gather: axis 3");
        let unsupported = Error::unsupported("dtype u8");
        assert_eq!(unsupported.to_string(), "not supported for dtype u8");
        assert_eq!(unsupported.of("Sin").to_string(), "Sin is not supported for dtype u8");
        let stopped = Error::from(crate::Stopped::Cancelled);
        assert_eq!(stopped.clone().of("Sin"), stopped);
    }
}
