//! The kinds of violations.

/// A kind of violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::chaos) enum Breach {
    /// An acknowledged task is missing or never ends.
    Lost,
    /// Two ids for a key, two keys for an id, or an end that changed.
    Twice,
    /// An end that was not allowed, or a wrong result.
    Wrong,
    /// An end comes too late, or no request succeeds.
    Late,
    /// An unexpected answer.
    Other,
}

impl Breach {
    /// All kinds.
    pub(in crate::chaos) const ALL: [Self; 5] =
        [Self::Lost, Self::Twice, Self::Wrong, Self::Late, Self::Other];

    pub(in crate::chaos) fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Twice => "twice",
            Self::Wrong => "wrong",
            Self::Late => "late",
            Self::Other => "other",
        }
    }
}

/// A law that was broken.
#[derive(Debug, Clone)]
pub(in crate::chaos) struct Violation {
    pub(in crate::chaos) breach: Breach,
    pub(in crate::chaos) what: String,
}
