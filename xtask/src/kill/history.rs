//! The callers' requests and answers, one line of JSON each.

use super::client::Answer;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request about a key's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Asked {
    Submit,
    Look,
    Cancel,
}

/// One request and its answer; times since the round began.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Event {
    pub(super) began_us: u128,
    pub(super) ended_us: u128,
    pub(super) caller: u64,
    /// The coordinator that was asked.
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) asked: Asked,
    /// The task in question.
    pub(super) task: Option<String>,
    pub(super) answer: Answer,
}

/// An inference.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Inference {
    pub(super) began_us: u128,
    pub(super) ended_us: u128,
    pub(super) at: usize,
    pub(super) failure: Option<String>,
}

/// An acknowledged task of a key.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) key: String,
    pub(super) task: String,
    pub(super) iterations: u64,
}

/// A round's events.
pub(super) struct History {
    began: Instant,
    events: Mutex<Vec<Event>>,
    inferences: Mutex<Vec<Inference>>,
    known: Mutex<Vec<Known>>,
}

/// A panic of another thread is reported where it happened.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            events: Mutex::default(),
            inferences: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Microseconds since the round began.
    pub(super) fn now_us(&self) -> u128 {
        self.began.elapsed().as_micros()
    }

    /// Sends a request and records its answer.
    pub(super) fn ask(
        &self,
        (caller, at): (u64, usize),
        asked: Asked,
        known: &Known,
        ask: impl FnOnce() -> Answer,
    ) -> Answer {
        let began_us = self.now_us();
        let answer = ask();
        let ended_us = self.now_us();
        let task = (asked != Asked::Submit).then(|| known.task.clone());
        let key = known.key.clone();
        let event = Event { began_us, ended_us, caller, at, key, asked, task, answer };
        let answer = event.answer.clone();
        if let (Asked::Submit, Answer::Accepted(id)) = (asked, &answer) {
            lock(&self.known).push(Known { task: id.clone(), ..known.clone() });
        }
        lock(&self.events).push(event);
        answer
    }

    /// Runs an inference and records its outcome.
    pub(super) fn infer(&self, at: usize, infer: impl FnOnce() -> Result<(), String>) {
        let began_us = self.now_us();
        let failure = infer().err();
        let ended_us = self.now_us();
        lock(&self.inferences).push(Inference { began_us, ended_us, at, failure });
    }

    /// All acknowledged tasks with their keys, each once.
    pub(super) fn known(&self) -> Vec<Known> {
        let known = lock(&self.known);
        let each = known.iter().map(|it| ((it.key.clone(), it.task.clone()), it.clone()));
        each.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// One of the tasks acknowledged last.
    pub(super) fn recent(&self, draw: u64) -> Option<Known> {
        let known = lock(&self.known);
        let last = known.iter().rev().take(12).collect::<Vec<_>>();
        let at = draw.checked_rem(u64::try_from(last.len()).ok()?)?;
        last.get(usize::try_from(at).ok()?).map(|it| (*it).clone())
    }

    pub(super) fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    pub(super) fn inferences(&self) -> Vec<Inference> {
        lock(&self.inferences).clone()
    }

    /// The longest time without an acknowledged durable task at the coordinators `at`.
    pub(super) fn pause_of_tasks(&self, at: &[usize], until_us: u128) -> Duration {
        let of = |event: &Event| matches!(event.answer, Answer::Accepted(_));
        let events = self.events();
        longest(at, until_us, events.iter().filter(|it| of(it)).map(|it| (it.at, it.ended_us)))
    }

    /// The longest time without an answered inference at the coordinators `at`.
    pub(super) fn pause_of_inferences(&self, at: &[usize], until_us: u128) -> Duration {
        let all = self.inferences();
        let answered = all.iter().filter(|it| it.failure.is_none());
        longest(at, until_us, answered.map(|it| (it.at, it.ended_us)))
    }

    /// Writes all events.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        let mut events = self.events();
        events.sort_by_key(|event| event.began_us);
        for event in &events {
            writeln!(file, "{}", serde_json::to_string(event)?)?;
        }
        for inference in &self.inferences() {
            writeln!(file, "{}", serde_json::to_string(inference)?)?;
        }
        Ok(file.flush()?)
    }
}

fn longest(at: &[usize], until_us: u128, ends: impl Iterator<Item = (usize, u128)>) -> Duration {
    let mut by_place: BTreeMap<usize, Vec<u128>> = at.iter().map(|at| (*at, vec![0])).collect();
    for (at, end) in ends.filter(|(_, end)| *end <= until_us) {
        if let Some(ends) = by_place.get_mut(&at) {
            ends.push(end);
        }
    }
    let gaps = by_place.into_values().flat_map(|mut ends| {
        ends.push(until_us);
        ends.sort_unstable();
        let gaps: Vec<_> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps
    });
    Duration::from_micros(gaps.max().and_then(|gap| u64::try_from(gap).ok()).unwrap_or(0))
}
