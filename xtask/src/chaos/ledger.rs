//! A record, outside the cluster, of its promises and answers, and the laws for both.

mod attempts;
mod breach;
mod end;
mod excuse;
mod list;
mod tally;
#[cfg(test)]
mod tests;

use super::picture::Pictures;
use super::rest::{Answer, Told};
use super::submission::{Spec, Submission};
use attempts::Attempts;
pub(super) use breach::{Breach, Violation};
use end::End;
use excuse::{Excuse, Excused};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
pub(super) use tally::{Class, Tally};

/// A durable task that was acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) submission: Arc<Submission>,
    /// Its place in the submission.
    place: usize,
    /// Ids of the tasks that it depends on.
    depends_on: Vec<String>,
    /// When the submission began, when it was acknowledged, and what was excused until then.
    begun: Instant,
    acknowledged: Instant,
    excused: Excused,
    /// Whether a client asked to cancel it.
    cancelled: bool,
    attempts: Attempts,
    /// The end that was shown first.
    end: Option<End>,
}

impl Entry {
    /// The task's part of the submission.
    pub(super) fn spec(&self) -> Option<&Spec> {
        self.submission.0.get(self.place)
    }

    /// Whether its end was seen.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The time that one thread needs for the task.
    fn cost(&self) -> Duration {
        self.spec().map_or(Duration::ZERO, |spec| spec.job.cost())
    }
}

/// All acknowledged tasks, by id.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tasks: BTreeMap<String, Entry>,
    keys: BTreeMap<String, String>,
    /// Tasks that are no longer watched.
    retired: BTreeSet<String>,
    /// Violations of the laws. Must be empty.
    pub(super) violations: Vec<Violation>,
    pub(super) tally: Tally,
    /// The number of the coordinator's present life.
    life: u64,
    pub(super) excuse: Excuse,
}

impl Ledger {
    pub(super) fn violation(&mut self, breach: Breach, what: impl Into<String>) {
        let what = what.into();
        eprintln!("violation, {}: {what}", breach.name());
        self.violations.push(Violation { breach, what });
    }

    /// Another coordinator begins: attempts are counted anew.
    pub(super) fn next_life(&mut self) {
        self.life += 1;
    }

    /// Records a submission that began at `begun` and was acknowledged.
    pub(super) fn acknowledged(
        &mut self,
        submission: &Arc<Submission>,
        ids: &[String],
        begun: Instant,
        excused: Excused,
    ) {
        for (place, (spec, id)) in submission.0.iter().zip(ids).enumerate() {
            let within = spec.within.iter().filter_map(|place| ids.get(*place));
            let depends_on = within.chain(&spec.after).cloned().collect();
            let entry = Entry {
                submission: Arc::clone(submission),
                place,
                depends_on,
                begun,
                acknowledged: Instant::now(),
                excused,
                cancelled: false,
                attempts: Attempts::default(),
                end: None,
            };
            self.accept(&spec.key, id, entry);
        }
    }

    fn accept(&mut self, key: &str, id: &str, entry: Entry) {
        match self.keys.get(key) {
            Some(known) if known == id => self.tally.keys_again += 1,
            Some(known) => {
                let what = format!("key {key} stands for {known}, and now for {id}");
                self.violation(Breach::Twice, what);
            }
            None if self.tasks.contains_key(id) || self.retired.contains(id) => {
                let what = format!("task {id} was given out twice, now for key {key}");
                self.violation(Breach::Twice, what);
            }
            None => {
                self.tally.accepted(&entry);
                self.keys.insert(key.to_owned(), id.to_owned());
                self.tasks.insert(id.to_owned(), entry);
            }
        }
    }

    /// Notes that a client is about to cancel a task.
    pub(super) fn cancelling(&mut self, id: &str) {
        if let Some(entry) = self.tasks.get_mut(id) {
            entry.cancelled = true;
        }
    }

