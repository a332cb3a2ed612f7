//! The laws of breakers and of the retry budget, checked by independent accounts.

use lgp_distributed::inside::message::AttemptId;
use lgp_distributed::inside::state::SessionId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Failures in a row after which a worker gets only probes of a model: at most `PROBES` a second,
/// because a lost probe may be followed by another.
const FAILURES: u32 = 5;
const PROBES: usize = 3;
const SECOND: Duration = Duration::from_secs(1);
/// The retries of failed attempts that are allowed: in any case, per task, and per second.
const RESERVE: f64 = 21.0;
const PER_TASK: f64 = 0.2;
const PER_SECOND: f64 = 2.0;

/// Attempts with their start times.
type Probes = VecDeque<(Duration, AttemptId)>;

/// The accounts of one coordinator's life.
#[derive(Default)]
pub(super) struct Laws {
    began: Duration,
    first_attempts: u32,
    retries: u32,
    /// Failures in a row by session and model, and the last attempts since the fifth failure.
    streaks: BTreeMap<(SessionId, String), (u32, Probes)>,
}

impl Laws {
    pub(super) fn new(began: Duration) -> Self {
        Self { began, ..Self::default() }
    }

    /// An attempt that took a slot was answered; `failed` if the worker failed.
    pub(super) fn answered(&mut self, session: SessionId, model: &str, failed: bool) {
        let key = (session, model.to_owned());
        if failed {
            self.streaks.entry(key).or_default().0 += 1;
        } else {
            self.streaks.remove(&key);
        }
    }

    /// An attempt ended without a verdict, so it was no probe.
    pub(super) fn came_back(&mut self, session: SessionId, id: AttemptId, model: &str) {
        if let Some((_, began)) = self.streaks.get_mut(&(session, model.to_owned())) {
            began.retain(|(_, other)| *other != id);
        }
    }

    /// A caller unloaded a model from all workers, which resets its streaks.
    pub(super) fn unloaded(&mut self, model: &str) {
        self.streaks.retain(|(_, of), _| of != model);
    }

    /// An attempt begins; `retry` if the previous one failed with an answer.
    pub(super) fn dispatched(
        &mut self,
        now: Duration,
        (session, id): (SessionId, AttemptId),
        model: &str,
        first: bool,
        retry: bool,
    ) -> Result<(), String> {
        self.first_attempts += u32::from(first);
        self.retries += u32::from(retry);
        let age = now.saturating_sub(self.began).as_secs_f64();
        let allowed = RESERVE + PER_TASK * f64::from(self.first_attempts) + PER_SECOND * age;
        if f64::from(self.retries) > allowed {
            let (retries, tasks) = (self.retries, self.first_attempts);
            return Err(format!("{retries} retries for {tasks} tasks in {age:.3} s"));
        }
        match self.streaks.get_mut(&(session, model.to_owned())) {
            Some((count, began)) if *count >= FAILURES => {
                began.push_back((now, id));
                if began.len() > PROBES {
                    began.pop_front();
                    let since = began.front().map_or(now, |(since, _)| *since);
                    if now.saturating_sub(since) < SECOND {
                        let what =
                            format!("session {session} gets task upon task of model {model}");
                        return Err(format!("{what} after {count} failures in a row"));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
