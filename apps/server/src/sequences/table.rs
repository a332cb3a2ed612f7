//! The open sequences, their lines of waiting inferences, and the bytes of their states. Time is an argument.

use super::asked::SequenceId;
use crate::fault::Fault;
use crate::metrics::ModelKey;
use axum::http::StatusCode;
use lgp_sdk::tensor::NamedTensor;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Identifies a sequence: its caller, its id, and the model's name and version in its first request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) caller: String,
    pub(super) name: String,
    pub(super) version: Option<u64>,
    pub(super) id: SequenceId,
}

/// Limits of open sequences.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Open sequences of one version of a model.
    pub(super) sequences: u64,
    /// Bytes of all states.
    pub(super) bytes: usize,
}

/// The model that a sequence runs on; `E` is the stored form of its entry.
pub(super) struct Model<E> {
    pub(super) key: ModelKey,
    pub(super) idle: Duration,
    pub(super) entry: E,
}

/// An open sequence as its next inference finds it.
#[derive(Clone)]
pub(super) struct Found<E> {
    /// Identifies this run of the sequence: a restarted sequence gets another number.
    pub(super) number: u64,
    pub(super) entry: E,
    pub(super) states: Vec<NamedTensor>,
}

/// Why there is no room for a sequence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Full {
    Sequences { most: u64 },
    Bytes { wanted: usize, most: usize },
}

struct Open<E> {
    number: u64,
    model: Model<E>,
    states: Vec<NamedTensor>,
    bytes: usize,
}

struct Slot<E> {
    turn: Arc<Mutex<()>>,
    /// Inferences that wait for their turn or hold it.
    places: usize,
    /// When the last of these inferences left.
    since: Instant,
    open: Option<Open<E>>,
}

pub(super) struct Table<E> {
    limits: Limits,
    slots: HashMap<Key, Slot<E>>,
    open: HashMap<ModelKey, u64>,
    bytes: usize,
    begun: u64,
}

