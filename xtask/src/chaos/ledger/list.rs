//! Laws over several tasks: for the list of all, and for dependencies.

use super::{Breach, Ledger};
use crate::chaos::rest::Told;
use std::collections::BTreeMap;

impl Ledger {
    /// Records the attempts of open tasks in a list from any moment.
    pub(in crate::chaos) fn noted(&mut self, list: &[Told]) {
        let life = self.life;
        for told in list.iter().filter(|told| told.is_open()) {
            if let Some(entry) = self.tasks.get_mut(&told.task_id) {
                entry.attempts.seen(life, told.attempts);
            }
        }
    }

    /// Checks the list of tasks while no client submits. It must contain every task once with its
    /// shown end, and no durable task that was not acknowledged. Answers ended tasks whose end was
    /// not seen yet.
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

    /// A running or succeeded task depends only on succeeded tasks.
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

    /// After all tasks have ended: a succeeded task depends only on succeeded ones, and a task that
    /// failed because of a dependency has one that did not succeed.
    pub(in crate::chaos) fn dependencies(&mut self) {
        let mut wrong = Vec::new();
        for (id, entry) in &self.tasks {
            let Some(end) = &entry.end else { continue };
            let known = entry.depends_on.iter().filter_map(|id| self.tasks.get(id)?.end.as_ref());
            let failed = known.filter(|end| !end.succeeded()).count();
            let name = end.name();
            // A task that is no longer watched has ended; its end is unknown here.
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
