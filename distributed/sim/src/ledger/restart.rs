//! What is lost with a coordinator, and what its successor must still know.

use super::Ledger;
use crate::laws::Laws;
use lgp_distributed::inside;
use lgp_distributed::inside::core::Core;
use lgp_distributed::{TaskId, TaskRecord};
use std::collections::BTreeSet;
use std::time::Duration;

impl Ledger {
    /// The coordinator's process crashed, and everything in its memory is lost.
    pub(crate) fn coordinator_crashed(&mut self) {
        self.sessions.clear();
        self.held.clear();
        self.models.clear();
        self.placed.clear();
        self.told.clear();
        self.going.clear();
        self.fresh.clear();
        for id in std::mem::take(&mut self.alive).into_values() {
            let Some(entry) = self.tasks.get_mut(&id) else { continue };
            entry.gone |= !entry.spec.durable;
            entry.attempts = 0;
            entry.current.clear();
            entry.unavailable = false;
            entry.refused = false;
        }
        self.open = 0;
    }

    /// Another coordinator took over; checks that all promises are kept.
    pub(crate) fn coordinator_started(
        &mut self,
        now: Duration,
        core: &Core,
        record: impl Fn(TaskId) -> Option<TaskRecord>,
    ) -> Result<(), String> {
        self.laws = Laws::new(now);
        self.check_results(now, |id| record(id).is_some())?;
        let mut back = Vec::new();
        for (id, entry) in self.tasks.iter_mut().filter(|(_, e)| !e.gone) {
            if let Some(key) = entry.spec.idempotency_key.as_ref().filter(|_| entry.acknowledged)
                && now < entry.submitted + self.keys_kept_for
                && core.by_key(key) != Some(*id)
            {
                return Err(format!("key {key} does not stand for task {id} any more"));
            }
            let Some(record) = record(*id) else {
                // A result that was shown may have been removed since.
                if entry.acknowledged && entry.shown.is_none() {
                    return Err(format!("task {id} was acknowledged and is lost"));
                }
                entry.gone = true;
                continue;
            };
            match &entry.shown {
                Some((state, outputs)) if record.state != *state || record.outputs != *outputs => {
                    let now_state = record.state;
                    return Err(format!("task {id} had ended {state} and is {now_state} again"));
                }
                Some(_) => {}
                // The task ended, but the coordinator crashed before it could report that.
                None if record.state.is_terminal() => {
                    entry.shown = Some((record.state, record.outputs));
                }
                None => self.open += 1,
            }
            // A task in the journal needs no further acknowledgement.
            entry.acknowledged = true;
            self.alive.insert(inside::key(*id).1, *id);
            back.push(*id);
        }
        let gone: BTreeSet<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, e)| e.gone || e.shown.is_some())
            .map(|(id, _)| *id)
            .collect();
        self.deadlines.retain(|(_, id)| !gone.contains(id));
        for id in back {
            self.may_begin(id);
        }
        Ok(())
    }
}
