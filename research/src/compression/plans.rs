//! What each target asks for: the loss that it allows, the stages that it tries, what must pay.

use std::fmt;

/// What a model is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The answers stay; what is saved beside them is welcome.
    Accuracy,
    /// Smaller and faster, neither at the other's cost.
    Balanced,
    /// The shortest time of a run.
    Speed,
    /// The fewest bytes while it runs.
    Memory,
    /// The smallest file by every means.
    Extreme,
}

/// What a stage must improve to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Bytes or time improve, and neither gets worse.
    Both,
    /// Time.
    Latency,
    /// Bytes in memory or on disk, and neither gets worse.
    Memory,
    /// Bytes on disk.
    File,
}

/// The plan of a target.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The target.
    pub target: Target,
    /// Its name on command lines.
    pub name: &'static str,
    /// What the model is made for, for people.
    pub summary: &'static str,
    /// The most that accuracy may drop, 0 to 1; without labels, the most that the output error and
    /// the share of changed first answers may be ([`super::Quality::drop_from`]).
    pub drop_max: f64,
    /// What a stage must improve.
    pub goal: Goal,
    /// The stages by the names of their techniques, in order. What removes weights comes before
    /// what rounds them: rounded weights leave nothing to factorise.
    pub stages: &'static [&'static str],
}

/// Every target's plan.
pub const PLANS: &[Plan] = &[
    Plan {
        target: Target::Accuracy,
        name: "accuracy",
        summary: "the answers stay; what is saved beside them is welcome",
        drop_max: 0.02,
        goal: Goal::Both,
        stages: &["static-int8", "weights-int8"],
    },
    Plan {
        target: Target::Balanced,
        name: "balanced",
        summary: "smaller and faster, neither at the other's cost",
        drop_max: 0.05,
        goal: Goal::Both,
        stages: &["structured-pruning", "low-rank", "static-int8", "weights-int8"],
    },
    Plan {
        target: Target::Speed,
        name: "speed",
        summary: "the shortest time of a run",
        drop_max: 0.05,
        goal: Goal::Latency,
        stages: &["structured-pruning", "low-rank", "static-int8"],
    },
    Plan {
        target: Target::Memory,
        name: "memory",
        summary: "the fewest bytes while it runs",
        drop_max: 0.08,
        goal: Goal::Memory,
        stages: &["structured-pruning", "few-bits", "weights-int8"],
    },
    Plan {
        target: Target::Extreme,
        name: "extreme",
        summary: "the smallest file by every means",
        drop_max: 0.15,
        goal: Goal::File,
        stages: &["structured-pruning", "low-rank", "few-bits", "weights-int8"],
    },
];

impl Target {
    /// The target of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        PLANS.iter().find(|plan| plan.name == name).map(|plan| plan.target)
    }

    /// The target's plan.
    #[must_use]
    pub fn plan(self) -> &'static Plan {
        let found = PLANS.iter().find(|plan| plan.target == self);
        found.unwrap_or(&PLANS[0])
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plan().name)
    }
}
