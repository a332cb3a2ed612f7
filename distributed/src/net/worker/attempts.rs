//! The attempts that a worker holds, over all of its connections: runs go on while a connection is
//! lost, and their outcomes are kept until a coordinator has them.

use crate::net::transfer::tensors::Offer;
use crate::net::worker::device_queue::Stage;
use crate::proto::frame;
use crate::proto::message::{AttemptId, Kind, OutcomeHeader, Stint, Verdict};
use lgp_memory::NamedTensor;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Recalls that are kept for attempts that have not arrived yet.
const EARLY_MAX: usize = 1_024;
/// Most bytes of outcomes that wait for a connection, and how long they wait.
const UNDELIVERED_BYTES_MAX: usize = 256 << 20;
const UNDELIVERED_FOR: Duration = Duration::from_secs(60);

/// The held attempts, and recalls of attempts that are not here.
#[derive(Default)]
pub(crate) struct Attempts {
    state: Mutex<State>,
    emptied: Notify,
    /// An outcome waits for a connection.
    waiting: Notify,
}

#[derive(Default)]
struct State {
    held: BTreeMap<AttemptId, Arc<Stage>>,
    /// Attempts that were recalled while not here, the latest last. Most of them had ended.
    early: VecDeque<AttemptId>,
    /// Held attempts whose answer is not wanted any more, and that a thread had taken by then.
    abandoned: BTreeSet<AttemptId>,
    undelivered: Vec<Arc<Outcome>>,
    /// The stint that the held attempts belong to.
    stint: Option<Stint>,
    /// Frames for the report stream of the present connection.
    reports: Option<mpsc::UnboundedSender<Vec<u8>>>,
}

/// An attempt's answer.
pub(crate) struct Reply {
    pub(crate) header: OutcomeHeader,
    /// The tensors that follow the header, and their bytes.
    pub(crate) outputs: Vec<NamedTensor>,
    pub(crate) body_bytes: usize,
    /// Outputs that are too long to follow the header.
    pub(crate) offer: Option<Offer>,
}

impl Reply {
    /// The reply of an attempt that did not run.
    pub(crate) fn without(id: AttemptId, verdict: Verdict) -> Self {
        let header = OutcomeHeader::of(id, verdict);
        Self { header, outputs: Vec::new(), body_bytes: 0, offer: None }
    }

    /// Bytes that it keeps in memory.
    fn held_bytes(&self) -> usize {
        let offered = self.offer.as_ref().map_or(0, |offer| offer.blob.bytes);
        self.body_bytes.saturating_add(usize::try_from(offered).unwrap_or(usize::MAX))
    }
}

/// The reply of an attempt whose own stream was lost.
pub(crate) struct Outcome {
    pub(crate) reply: Reply,
    since: Instant,
    /// The attempt is held for as long as its outcome is.
    _hold: Hold,
}

