//! Requests of the last tasks that did not succeed, so that a person can have them run again.

use crate::task::{TaskId, TaskSpec};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most tasks whose requests are kept, and most bytes of their inputs together.
const TASKS_MAX: usize = 256;
const BYTES_MAX: usize = 16 << 20;

/// The newest last.
#[derive(Debug, Default)]
pub(in crate::proto) struct Spent {
    tasks: VecDeque<(TaskId, Arc<TaskSpec>, usize)>,
    bytes: usize,
}

impl Spent {
    /// Keeps the request of a task that ended without success. One with too many bytes evicts no other.
    pub(in crate::proto) fn keep(&mut self, id: TaskId, spec: Arc<TaskSpec>, bytes: usize) {
        if bytes > BYTES_MAX {
            return;
        }
        self.bytes += bytes;
        self.tasks.push_back((id, spec, bytes));
        while self.tasks.len() > TASKS_MAX || self.bytes > BYTES_MAX {
            let Some((.., bytes)) = self.tasks.pop_front() else { return };
            self.bytes -= bytes;
        }
    }

    /// The request of a task, as long as it is kept.
    pub(in crate::proto) fn get(&self, id: TaskId) -> Option<&Arc<TaskSpec>> {
        self.tasks.iter().find(|(kept, ..)| *kept == id).map(|(_, spec, _)| spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::ModelRef;

    #[test]
    fn the_newest_are_kept_as_far_as_there_is_room() {
        let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
        let spec = Arc::new(TaskSpec::new(model, Vec::new()));
        let id = |seq| TaskId { epoch: 1, seq };
        let mut spent = Spent::default();
        for seq in 1..=300 {
            spent.keep(id(seq), Arc::clone(&spec), 1 << 10);
        }
        assert!(spent.get(id(44)).is_none() && spent.get(id(45)).is_some());
        spent.keep(id(301), Arc::clone(&spec), BYTES_MAX + 1);
        assert!(spent.get(id(301)).is_none() && spent.get(id(45)).is_some());
        spent.keep(id(302), Arc::clone(&spec), BYTES_MAX - (10 << 10));
        assert!(spent.get(id(290)).is_none() && spent.get(id(291)).is_some());
        assert_eq!(spent.bytes, BYTES_MAX);
    }
}
