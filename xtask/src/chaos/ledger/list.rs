//! What several tasks say together: the list of all, and tasks that depend on others.

use super::{Breach, Ledger};
use crate::chaos::rest::Told;
use std::collections::BTreeMap;

impl Ledger {
    /// Some list of tasks, at any moment: attempts under way are noted.
    pub(in crate::chaos) fn noted(&mut self, list: &[Told]) {
        let life = self.life;
        for told in list.iter().filter(|told| told.is_open()) {
            if let Some(entry) = self.tasks.get_mut(&told.task_id) {
                entry.attempts.seen(life, told.attempts);
            }
        }
    }

    /// The list of tasks, at a moment when nobody submits: it must have every task once, with the
    /// end that was shown, and no durable one that nobody was promised. Answers those that have
    /// ended, and whose end was not shown yet.
    pub(in crate::chaos) fn listed(&mut self, list: &[Told]) -> Vec<String> {
        self.noted(list);
        let mut states = BTreeMap::new();
        let mut ended = Vec::new();
        for told in list {
            let (id, state) = (&told.task_id, told.state.as_str());
            if states.insert(id.clone(), state).is_some() {
                self.violation(Breach::Twice, format!("task {id} is listed twice"));
            }
            let Some(entry) = self.tasks.get(id) else {
                if told.durable && !self.retired.contains(id) {
                    let what = format!("durable task {id} is listed and nobody's");
                    self.violation(Breach::Twice, what);
                }
                continue;
            };
            match &entry.end {
                Some(end) if end.state != state => {
                    let what = format!("task {id} was {} and is listed as {state}", end.state);
                    self.violation(Breach::Twice, what);
                }
                None if !told.is_open() => ended.push(id.clone()),
                None => self.open_now(id, told),
                Some(_) => {}
            }
        }
        self.in_order(&states);
        let missing: Vec<_> =
            self.tasks.keys().filter(|id| !states.contains_key(*id)).cloned().collect();
        for id in missing {
            self.violation(Breach::Lost, format!("acknowledged task {id} is not listed"));
        }
        ended
    }

    /// What runs or has succeeded depends on nothing that has not.
    fn in_order(&mut self, states: &BTreeMap<String, &str>) {
        let mut early = Vec::new();
        for (id, entry) in &self.tasks {
            let state = states.get(id).copied().unwrap_or_default();
            if !matches!(state, "running" | "succeeded") {
                continue;
            }
            for other in &entry.depends_on {
                if let Some(before) = states.get(other).filter(|before| **before != "succeeded") {
                    early.push(format!("task {id} is {state}, and {other} before it is {before}"));
                }
            }
        }
        early.into_iter().for_each(|what| self.violation(Breach::Wrong, what));
    }

    /// Once all have ended: what succeeded depends on tasks that did, and what failed for another
    /// task depends on one that did not succeed.
    pub(in crate::chaos) fn dependencies(&mut self) {
        let mut wrong = Vec::new();
        for (id, entry) in &self.tasks {
            let Some(end) = &entry.end else { continue };
            let known = entry.depends_on.iter().filter_map(|id| self.tasks.get(id)?.end.as_ref());
            let failed = known.filter(|end| !end.succeeded()).count();
            let name = end.name();
            // One that was let go has ended; how is no longer known.
            let gone = entry.depends_on.iter().any(|id| !self.tasks.contains_key(id));
            if end.succeeded() && failed > 0 {
                wrong.push(format!("task {id} succeeded, and {failed} before it did not"));
            } else if name == "failed: dependency_failed" && failed == 0 && !gone {
                wrong.push(format!("task {id} is {name}, and all before it succeeded"));
            }
        }
        wrong.into_iter().for_each(|what| self.violation(Breach::Wrong, what));
    }
}
