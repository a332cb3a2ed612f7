//! A shared log in simulated time. As in a database, a commit names its predecessor, so that a
//! deposed leader writes nothing more. A commit waits while the log is unreachable, and is retried
//! when its outcome is unknown.

use super::away::{Away, Fate};
use crate::glue::net::Node;
use crate::glue::scene::Scene;
use lgp_distributed::inside::image::Image;
use lgp_distributed::inside::log::{Change, Each, Opener};
use lgp_distributed::inside::outside::GlueFault;
use lgp_distributed::inside::record::Key;
use lgp_distributed::{JournalError, TaskState, inside};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state that all coordinators share.
#[derive(Clone)]
pub(super) struct SharedLog {
    pub(super) scene: Arc<Scene>,
    state: Arc<Mutex<State>>,
}

struct State {
    away: Away,
    records: BTreeMap<Key, Vec<u8>>,
    epochs: BTreeSet<u64>,
    /// The latest lead that opened the log.
    lead: u64,
    last: Link,
    full: bool,
    slow_ms_max: u64,
    /// The lead of each commit, in order, and the recorded ends, for a judge that does not know the
    /// rules.
    commits: Vec<u64>,
    ends: BTreeMap<Key, TaskState>,
}

/// A commit: its number, and the writer with its own count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) by: u64,
    pub(super) own: u64,
}

/// The outcome of a requested commit.
pub(super) enum Asked {
    Made,
    Full,
    /// The outcome is unknown.
    Away,
    /// Another commit was made meanwhile.
    Refused,
}

pub(super) fn path() -> PathBuf {
    "simulated".into()
}

impl SharedLog {
    pub(super) fn new(scene: &Arc<Scene>) -> Self {
        let state = State {
            away: Away::default(),
            records: BTreeMap::new(),
            epochs: BTreeSet::new(),
            lead: 0,
            last: Link::default(),
            full: false,
            slow_ms_max: 5,
            commits: Vec::new(),
            ends: BTreeMap::new(),
        };
        Self { scene: Arc::clone(scene), state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cut(&self, node: Node, time: Duration, answers_only: bool) {
        self.lock().away.cut(node, time, answers_only);
    }

    pub(super) fn full(&self, full: bool) {
        self.lock().full = full;
    }

    pub(super) fn slow(&self, ms_max: u64) {
        self.lock().slow_ms_max = ms_max;
    }

    pub(super) fn slow_ms_max(&self) -> u64 {
        self.lock().slow_ms_max
    }

    pub(super) fn heal(&self) {
        let mut state = self.lock();
        state.away.heal();
        (state.full, state.slow_ms_max) = (false, 5);
    }

    /// The lead of each commit, in order.
    pub(super) fn commits(&self) -> Vec<u64> {
        self.lock().commits.clone()
    }

    /// How the tasks with a recorded end ended.
    pub(super) fn ends(&self) -> BTreeMap<Key, TaskState> {
        self.lock().ends.clone()
    }

    /// Opens the log for a process of a machine. Answers the last commit, and the leads and epochs
    /// of all openers.
    pub(super) fn open(
        &self,
        node: Node,
        dead: &AtomicBool,
        opener: Opener,
        each: &mut Each<'_>,
    ) -> Result<(Link, Vec<u64>), JournalError> {
        let mut state = self.lock();
        let fate = state.away.fate(node);
        if fate == Fate::Lost || dead.load(Ordering::SeqCst) {
            return Err(away());
        }
        if opener.lead <= state.lead {
            return Err(JournalError::InUse { path: path() });
        }
        for (key, bytes) in &state.records {
            let damaged = |what| JournalError::Damaged { path: path(), what };
            each(*key, bytes).map_err(damaged)?;
        }
        state.epochs.extend([opener.epoch, opener.lead]);
        state.lead = opener.lead;
        state.last = Link { number: state.last.number + 1, by: opener.lead, own: 0 };
        state.commits.push(opener.lead);
        if fate == Fate::Unheard {
            return Err(away());
        }
        Ok((state.last, state.epochs.iter().copied().collect()))
    }

    /// Requests a commit after `last`.
    pub(super) fn ask(&self, node: Node, (last, next): (Link, Link), changes: &[Change]) -> Asked {
        let mut state = self.lock();
        let fate = state.away.fate(node);
        if fate == Fate::Lost {
            return Asked::Away;
        }
        let compares = self.scene.fault != Some(GlueFault::DeposedWrites);
        let asked = if state.last == next {
            // An earlier request was carried out, but its answer was lost.
            Asked::Made
        } else if compares && state.last != last {
            Asked::Refused
        } else if state.full && changes.iter().any(|change| matches!(change, Change::Put(_))) {
            Asked::Full
        } else {
            state.last = next;
            state.commits.push(next.by);
            changes.iter().for_each(|change| state.apply(change, &self.scene));
            Asked::Made
        };
        if fate == Fate::Unheard { Asked::Away } else { asked }
    }

    pub(super) fn read(&self, node: Node, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        let state = self.lock();
        match state.away.fate(node) {
            Fate::Done => Ok(state.records.get(&key).cloned()),
            Fate::Unheard | Fate::Lost => Err(away()),
        }
    }
}

fn away() -> JournalError {
    JournalError::Io { path: path(), source: Arc::new(std::io::Error::other("away")) }
}

impl State {
    fn apply(&mut self, change: &Change, scene: &Scene) {
        let record = match change {
            Change::Remove { epoch, seq } => {
                self.records.remove(&(*epoch, *seq));
                return;
            }
            Change::Put(record) => record,
        };
        let key = (record.epoch, record.seq);
        self.records.insert(key, record.bytes.clone());
        let Ok(image) = Image::decode(&record.bytes) else {
            return scene.fail(format!("the record of {key:?} has no form"));
        };
        let (end, before) = (inside::end_of(&image), self.ends.get(&key).copied());
        if before.is_some() && end != before {
            scene.fail(format!("the record of {key:?} had {before:?}, and now {end:?}"));
        }
        end.and_then(|end| self.ends.insert(key, end));
    }
}
