//! Many workers and a long queue: the core's cost of one more event.

use crate::carousel::{config, joining, order};
use lgp_distributed::inside::core::Core;
use lgp_distributed::inside::membership::Parting;
use lgp_distributed::inside::message::{AttemptId, Heartbeat};
use lgp_distributed::inside::state::{Action, Completion, CoreConfig, SessionId};
use lgp_distributed::{ExecutorStatus, ModelRef, Result, TaskId, TaskSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A core whose workers are all busy while tasks wait. Each call handles one event completely and
/// returns the core's time for it.
pub struct Crowd {
    core: Core,
    spec: Arc<TaskSpec>,
    now: Duration,
    joined: usize,
    /// The attempts of each worker.
    held: BTreeMap<SessionId, Vec<AttemptId>>,
    /// The worker of the next event.
    turn: SessionId,
    last: Option<TaskId>,
}

impl Crowd {
    /// `workers` workers of two slots each, and `waiting` waiting tasks.
    ///
    /// # Errors
    /// [`Error::UnknownBalancing`](lgp_distributed::Error).
    pub fn new(workers: usize, waiting: usize, balancing: &str) -> Result<Self> {
        let settings = CoreConfig {
            queue_tasks_max: usize::MAX,
            queue_bytes_max: usize::MAX,
            ..config(balancing)?
        };
        let model = ModelRef { name: "m".into(), version: 1, sha256: "00".repeat(32) };
        let mut crowd = Self {
            core: Core::new(Duration::ZERO, settings, 1),
            spec: Arc::new(TaskSpec::new(model, Vec::new())),
            now: Duration::ZERO,
            joined: 0,
            held: BTreeMap::new(),
            turn: 0,
            last: None,
        };
        for _ in 0..workers {
            crowd.join()?;
        }
        for _ in 0..workers * 2 + waiting {
            crowd.submit()?;
        }
        Ok(crowd)
    }

    /// Runs one event and the core's actions at a moment of its own.
    fn timed<T>(&mut self, event: impl FnOnce(&mut Core, Duration) -> T) -> (T, Duration) {
        self.now += Duration::from_nanos(100);
        let mut actions = Vec::new();
        let began = Instant::now();
        let answer = event(&mut self.core, self.now);
        while let Some(action) = self.core.next_action(self.now) {
            actions.push(action);
        }
        let took = began.elapsed();
        for action in actions {
            if let Action::Dispatch { session, id, .. } = action {
                self.held.entry(session).or_default().push(id);
            }
        }
        (answer, took)
    }

    /// The next worker that has attempts.
    fn next(&mut self) -> Option<SessionId> {
        let after = self.held.range(self.turn + 1..).chain(self.held.iter());
        let busy = after.filter(|(_, held)| !held.is_empty()).map(|(session, _)| *session).next();
        self.turn = busy.unwrap_or_default();
        busy
    }

    /// Another worker joins and gets waiting tasks.
    ///
    /// # Errors
    /// None are expected: the name is valid.
    pub fn join(&mut self) -> Result<Duration> {
        self.joined += 1;
        let join = joining(self.joined, ExecutorStatus::default())?;
        Ok(self.timed(|core, now| core.join(now, join)).1)
    }

    /// A worker leaves, and its tasks go to others.
    pub fn leave(&mut self) -> Option<Duration> {
        let session = self.next()?;
        self.held.remove(&session);
        Some(self.timed(|core, now| core.disconnected(now, session, Parting::Ended)).1)
    }

    /// A worker sends a heartbeat.
    pub fn beat(&mut self) -> Option<Duration> {
        let session = self.next()?;
        let held: Vec<_> = self.held.get(&session)?.iter().map(|id| (*id, true)).collect();
        let beat = Heartbeat::all(&held, ExecutorStatus::default()).pop()?;
        Some(self.timed(|core, now| core.heartbeat(now, session, beat)).1)
    }

    /// A task is submitted and waits.
    ///
    /// # Errors
    /// As [`Coordinator::submit`](lgp_distributed::Coordinator::submit); there is room.
    pub fn submit(&mut self) -> Result<Duration> {
        let order = order(&self.spec);
        let (id, took) = self.timed(|core, now| core.submit(now, order));
        self.last = Some(id?);
        Ok(took)
    }

    /// A task ends, and its slot goes to the task that has waited longest.
    pub fn end(&mut self) -> Option<Duration> {
        let session = self.next()?;
        let id = self.held.get_mut(&session)?.pop()?;
        let done = Completion::Done {
            outputs: Vec::new(),
            model: Duration::from_millis(1),
            batch: 1,
            joined: false,
        };
        let (counted, took) = self.timed(|core, now| core.complete(now, session, id, done));
        counted.then_some(took)
    }

    /// The last task submitted is cancelled while it waits.
    pub fn cancel(&mut self) -> Option<Duration> {
        let last = self.last.take()?;
        let (cancelled, took) = self.timed(|core, now| core.cancel(now, last));
        cancelled.is_ok().then_some(took)
    }

    /// Tasks that wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.core.stats(self.now).tasks.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_does_what_it_is_called() {
        let mut crowd = Crowd::new(3, 10, "least_loaded").expect("a known strategy");
        assert_eq!(crowd.waiting(), 10);
        crowd.join().expect("a name");
        assert_eq!(crowd.waiting(), 8);
        crowd.leave().expect("there is one");
        assert_eq!(crowd.waiting(), 10, "what it held comes first");
        crowd.end().expect("one is under way");
        assert_eq!(crowd.waiting(), 9);
        crowd.submit().expect("there is room");
        crowd.cancel().expect("it waits");
        assert_eq!(crowd.waiting(), 9);
        crowd.beat().expect("there is one");
        assert_eq!(crowd.waiting(), 9);
    }
}
