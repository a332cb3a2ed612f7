//! The core's actions, in the order in which they were decided.

use crate::proto::event::Event;
use crate::proto::state::Action;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Actions {
    wanted: VecDeque<Action>,
}

impl Actions {
    pub(super) fn push(&mut self, action: Action) {
        self.wanted.push_back(action);
    }

    pub(super) fn pop(&mut self) -> Option<Action> {
        self.wanted.pop_front()
    }

    /// Sends an event to subscribers.
    pub(super) fn tell(&mut self, event: Event) {
        self.push(Action::Tell(event));
    }

    /// Waiters may look again.
    pub(super) fn changed(&mut self) {
        self.push(Action::Changed);
    }

    /// No caller waits for the tasks that have ended so far.
    pub(super) fn forget_ends(&mut self) {
        self.wanted.retain(|action| !matches!(action, Action::Finished { .. }));
    }
}
