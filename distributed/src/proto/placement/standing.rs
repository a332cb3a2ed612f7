//! How far an attempt has come, as far as its worker said, and whether it was recalled.

use crate::task::Priority;
use std::time::Duration;

/// How far an attempt has come, as far as heartbeats said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unknown,
    /// It waited when the last heartbeat was sent.
    Waiting,
    Begun,
}

/// Why an attempt was recalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Cause {
    Room,
    Sooner,
}

/// What matters about an attempt for recalling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct Standing {
    background: bool,
    stage: Stage,
    /// When the coordinator heard that it had begun.
    begun: Option<Duration>,
    recalled: Option<Cause>,
    /// Its run was asked to stop.
    stopping: bool,
    /// Its run was asked to stop, and did not.
    hung: bool,
    /// Its run is over, and its answer on the way.
    answering: bool,
    /// Its worker came back, and has not named it yet.
    resumed: bool,
}

impl Standing {
    /// The standing of an attempt that is about to be sent.
    pub(in crate::proto) fn new(priority: Priority) -> Self {
        let background = priority == Priority::Background;
        Self {
            background,
            stage: Stage::Unknown,
            begun: None,
            recalled: None,
            stopping: false,
            hung: false,
            answering: false,
            resumed: false,
        }
    }

    /// The standing of an attempt whose worker came back; its run may have begun before.
    pub(in crate::proto) fn resumed(
        priority: Priority,
        begun: Option<Duration>,
        hung: bool,
    ) -> Self {
        Self { resumed: true, begun, hung, ..Self::new(priority) }
    }

    /// Notes that its run did not stop; false where that was known.
    pub(super) fn hang(&mut self) -> bool {
        !std::mem::replace(&mut self.hung, true)
    }

    /// Whether its run did not stop when it was asked to.
    pub(super) fn has_hung(&self) -> bool {
        self.hung
    }

    /// When the coordinator first heard that a thread has taken it.
    pub(in crate::proto) fn begun(&self) -> Option<Duration> {
        self.begun
    }

    /// Whether its worker came back and has not named it yet.
    pub(super) fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// A heartbeat names the attempt; an earlier heartbeat may come later. True when a heartbeat
    /// says for the first time that a thread has taken it.
    pub(super) fn hear(&mut self, now: Duration, begun: bool) -> bool {
        self.resumed = false;
        let before = self.stage;
        if before != Stage::Begun {
            self.stage = if begun { Stage::Begun } else { Stage::Waiting };
        }
        if begun && self.begun.is_none() {
            self.begun = Some(now);
        }
        before != self.stage && begun
    }

    /// Whether a thread has taken it, as far as is known.
    pub(in crate::proto) fn has_begun(&self) -> bool {
        self.stage == Stage::Begun
    }

    /// Notes that its run is asked to stop.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Notes that its run is over, and its answer on the way.
    pub(super) fn answer(&mut self) {
        self.answering = true;
    }

    /// Whether its run is known to be over.
    pub(in crate::proto) fn is_answering(&self) -> bool {
        self.answering
    }

    /// Whether its run was asked to stop.
    pub(in crate::proto) fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.stage == Stage::Waiting
    }

    /// Whether it waits, and was not recalled.
    pub(in crate::proto) fn waits(&self) -> bool {
        self.is_waiting() && self.recalled.is_none()
    }

    pub(super) fn may_yield(&self, may_wait: bool) -> bool {
        let open = self.stage == Stage::Waiting || (self.stage == Stage::Unknown && may_wait);
        self.background && open && self.recalled.is_none()
    }

    pub(super) fn may_come_back(&self, cause: Cause) -> bool {
        self.recalled == Some(cause) && self.stage != Stage::Begun
    }

    /// Why it was recalled, if it was.
    pub(in crate::proto) fn recalled(&self) -> Option<Cause> {
        self.recalled
    }

    pub(super) fn recall(&mut self, cause: Cause) {
        self.recalled = Some(cause);
    }
}
