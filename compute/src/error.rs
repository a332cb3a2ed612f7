//! What can be wrong with an operator's inputs or attributes.

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of operators.
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
    /// The operator is right but this build has no kernel for it.
    #[error("{}not supported for {what}", is(op))]
    Unsupported {
        /// The operator, empty until [`Error::of`] names it.
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

    /// Shorthand for [`Error::Invalid`]. An operator is not named yet: [`Op::run`](crate::Op::run)
    /// and the other methods that call an operator's body do that.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { op: "", message: message.into() }
    }

    /// Shorthand for [`Error::Unsupported`], without the operator's name as [`Error::invalid`].
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { op: "", what: what.into() }
    }

    /// The error with this operator's name. One that has a name keeps it: it comes from an operator
    /// that was called inside.
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

/// An input of another kind than the operator takes.
pub(crate) fn wrong_kind(input: usize, given: &str, expected: &str) -> Error {
    Error::invalid(format!("input {input} is {given}, expected {expected}"))
}

/// An input of a dtype that the operator has no meaning for.
pub(crate) fn wrong_dtype(input: usize, given: lgp_memory::DType) -> Error {
    Error::invalid(format!("input {input} has dtype {given}, which it has no meaning for"))
}

/// A name as a message begins with it, if there is one.
fn before(op: &str) -> String {
    if op.is_empty() { String::new() } else { format!("{op}: ") }
}

/// A name as the subject of a message, if there is one.
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
