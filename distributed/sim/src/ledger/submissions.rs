//! Submissions, their keys, cancellations, and the answers that callers got.

use super::{Entry, Ledger};
use lgp_distributed::inside;
use lgp_distributed::inside::core::{Core, Order};
use lgp_distributed::inside::state::Digest;
use lgp_distributed::{TaskId, TaskSpec};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl Ledger {
    /// The ids with which a submission was answered.
    pub(crate) fn ids(&self, number: usize) -> Vec<TaskId> {
        self.ids.get(&number).cloned().unwrap_or_default()
    }

    /// A submission reached no coordinator.
    pub(crate) fn unheard(&mut self, number: usize) {
        self.unheard.insert(number);
    }

    /// Submissions whose callers do not know the outcome.
    pub(crate) fn unanswered(&mut self) -> Vec<usize> {
        let unsure = |ids: &Vec<TaskId>| {
            ids.iter().any(|id| {
                self.tasks.get(id).is_some_and(|e| {
                    e.spec.durable && !e.acknowledged && e.spec.idempotency_key.is_some()
                })
            })
        };
        let unsure = self.ids.iter().filter(|(_, ids)| unsure(ids)).map(|(number, _)| *number);
        let all: Vec<usize> = unsure.chain(std::mem::take(&mut self.unheard)).collect();
        for number in &all {
            self.ids.remove(number);
        }
        all
    }

    /// A submission was accepted with these tasks.
    pub(crate) fn submitted(
        &mut self,
        now: Duration,
        number: usize,
        ids: &[TaskId],
        orders: &[Order],
        core: &Core,
    ) -> Result<(), String> {
        if ids.len() != orders.len() {
            return Err(format!("{} tasks became {}", orders.len(), ids.len()));
        }
        self.ids.insert(number, ids.to_vec());
        for (id, order) in ids.iter().zip(orders) {
            let within = order.within.iter().filter_map(|&at| ids.get(at).copied());
            let mut spec = (*order.spec).clone();
            spec.depends_on.extend(within);
            self.add((now, number), *id, spec, order.digest, core)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        (now, number): (Duration, usize),
        id: TaskId,
        spec: TaskSpec,
        digest: Digest,
        core: &Core,
    ) -> Result<(), String> {
        if let Some(key) = &spec.idempotency_key {
            if let Some(known) = self.keys.get(key).copied() {
                let entry = self.tasks.get(&known).ok_or("a key of no task")?;
                if known == id {
                    let same = entry.digest == digest;
                    return same.then_some(()).ok_or(format!("key {key} took another body"));
                }
                let finished = core.find(now, known).is_ok();
                if !entry.gone && (finished || entry.shown.is_none()) {
                    return Err(format!("key {key} stands for task {known}, not {id}"));
                }
            }
            self.keys.insert(key.clone(), id);
        }
        if let Some(deadline) = spec.deadline {
            self.deadlines.insert((now + deadline, id));
        }
        for dependency in &spec.depends_on {
            self.dependants.entry(*dependency).or_default().push(id);
        }
        let entry = Entry {
            acknowledged: !spec.durable,
            spec: Arc::new(spec),
            digest,
            submitted: now,
            number,
            cancelled: false,
            attempts: 0,
            current: Vec::new(),
            unavailable: false,
            refused: false,
            recalled: BTreeSet::new(),
            shown: None,
            read: false,
            gone: false,
        };
        if self.tasks.insert(id, entry).is_some()
            || self.alive.insert(inside::key(id).1, id).is_some()
        {
            return Err(format!("task {id} was given out twice"));
        }
        self.open += 1;
        self.may_begin(id);
        Ok(())
    }

    /// The core reports that the journal has a task.
    pub(crate) fn acknowledged(&mut self, seq: u64) -> Result<(), String> {
        let (id, entry) = self.entry(seq)?;
        entry.acknowledged = true;
        self.may_begin(id);
        self.of_one_mind(id, |other| !other.gone)
    }

    /// Checks that all tasks of a submission are recorded or forgotten together.
    fn of_one_mind(&self, id: TaskId, agrees: impl Fn(&Entry) -> bool) -> Result<(), String> {
        let Some(entry) = self.tasks.get(&id) else { return Ok(()) };
        let came_with = self.ids.get(&entry.number).into_iter().flatten();
        for other in came_with {
            let Some(with) = self.tasks.get(other) else { continue };
            if with.submitted == entry.submitted && with.number == entry.number && !agrees(with) {
                return Err(format!("tasks {id} and {other} came together and fared differently"));
            }
        }
        Ok(())
    }

    /// The core reports that it could not keep a task.
    pub(crate) fn rejected(&mut self, seq: u64) -> Result<(), String> {
        let (id, entry) = self.entry(seq)?;
        if entry.acknowledged {
            return Err(format!("task {id} was rejected after it was acknowledged"));
        }
        entry.gone = true;
        self.alive.remove(&seq);
        self.open -= 1;
        self.deadlines.retain(|(_, other)| *other != id);
        self.of_one_mind(id, |other| !other.spec.durable || !other.acknowledged)
    }

    pub(crate) fn cancelled(&mut self, id: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&id) {
            entry.cancelled = true;
        }
        self.begun(id);
    }
}
