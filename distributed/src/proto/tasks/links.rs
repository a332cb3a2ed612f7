//! How tasks depend on one another.

use crate::task::TaskId;
use std::collections::BTreeSet;

/// The tasks that a task depends on, and those that depend on it.
#[derive(Debug, Default)]
pub(super) struct Links {
    depends_on: Vec<TaskId>,
    /// Dependencies that have not ended.
    waits: usize,
    /// Open tasks that wait for this one.
    dependants: BTreeSet<u64>,
    /// Open tasks that depend on it: its record stays as long as a later coordinator may need it to
    /// understand theirs.
    pins: usize,
}

impl Links {
    pub(super) fn new(depends_on: Vec<TaskId>) -> Self {
        Self { depends_on, ..Self::default() }
    }

    pub(super) fn depends_on(&self) -> &[TaskId] {
        &self.depends_on
    }

    pub(super) fn waits(&self) -> usize {
        self.waits
    }

    pub(super) fn wait_for_one(&mut self) {
        self.waits += 1;
    }

    /// A task that it waits for has succeeded.
    pub(super) fn wait_for_one_less(&mut self) {
        self.waits = self.waits.saturating_sub(1);
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    pub(super) fn pins(&self) -> usize {
        self.pins
    }

    pub(super) fn pin(&mut self) {
        self.pins += 1;
    }

    /// A task that depends on it has ended.
    pub(super) fn unpin(&mut self, dependant: u64) {
        self.pins = self.pins.saturating_sub(1);
        self.dependants.remove(&dependant);
    }

    pub(super) fn add_dependant(&mut self, seq: u64) {
        self.dependants.insert(seq);
    }

    pub(super) fn take_dependants(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.dependants)
    }
}