    /// Records the answer about an acknowledged task. True when the task has ended.
    pub(super) fn asked(
        &mut self,
        id: &str,
        answer: Result<Told, Answer>,
        pictures: &Pictures,
    ) -> bool {
        if !self.tasks.contains_key(id) {
            return false;
        }
        let told = match answer {
            Ok(told) => told,
            // A stopping coordinator refuses with 503.
            Err(Answer::Gone(_) | Answer::Late | Answer::Said(503, _)) => return false,
            Err(Answer::Said(status, value)) => {
                let breach = if status == 200 { Breach::Other } else { Breach::Lost };
                let what = format!("acknowledged task {id} answers {status}: {value}");
                self.violation(breach, what);
                return false;
            }
        };
        if told.task_id != id || !told.durable {
            self.violation(Breach::Other, format!("asked for {id}, told of {told:?}"));
        }
        if told.is_open() {
            self.open_now(id, &told);
            return false;
        }
        let Some(entry) = self.tasks.get(id) else { return false };
        let end = End::of(&told);
        match &entry.end {
            Some(before) if *before == end => self.tally.seen_again += 1,
            Some(before) => {
                let what = format!("task {id} ended as {before:?}, and now as {end:?}");
                self.violation(Breach::Twice, what);
            }
            None => self.ended(id, end, &told, pictures),
        }
        true
    }

    /// Records that a task has not ended.
    fn open_now(&mut self, id: &str, told: &Told) {
        let (life, excuse) = (self.life, &self.excuse);
        let Some(entry) = self.tasks.get_mut(id) else { return };
        entry.attempts.seen(life, told.attempts);
        let state = &told.state;
        if let Some(end) = &entry.end {
            let what = format!("task {id} was {} and is {state}", end.state);
            return self.violation(Breach::Twice, what);
        }
        let overdue = end::overdue(entry, excuse);
        if let Some(by) = overdue {
            let what = format!("task {id} is {state}, and its deadline was {by:?} ago");
            self.violation(Breach::Late, what);
        }
    }

    /// An end is seen for the first time.
    fn ended(&mut self, id: &str, end: End, told: &Told, pictures: &Pictures) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        let attempts = entry.attempts.ended(told.attempts);
        let breach = end::breach(entry, &end, told, attempts, &self.excuse, pictures);
        self.tally.ended(entry, &end, attempts);
        entry.end = Some(end);
        if let Some((breach, what)) = breach {
            self.violation(breach, format!("task {id} {what}"));
        }
    }

    /// Tasks whose end was not seen yet.
    pub(super) fn open(&self) -> Vec<String> {
        self.open_below(Duration::MAX)
    }

    /// Open tasks that take less than `most`, as do all that they depend on.
    pub(super) fn open_below(&self, most: Duration) -> Vec<String> {
        let short = |id: &String| self.tasks.get(id).is_none_or(|entry| entry.cost() < most);
        let open = self.tasks.iter().filter(|(_, entry)| entry.end.is_none());
        let open = open.filter(|(id, entry)| short(id) && entry.depends_on.iter().all(short));
        open.map(|(id, _)| id.clone()).collect()
    }

    /// The time that one thread needs for all open tasks, and for the longest.
    pub(super) fn backlog(&self) -> (Duration, Duration) {
        let costs = self.tasks.values().filter(|entry| entry.end.is_none()).map(Entry::cost);
        (costs.clone().sum(), costs.max().unwrap_or_default())
    }

    /// All watched tasks.
    pub(super) fn watched(&self) -> Vec<(String, Entry)> {
        self.tasks.iter().map(|(id, entry)| (id.clone(), entry.clone())).collect()
    }

    /// The tasks whose keys begin with `prefix`.
    pub(super) fn of(&self, prefix: &str) -> Vec<String> {
        let own = |entry: &Entry| entry.spec().is_some_and(|spec| spec.key.starts_with(prefix));
        self.tasks.iter().filter(|(_, entry)| own(entry)).map(|(id, _)| id.clone()).collect()
    }

    /// Stops watching every task whose end was seen.
    pub(super) fn let_go(&mut self) {
        let ended = |entry: &Entry| entry.end.is_some();
        self.let_go_where(ended);
    }

    /// Stops watching every task.
    pub(super) fn let_all_go(&mut self) {
        self.let_go_where(|_| true);
    }

    fn let_go_where(&mut self, which: impl Fn(&Entry) -> bool) {
        let ids = self.tasks.iter().filter(|(_, entry)| which(entry)).map(|(id, _)| id.clone());
        for id in ids.collect::<Vec<_>>() {
            if let Some(entry) = self.tasks.remove(&id) {
                entry.spec().map(|spec| self.keys.remove(&spec.key));
            }
            self.retired.insert(id);
        }
    }
}