/// Marks an attempt as held for as long as it lives.
pub(crate) struct Hold {
    attempts: Arc<Attempts>,
    pub(crate) id: AttemptId,
    pub(crate) stage: Arc<Stage>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.attempts.lock();
        state.held.remove(&self.id);
        state.abandoned.remove(&self.id);
        if state.held.is_empty() {
            self.attempts.emptied.notify_waiters();
        }
    }
}

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports go over this connection from now on.
    pub(crate) fn connected(&self, reports: mpsc::UnboundedSender<Vec<u8>>) {
        self.lock().reports = Some(reports);
    }

    /// The stint of the last welcome.
    pub(crate) fn stint(&self) -> Option<Stint> {
        self.lock().stint
    }

    /// Takes the stint of a new welcome; returns whether the stint before goes on.
    pub(crate) fn go_on(&self, stint: Stint) -> bool {
        self.lock().stint.replace(stint) == Some(stint)
    }

    /// Holds an attempt.
    pub(crate) fn hold(self: &Arc<Self>, id: AttemptId) -> Hold {
        let stage = Arc::new(Stage::default());
        self.lock().held.insert(id, Arc::clone(&stage));
        Hold { attempts: Arc::clone(self), id, stage }
    }

    /// Attempts held, in order, each with whether a thread has taken it.
    pub(crate) fn holdings(&self) -> Vec<(AttemptId, bool)> {
        self.lock().held.iter().map(|(id, stage)| (*id, stage.has_begun())).collect()
    }

    /// How many attempts are held.
    pub(crate) fn count(&self) -> usize {
        self.lock().held.len()
    }

    /// Resolves once nothing is held.
    pub(crate) async fn until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.lock().held.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Recalls an attempt: it is refused if no thread has taken it yet.
    pub(crate) fn recall(&self, id: AttemptId) {
        let mut state = self.lock();
        if let Some(stage) = state.held.get(&id) {
            return stage.recalled.notify_one();
        }
        // An unknown attempt has ended, or arrives after its recall: streams overtake each other.
        // An attempt looks here after it is held, so no recall is missed.
        if state.early.len() >= EARLY_MAX {
            state.early.pop_front();
        }
        state.early.push_back(id);
    }

    /// Whether an attempt was recalled before it arrived.
    pub(crate) fn was_recalled(&self, id: AttemptId) -> bool {
        self.lock().early.contains(&id)
    }

    /// Recalls every attempt that has not begun.
    pub(crate) fn recall_all(&self) {
        self.lock().held.values().for_each(|stage| stage.recalled.notify_one());
    }

    /// An attempt's answer is not wanted any more: it does not begin, or its run is asked to stop.
    pub(crate) fn stop(&self, id: AttemptId) {
        let mut state = self.lock();
        let gone: Vec<_> =
            state.undelivered.extract_if(.., |outcome| outcome.reply.header.id == id).collect();
        let stage = state.held.get(&id).cloned();
        drop(state);
        // Dropping the hold of an outcome takes the lock again.
        drop(gone);
        if let Some(stage) = stage {
            stage.cancel();
        }
    }

    /// The answers of all held attempts are not wanted any more: another coordinator is there, or
    /// this one has given the worker up.
    pub(crate) fn abandon_all(&self) {
        let mut state = self.lock();
        let gone = std::mem::take(&mut state.undelivered);
        let stages: Vec<_> =
            state.held.iter().map(|(id, stage)| (*id, Arc::clone(stage))).collect();
        let begun = stages.iter().filter(|(_, stage)| stage.has_begun()).map(|(id, _)| *id);
        state.abandoned.extend(begun);
        drop(state);
        drop(gone);
        stages.iter().for_each(|(_, stage)| stage.cancel());
    }

    /// Whether a run that was abandoned, over this connection or an earlier one, has not stopped.
    pub(crate) fn holds_abandoned(&self) -> bool {
        !self.lock().abandoned.is_empty()
    }

    /// Keeps the reply of an attempt until a connection takes it.
    pub(crate) fn keep(&self, hold: Hold, reply: Reply) {
        let outcome = Outcome { reply, since: Instant::now(), _hold: hold };
        self.lock().undelivered.push(Arc::new(outcome));
        self.tidy();
        self.waiting.notify_one();
    }

    /// Resolves with an outcome that waits.
    pub(crate) async fn undelivered(&self) -> Arc<Outcome> {
        loop {
            let waiting = self.waiting.notified();
            if let Some(first) = self.lock().undelivered.first() {
                return Arc::clone(first);
            }
            waiting.await;
        }
    }

    /// A coordinator has the outcome.
    pub(crate) fn delivered(&self, outcome: &Arc<Outcome>) {
        let same = |other: &mut Arc<Outcome>| Arc::ptr_eq(other, outcome);
        let gone: Vec<_> = self.lock().undelivered.extract_if(.., same).collect();
        drop(gone);
    }

    /// Drops outcomes that waited for too long, and the oldest ones if they have too many bytes; a
    /// single outcome is never too much.
    pub(crate) fn tidy(&self) {
        let mut gone = Vec::new();
        let mut state = self.lock();
        let held_bytes = |outcome: &Arc<Outcome>| outcome.reply.held_bytes();
        let mut bytes: usize = state.undelivered.iter().map(held_bytes).sum();
        while let Some(first) = state.undelivered.first()
            && (bytes > UNDELIVERED_BYTES_MAX && state.undelivered.len() > 1
                || first.since.elapsed() > UNDELIVERED_FOR)
        {
            bytes -= held_bytes(first);
            tracing::warn!(id = ?first.reply.header.id, "an outcome found no connection in time");
            // Few outcomes wait: a worker holds no more attempts than it has slots.
            gone.push(state.undelivered.remove(0));
        }
        drop(state);
        drop(gone);
    }

    /// Sends a frame on the report stream of the present connection.
    pub(crate) fn report(&self, kind: Kind, header: &impl Serialize) {
        match frame::encode(kind, header, 0, 0) {
            // A closed channel belongs to a connection that has ended.
            Ok(bytes) => drop(self.lock().reports.as_ref().map(|reports| reports.send(bytes))),
            Err(error) => tracing::error!(%error, "report not sent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seq: u64) -> AttemptId {
        AttemptId { epoch: 1, seq, attempt: 1 }
    }

    fn keep(attempts: &Arc<Attempts>, seq: u64, bytes: usize) {
        let reply = Reply { body_bytes: bytes, ..Reply::without(id(seq), Verdict::Refused) };
        attempts.keep(attempts.hold(id(seq)), reply);
    }

    #[test]
    fn early_recalls_are_kept_up_to_a_number() {
        let attempts = Attempts::default();
        (0..5_000).for_each(|seq| attempts.recall(id(seq)));
        assert_eq!(attempts.lock().early.len(), EARLY_MAX);
        assert!(attempts.was_recalled(id(4_999)) && !attempts.was_recalled(id(0)));
    }

    #[test]
    fn one_stint_goes_on_at_a_time() {
        let attempts = Attempts::default();
        let [first, later] = [1, 2].map(|epoch| Stint { epoch, session: 1 });
        assert!(!attempts.go_on(first) && attempts.go_on(first));
        assert!(!attempts.go_on(later) && !attempts.go_on(first));
        assert_eq!(attempts.stint(), Some(first));
    }

    #[tokio::test]
    async fn outcomes_are_held_until_they_are_delivered_or_too_many() {
        let attempts = Arc::new(Attempts::default());
        keep(&attempts, 1, UNDELIVERED_BYTES_MAX / 2 + 1);
        keep(&attempts, 2, 1);
        assert_eq!(attempts.holdings().len(), 2);
        let first = attempts.undelivered().await;
        assert_eq!(first.reply.header.id, id(1));
        keep(&attempts, 3, UNDELIVERED_BYTES_MAX / 2);
        attempts.delivered(&first);
        drop(first);
        assert_eq!(attempts.holdings(), [(id(2), false), (id(3), false)], "the oldest is gone");
        attempts.stop(id(3));
        assert_eq!(attempts.holdings(), [(id(2), false)], "nobody waits for it");
        attempts.abandon_all();
        assert!(!attempts.holds_abandoned(), "no thread had taken it");
        attempts.until_empty().await;
    }
}
