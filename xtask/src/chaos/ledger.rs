//! What a cluster has promised and shown, kept outside of it, and the laws that both must obey.

use super::picture::Pictures;
use super::rest::Answer;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a task is looked after once its end was seen: less than the ten minutes for which the
/// cluster keeps keys and their records.
const WATCHED: Duration = Duration::from_secs(420);

/// A durable task that was acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) picture: usize,
    /// Its end as it was first shown, and when that was.
    shown: Option<(End, Instant)>,
}

/// A recorded end.
#[derive(Debug, Clone, PartialEq)]
struct End {
    state: String,
    outputs: Value,
    error: Value,
}

/// All that was acknowledged, by task id.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    tasks: BTreeMap<String, Entry>,
    keys: BTreeMap<String, String>,
    /// Those that are no longer looked after.
    retired: BTreeSet<String>,
    /// What broke a law. Must be empty.
    pub(super) violations: Vec<String>,
    /// Ends by state, or by the code of the failure.
    pub(super) ends: BTreeMap<String, u64>,
    pub(super) accepted: u64,
    /// Tasks that took more than one attempt: those that a fault has hit.
    pub(super) redone: u64,
    /// How often an end that had been seen was seen again, unchanged.
    pub(super) seen_again: u64,
    /// How often a key that had been used was used again.
    pub(super) keys_again: u64,
}

impl Ledger {
    pub(super) fn violation(&mut self, what: String) {
        eprintln!("violation: {what}");
        self.violations.push(what);
    }

    /// A submission was acknowledged.
    pub(super) fn acknowledged(&mut self, key: &str, picture: usize, id: &str) {
        match self.keys.get(key) {
            Some(known) if known == id => self.keys_again += 1,
            Some(known) => {
                let known = known.clone();
                self.violation(format!("key {key} stands for {known}, and now for {id}"));
            }
            None if self.tasks.contains_key(id) || self.retired.contains(id) => {
                self.violation(format!("task {id} was given out twice, now for key {key}"));
            }
            None => {
                self.accepted += 1;
                self.keys.insert(key.to_owned(), id.to_owned());
                let entry = Entry { key: key.to_owned(), picture, shown: None };
                self.tasks.insert(id.to_owned(), entry);
            }
        }
    }

    /// The cluster was asked about an acknowledged task. True when that has ended.
    pub(super) fn asked(&mut self, id: &str, answer: &Answer, pictures: &Pictures) -> bool {
        let Answer::Said(status, value) = answer else { return false };
        let Some(entry) = self.tasks.get(id).cloned() else { return false };
        if *status != 200 {
            // A coordinator that is stopping refuses, and says so.
            if *status != 503 {
                self.violation(format!("acknowledged task {id} answers {status}: {value}"));
            }
            return false;
        }
        let state = value["state"].as_str().unwrap_or_default().to_owned();
        if value["task_id"] != *id || value["durable"] != true {
            self.violation(format!("asked for {id}, told of {value}"));
        }
        if matches!(state.as_str(), "queued" | "running") {
            if let Some((end, _)) = entry.shown {
                self.violation(format!("task {id} was {} and is {state}", end.state));
            }
            return false;
        }
        let (outputs, error) = (value["outputs"].clone(), value["error"].clone());
        let end = End { state, outputs, error };
        match entry.shown {
            Some((before, _)) if before == end => self.seen_again += 1,
            Some((before, _)) => {
                self.violation(format!("task {id} ended as {before:?}, and now as {end:?}"));
            }
            None => self.ended(id, end, entry.picture, value, pictures),
        }
        true
    }

    /// An end is seen for the first time.
    fn ended(&mut self, id: &str, end: End, picture: usize, value: &Value, pictures: &Pictures) {
        let name = match end.state.as_str() {
            "succeeded" => end.state.clone(),
            other => format!("{other}: {}", end.error["code"].as_str().unwrap_or("?")),
        };
        // Attempts may be used up by workers that die one after another; nothing else may fail.
        let expected = ["succeeded", "failed: worker_lost", "failed: unavailable"];
        if !expected.contains(&name.as_str()) {
            self.violation(format!("task {id} ended as {end:?}"));
        } else if end.state == "succeeded" && !pictures.right(picture, value) {
            self.violation(format!("task {id} has the wrong result: {value}"));
        }
        *self.ends.entry(name).or_default() += 1;
        self.redone += u64::from(value["attempts"].as_u64().is_some_and(|attempts| attempts > 1));
        if let Some(entry) = self.tasks.get_mut(id) {
            entry.shown = Some((end, Instant::now()));
        }
    }

    /// Tasks whose end was not seen yet.
    pub(super) fn open(&self) -> Vec<String> {
        let open = self.tasks.iter().filter(|(_, entry)| entry.shown.is_none());
        open.map(|(id, _)| id.clone()).collect()
    }

    /// Tasks that are looked after.
    pub(super) fn watched(&self) -> Vec<(String, Entry)> {
        self.tasks.iter().map(|(id, entry)| (id.clone(), entry.clone())).collect()
    }

