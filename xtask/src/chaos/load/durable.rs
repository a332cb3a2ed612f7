//! Durable tasks: submitted until they are acknowledged, some of them cancelled.

use super::{AGAIN, Load, VOLATILE};
use crate::chaos::job::Job;
use crate::chaos::ledger::Breach;
use crate::chaos::rest::Answer;
use crate::chaos::submission::{Spec, Submission};
use crate::relay::Random;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The largest backlog, in time of one thread; above it clients submit nothing.
const BACKLOG_MAX: Duration = Duration::from_secs(5);
/// Tasks longer than this do not count in the backlog.
const LONG: Duration = Duration::from_secs(6);
/// The largest inputs that are sent again with their keys.
const AGAIN_BYTES_MAX: u64 = 1 << 20;

impl Load {
    /// Submits a durable task or a batch; sometimes uses a key twice, or cancels the tasks.
    pub(super) fn durable(&self, key: &str, random: &mut Random) {
        let (client, _) = key.split_once('-').unwrap_or((key, ""));
        let own = self.ledger().of(&format!("{client}-"));
        let (waiting, longest) = self.ledger().backlog();
        let long = if longest > LONG { longest } else { Duration::ZERO };
        if !self.draw.is_of_use() || waiting.saturating_sub(long) < BACKLOG_MAX {
            let submission = self.draw.submission(random, key, &own);
            let ids = self.submit(submission.clone());
            if random.chance(200) && submission.input_bytes() <= AGAIN_BYTES_MAX {
                self.submit(submission);
            }
            if self.draw.is_of_use() && random.chance(60) {
                std::thread::sleep(Duration::from_millis(random.below(400)));
                ids.iter().for_each(|id| self.cancel(id));
            }
        }
        // Ends shown before a fault must be there after it.
        let some = usize::try_from(random.below(u64::try_from(own.len()).unwrap_or(1)));
        if let Some(id) = own.get(some.unwrap_or_default()) {
            self.ask(id);
        }
    }

    /// Asks for an acknowledged task. True when the task has ended.
    pub(in crate::chaos) fn ask(&self, id: &str) -> bool {
        let answer = self.rest.task(id);
        self.ledger().asked(id, answer, &self.pictures)
    }

    /// Cancels a task. Without an answer the task may be cancelled or not.
    fn cancel(&self, id: &str) {
        self.ledger().cancelling(id);
        let answer = self.rest.cancel(id);
        if !self.ledger().asked(id, answer, &self.pictures) {
            self.tell("cancel: not ended yet");
        }
    }

    /// Several tasks that run for a while.
    pub(in crate::chaos) fn volley(&self, key: &str, random: &mut Random) {
        self.submit(self.draw.volley(random, key));
    }

    /// One of the longest tasks.
    pub(in crate::chaos) fn giant(&self, key: &str, random: &mut Random) {
        self.submit(Submission(vec![Spec::new(key, self.draw.giant(random))]));
    }

    /// A task of the bundled model.
    pub(in crate::chaos) fn submit_digits(&self, key: &str, picture: usize) {
        self.submit(Submission(vec![Spec::new(key, Job::Digits { picture })]));
    }

    /// Repeats a submission.
    pub(in crate::chaos) fn submit_again(&self, submission: &Arc<Submission>) {
        if submission.input_bytes() <= AGAIN_BYTES_MAX {
            self.submit(submission.as_ref().clone());
        }
    }

    /// Submits until acknowledged. A submission without an answer is repeated with the same keys.
    pub(in crate::chaos) fn submit(&self, submission: Submission) -> Vec<String> {
        let (begun, excused) = (Instant::now(), self.ledger().excuse.so_far());
        let submission = Arc::new(submission);
        let (path, body) = (submission.path(), submission.body(&self.pictures));
        loop {
            let lives = self.lives.load(SeqCst);
            let answer = self.rest.submit(path, &body);
            match (&answer, answer.code()) {
                (Answer::Said(202, value), _) => {
                    let Some(ids) = submission.ids(value) else {
                        self.broken(Breach::Other, format!("a submission was answered {value}"));
                        return Vec::new();
                    };
                    self.ledger().acknowledged(&submission, &ids, begun, excused);
                    return ids;
                }
                (Answer::Said(503, _), Some(code)) => self.tell(format!("submit: {code}")),
                (Answer::Said(507, _), Some(code)) if self.is_full() => {
                    self.tell(format!("submit: {code}"));
                }
                (Answer::Gone(_), _) => {
                    let why = if self.was_away(lives) { "coordinator gone" } else { "no answer" };
                    self.tell(format!("submit: {why}, asked again"));
                }
                (other, _) => {
                    let what = format!("a durable submission was met with {other:?}");
                    self.broken(Breach::Other, what);
                    return Vec::new();
                }
            }
            let away = self.ledger().excuse.so_far();
            if begun.elapsed() > VOLATILE + away.time().saturating_sub(excused.time()) {
                let what = format!("durable tasks were not accepted within {VOLATILE:?}");
                self.broken(Breach::Late, what);
                return Vec::new();
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Submits a durable task of the bundled model once; answers the code of a refusal.
    pub(in crate::chaos) fn try_once(&self, key: &str, picture: usize) -> Result<Option<String>> {
        let (begun, excused) = (Instant::now(), self.ledger().excuse.so_far());
        let submission = Arc::new(Submission(vec![Spec::new(key, Job::Digits { picture })]));
        let answer = self.rest.submit("tasks", &submission.body(&self.pictures));
        match (&answer, answer.code()) {
            (Answer::Said(202, value), _) => {
                let ids = submission.ids(value).unwrap_or_default();
                self.ledger().acknowledged(&submission, &ids, begun, excused);
                Ok(None)
            }
            (_, Some(code)) => Ok(Some(code)),
            (other, None) => bail!("a durable submission was met with {other:?}"),
        }
    }
}
