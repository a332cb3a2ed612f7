//! Whether a model can be used, and why not.

/// Whether a model can be used, with Triton's names for the states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// A ready worker has it.
    Ready,
    /// Workers are to have it, and none has it yet.
    Loading,
    /// Workers could not load it.
    Failed(String),
    /// It has made room for others, and comes back when a task asks for it.
    Parked,
    /// It serves as it was: what it was changed to cannot be used.
    Outdated(String),
    /// Nobody asked for it.
    Unloaded,
}

impl Readiness {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ready | Self::Parked | Self::Outdated(_) => "READY",
            Self::Loading => "LOADING",
            Self::Failed(_) | Self::Unloaded => "UNAVAILABLE",
        }
    }

    /// Whether requests are taken for it.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self, Self::Ready | Self::Parked)
    }

    /// Whether it answers at once.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Ready | Self::Outdated(_))
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Ready => "",
            Self::Loading => "no worker has loaded it yet",
            Self::Failed(message) | Self::Outdated(message) => message,
            Self::Parked => "it has made room for others, and comes back when it is asked for",
            Self::Unloaded => "unloaded",
        }
    }
}
