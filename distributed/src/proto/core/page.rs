//! Pages of tasks: the newest first, downwards from some task.

use super::{Core, Found};
use crate::task::{ModelRef, TaskFilter, TaskRecord, TaskState};
use std::time::Duration;

/// Tasks that are searched for one page at a time: filters may pass few.
const LOOKED_AT_MAX: usize = 10_000;

/// Some tasks, without their outputs.
pub(crate) struct Page {
    pub(crate) found: Vec<Found<TaskRecord>>,
    /// The number below which the next page begins, where there may be more.
    pub(crate) below: Option<u64>,
}

impl TaskFilter {
    fn passes(&self, state: TaskState, model: &ModelRef) -> bool {
        self.state.is_none_or(|wanted| wanted == state)
            && self.model.as_ref().is_none_or(|wanted| *wanted == model.name)
            && self.version.is_none_or(|wanted| wanted == model.version)
    }
}

impl Core {
    /// Tasks with numbers below `below` that a filter passes, up to a limit.
    pub(crate) fn page(
        &self,
        now: Duration,
        filter: &TaskFilter,
        mut below: u64,
        limit: usize,
    ) -> Page {
        let mut found = Vec::new();
        let mut tasks = self.tasks.below(below).peekable();
        let mut stubs = self.ledger.records().below(below).peekable();
        for _ in 0..LOOKED_AT_MAX {
            let seqs = (tasks.peek().map(|task| task.id().seq), stubs.peek().map(|it| it.id.seq));
            let Some(seq) = seqs.0.max(seqs.1) else { return Page { found, below: None } };
            if found.len() >= limit {
                break;
            }
            below = seq;
            let stub = stubs.next_if(|stub| stub.id.seq == seq);
            if let Some(task) = tasks.next_if(|task| task.id().seq == seq) {
                if filter.passes(task.state(), task.model()) {
                    found.push(Found::Here(task.summary(now)));
                }
            } else if let Some(stub) = stub.filter(|stub| !stub.gone)
                && filter.passes(stub.state, &stub.model)
            {
                found.push(Found::Stored(stub.id));
            }
        }
        Page { found, below: Some(below) }
    }
}
