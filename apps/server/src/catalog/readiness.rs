//! Whether a model can be used, and why not.

/// Whether a model can be used, with Triton's names of states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// A ready worker has the model.
    Ready,
    /// Workers are to have the model, but none has it yet.
    Loading,
    /// Workers could not load the model.
    Failed(String),
    /// The model was evicted to make room, and is loaded again when a task needs it.
    Parked,
    /// The model serves in its earlier form, because its changed files cannot be used.
    Outdated(String),
    /// No load was requested.
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

    /// Whether the model accepts requests.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self, Self::Ready | Self::Parked)
    }

    /// Whether the model answers immediately.
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