    /// The latest tasks of a client, whose keys begin with `prefix`.
    pub(super) fn of(&self, prefix: &str) -> Vec<String> {
        let own = self.tasks.iter().filter(|(_, entry)| entry.key.starts_with(prefix));
        own.map(|(id, _)| id.clone()).collect()
    }

    /// The list of tasks, at a moment when nobody submits: it must have every task once, with the
    /// end that was shown, and no durable one that nobody was promised.
    pub(super) fn listed(&mut self, list: &Value) {
        let mut seen = BTreeSet::new();
        for task in list.as_array().into_iter().flatten() {
            let id = task["task_id"].as_str().unwrap_or_default();
            if !seen.insert(id.to_owned()) {
                self.violation(format!("task {id} is listed twice"));
            }
            let known = self.tasks.get(id).cloned();
            if task["durable"] == true && known.is_none() && !self.retired.contains(id) {
                self.violation(format!("durable task {id} is listed and nobody's"));
            }
            let shown = known.and_then(|entry| entry.shown);
            if let Some((end, _)) = shown.filter(|(end, _)| task["state"] != end.state) {
                let was = end.state;
                self.violation(format!("task {id} was {was} and is listed as {}", task["state"]));
            }
        }
        let missing: Vec<_> = self.tasks.keys().filter(|id| !seen.contains(*id)).cloned().collect();
        for id in missing {
            self.violation(format!("acknowledged task {id} is not listed"));
        }
    }

    /// Lets go of those whose records the cluster may soon drop.
    pub(super) fn retire(&mut self) {
        self.let_go_after(WATCHED);
    }

    /// Lets go of every task whose end was seen.
    pub(super) fn let_go(&mut self) {
        self.let_go_after(Duration::ZERO);
    }

    fn let_go_after(&mut self, time: Duration) {
        let old = |entry: &Entry| entry.shown.as_ref().is_some_and(|(_, at)| at.elapsed() > time);
        let ids: Vec<_> =
            self.tasks.iter().filter(|(_, e)| old(e)).map(|(i, _)| i.clone()).collect();
        for id in ids {
            if let Some(entry) = self.tasks.remove(&id) {
                self.keys.remove(&entry.key);
            }
            self.retired.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(id: &str, state: &str, data: &[f64]) -> Answer {
        let outputs = json!([{ "data": data }]);
        let task = json!({ "task_id": id, "durable": true, "state": state, "outputs": outputs,
            "error": { "code": "worker_lost" } });
        Answer::Said(200, task)
    }

    #[test]
    fn every_breach_is_noticed() {
        let pictures = Pictures::of(&[&[1.0], &[2.0]]);
        let right = said("a", "succeeded", &[1.0]);
        let listed = |tasks: &[(&str, &str)]| {
            let task = |(id, state): &(&str, &str)| json!({ "task_id": id, "state": state, "durable": true });
            Value::from(tasks.iter().map(task).collect::<Vec<_>>())
        };
        type Act<'a> = &'a dyn Fn(&mut Ledger);
        let cases: [(&str, Act<'_>); 13] = [
            ("", &|l| assert!(!l.asked("a", &said("a", "queued", &[]), &pictures))),
            ("", &|l| assert!(l.asked("a", &said("a", "failed", &[]), &pictures))),
            ("", &|l| l.acknowledged("k", 0, "a")),
            ("", &|l| l.listed(&listed(&[("a", "running")]))),
            ("stands for a, and now for b", &|l| l.acknowledged("k", 0, "b")),
            ("given out twice", &|l| l.acknowledged("other", 0, "a")),
            ("answers 404", &|l| {
                l.asked("a", &Answer::Said(404, Value::Null), &pictures);
            }),
            ("wrong result", &|l| {
                l.asked("a", &said("a", "succeeded", &[2.0]), &pictures);
            }),
            ("ended as", &|l| {
                l.asked("a", &said("a", "cancelled", &[]), &pictures);
            }),
            ("was succeeded and is queued", &|l| {
                l.asked("a", &right, &pictures);
                l.asked("a", &said("a", "queued", &[]), &pictures);
            }),
            ("and now as", &|l| {
                l.asked("a", &right, &pictures);
                l.asked("a", &said("a", "succeeded", &[1.0001]), &pictures);
            }),
            ("listed twice", &|l| l.listed(&listed(&[("a", "queued"), ("a", "queued")]))),
            ("nobody's", &|l| l.listed(&listed(&[("a", "queued"), ("b", "queued")]))),
        ];
        for (expected, act) in cases {
            let mut ledger = Ledger::default();
            ledger.acknowledged("k", 0, "a");
            act(&mut ledger);
            match expected {
                "" => assert!(ledger.violations.is_empty(), "{:?}", ledger.violations),
                _ => assert!(ledger.violations.iter().any(|v| v.contains(expected)), "{expected}"),
            }
        }
        let mut ledger = Ledger::default();
        ledger.acknowledged("k", 0, "a");
        ledger.listed(&json!([]));
        assert!(ledger.violations.iter().any(|v| v.contains("is not listed")));
    }
}