impl<E: Clone> Table<E> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, slots: HashMap::new(), open: HashMap::new(), bytes: 0, begun: 0 }
    }

    /// Takes a place in the line of a sequence; [`Self::leave`] gives it back. Holding the lock is the turn.
    pub(super) fn enter(&mut self, key: &Key, now: Instant) -> Arc<Mutex<()>> {
        self.expire(key, now);
        let slot = self.slots.entry(key.clone()).or_insert_with(|| Slot {
            turn: Arc::default(),
            places: 0,
            since: now,
            open: None,
        });
        slot.places = slot.places.saturating_add(1);
        Arc::clone(&slot.turn)
    }

    pub(super) fn leave(&mut self, key: &Key, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.places = slot.places.saturating_sub(1);
        slot.since = now;
        self.tidy(key);
    }

    pub(super) fn find(&self, key: &Key) -> Option<Found<E>> {
        let open = self.slots.get(key)?.open.as_ref()?;
        let (entry, states) = (open.model.entry.clone(), open.states.clone());
        Some(Found { number: open.number, entry, states })
    }

    /// Starts or restarts a sequence, with room for states of `bytes` bytes, and returns its number.
    pub(super) fn begin(
        &mut self,
        key: &Key,
        model: Model<E>,
        bytes: usize,
        now: Instant,
    ) -> Result<u64, Full> {
        self.close(key);
        let most = self.limits.sequences;
        let is_full = |table: &Self| table.open.get(&model.key).is_some_and(|open| *open >= most);
        if is_full(self) {
            self.sweep(now);
            if is_full(self) {
                return Err(Full::Sequences { most });
            }
        }
        self.make_room(0, bytes, now)?;
        let Some(slot) = self.slots.get_mut(key) else {
            // The caller holds a place, and a slot with places is never removed.
            return Err(Full::Sequences { most });
        };
        self.begun = self.begun.wrapping_add(1);
        let open = self.open.entry(model.key.clone()).or_default();
        *open = open.saturating_add(1);
        slot.open = Some(Open { number: self.begun, model, states: Vec::new(), bytes });
        Ok(self.begun)
    }

    /// Stores the states of a sequence, of `bytes` bytes, if it still has this number.
    pub(super) fn keep(
        &mut self,
        (key, number): (&Key, u64),
        states: Vec<NamedTensor>,
        bytes: usize,
        now: Instant,
    ) -> Result<(), Full> {
        let Some(held) = self.open_mut(key, number).map(|open| open.bytes) else { return Ok(()) };
        self.make_room(held, bytes, now)?;
        if let Some(open) = self.open_mut(key, number) {
            (open.states, open.bytes) = (states, bytes);
        }
        Ok(())
    }

    /// Ends a sequence, if it still has this number.
    pub(super) fn finish(&mut self, key: &Key, number: u64) {
        if self.open_mut(key, number).is_some() {
            self.close(key);
        }
    }

    /// Ends the sequences of some models.
    pub(super) fn end(&mut self, of: impl Fn(&ModelKey) -> bool) {
        let is_of = |slot: &Slot<E>| slot.open.as_ref().is_some_and(|open| of(&open.model.key));
        self.close_where(is_of);
    }

    /// Ends sequences that were idle for too long.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.close_where(|slot| slot.is_over(now));
    }

    /// The number of open sequences of each model.
    pub(super) fn open(&self) -> &HashMap<ModelKey, u64> {
        &self.open
    }

    fn open_mut(&mut self, key: &Key, number: u64) -> Option<&mut Open<E>> {
        let open = self.slots.get_mut(key)?.open.as_mut()?;
        (open.number == number).then_some(open)
    }

    /// Replaces `held` counted bytes by `bytes`.
    fn make_room(&mut self, held: usize, bytes: usize, now: Instant) -> Result<(), Full> {
        let most = self.limits.bytes;
        let fits = |table: &Self| {
            let others = table.bytes.saturating_sub(held);
            others.checked_add(bytes).filter(|sum| *sum <= most)
        };
        let mut sum = fits(self);
        if sum.is_none() {
            self.sweep(now);
            sum = fits(self);
        }
        self.bytes = sum.ok_or(Full::Bytes { wanted: bytes, most })?;
        Ok(())
    }

    fn expire(&mut self, key: &Key, now: Instant) {
        if self.slots.get(key).is_some_and(|slot| slot.is_over(now)) {
            self.close(key);
        }
    }

    fn close_where(&mut self, ends: impl Fn(&Slot<E>) -> bool) {
        let all = self.slots.iter().filter(|(_, slot)| ends(slot));
        let all: Vec<Key> = all.map(|(key, _)| key.clone()).collect();
        all.iter().for_each(|key| self.close(key));
    }

    /// Ends an open sequence.
    pub(super) fn close(&mut self, key: &Key) {
        let Some(open) = self.slots.get_mut(key).and_then(|slot| slot.open.take()) else { return };
        self.bytes = self.bytes.saturating_sub(open.bytes);
        if let Some(count) = self.open.get_mut(&open.model.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.open.remove(&open.model.key);
            }
        }
        self.tidy(key);
    }

    /// Removes the slot of a sequence that is not open and has no waiting inferences.
    fn tidy(&mut self, key: &Key) {
        if self.slots.get(key).is_some_and(|slot| slot.places == 0 && slot.open.is_none()) {
            self.slots.remove(key);
        }
    }
}

impl<E> Slot<E> {
    fn is_over(&self, now: Instant) -> bool {
        let idle = self.open.as_ref().map(|open| open.model.idle);
        let since = now.saturating_duration_since(self.since);
        self.places == 0 && idle.is_some_and(|idle| since >= idle)
    }
}

impl Full {
    pub(super) fn fault(&self, model: &str) -> Fault {
        match *self {
            Self::Sequences { most } => {
                let message = format!("{most} sequences of model '{model}' are open, the most");
                Fault::unavailable("overloaded", message + " (sequences_max sets that)")
            }
            Self::Bytes { wanted, most } if wanted > most => {
                let message = format!(
                    "the states of a sequence of model '{model}' have {wanted} bytes, expected at most \
                     {most} (sequences_bytes_max sets that)"
                );
                Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            }
            Self::Bytes { wanted, most } => Fault::unavailable(
                "busy",
                format!(
                    "there is no room for {wanted} bytes of states of model '{model}' now: those of \
                     all sequences may have {most} bytes (sequences_bytes_max sets that)"
                ),
            ),
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
