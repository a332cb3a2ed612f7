//! Clients that never rest: durable tasks with keys, tasks that are not durable, and inferences.

use super::ledger::Ledger;
use super::picture::Pictures;
use super::rest::{Answer, PATIENCE, Rest, inputs};
use crate::relay::Random;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between a client's requests.
const PACE: Duration = Duration::from_millis(30);
/// Before what failed is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// Of a client's durable submissions so many of 1000 are of a batch of so many tasks: a coordinator
/// that is killed then has some that wait and some that run.
const BATCHES_PER_MILLE: u64 = 150;
const BATCH: usize = 20;
/// How long a task that is not durable may take to end.
const VOLATILE: Duration = Duration::from_secs(60);

/// What the clients share with each other and with whoever does the damage.
pub(super) struct Load {
    pub(super) rest: Rest,
    pub(super) pictures: Pictures,
    ledger: Mutex<Ledger>,
    /// What clients were told, counted.
    told: Mutex<BTreeMap<String, u64>>,
    /// Since when a success counts as recovery, and how long it then took.
    recovery: Mutex<Option<(Instant, Option<Duration>)>>,
    /// Tasks whose end nobody had seen at that moment.
    before: Mutex<Vec<String>>,
    /// Odd while there is no coordinator.
    lives: AtomicU64,
    paused: AtomicBool,
    ended: AtomicBool,
    /// Clients within a request.
    busy: AtomicU64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    pub(super) fn new(url: &str, pictures: Pictures) -> Self {
        Self {
            rest: Rest::new(url),
            pictures,
            ledger: Mutex::default(),
            told: Mutex::default(),
            recovery: Mutex::default(),
            before: Mutex::default(),
            lives: AtomicU64::new(0),
            paused: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            busy: AtomicU64::new(0),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// What clients were told so far.
    pub(super) fn told(&self) -> BTreeMap<String, u64> {
        lock(&self.told).clone()
    }

    /// The coordinator ends, or is there again.
    pub(super) fn turn(&self) {
        self.lives.fetch_add(1, SeqCst);
    }

    /// From now on, the first success is the recovery.
    pub(super) fn hurt(&self) {
        *lock(&self.recovery) = Some((Instant::now(), None));
        *lock(&self.before) = self.ledger().open();
    }

    /// Tasks that were acknowledged before the last [`Load::hurt`], unless their end was seen.
    pub(super) fn acknowledged_before(&self) -> Vec<String> {
        lock(&self.before).clone()
    }

    /// How long ago the last [`Load::hurt`] was.
    pub(super) fn since_hurt(&self) -> Duration {
        lock(&self.recovery).map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    /// How long after the last [`Load::hurt`] something that was asked for after it succeeded.
    pub(super) fn recovered(&self) -> Option<Duration> {
        lock(&self.recovery).and_then(|(_, after)| after)
    }

    pub(super) fn resume(&self) {
        self.paused.store(false, SeqCst);
    }

    /// Lets every client finish its request and wait.
    pub(super) fn pause(&self) -> Result<()> {
        self.paused.store(true, SeqCst);
        let until = Instant::now() + VOLATILE + PATIENCE;
        while self.busy.load(SeqCst) > 0 {
            if Instant::now() > until {
                bail!("a client hangs");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Every client returns.
    pub(super) fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// Runs a client of a number: its kind is that of the number.
    pub(super) fn client(&self, number: u64, seed: u64) {
        let mut random = Random::new(seed ^ number.wrapping_mul(0x5851_F42D_4C95_7F2D));
        let mut count = 0;
        while !self.ended.load(SeqCst) {
            self.busy.fetch_add(1, SeqCst);
            if !self.paused.load(SeqCst) {
                count += 1;
                match number % 3 {
                    0 => self.durable(&format!("{number}-{count}"), &mut random),
                    1 => self.infer(&mut random),
                    _ => self.volatile(&mut random),
                }
            }
            self.busy.fetch_sub(1, SeqCst);
            std::thread::sleep(PACE);
        }
    }

    fn tell(&self, what: impl Into<String>) {
        *lock(&self.told).entry(what.into()).or_default() += 1;
    }

    fn succeeded(&self, begun: Instant) {
        if let Some((since, after)) = lock(&self.recovery).as_mut()
            && begun >= *since
            && after.is_none()
        {
            *after = Some(since.elapsed());
        }
    }

    fn picture(&self, random: &mut Random) -> usize {
        usize::try_from(random.below(self.pictures.count())).unwrap_or_default()
    }

    fn task(&self, picture: usize, key: Option<&str>) -> Value {
        let inputs = inputs(self.pictures.pixels(picture));
        let mut task = json!({ "model": "digits", "inputs": inputs });
        if let Some(key) = key {
            task["durable"] = true.into();
            task["idempotency_key"] = key.into();
        }
        task
    }

    /// Submits a durable task until it is acknowledged; sometimes once more.
    fn durable(&self, key: &str, random: &mut Random) {
        let picture = self.picture(random);
        match random.chance(BATCHES_PER_MILLE) {
            true => self.submit_batch(key, picture),
            false => self.submit(key, picture),
        }
        if random.chance(200) {
            self.submit(key, picture);
        }
        // What was shown before a fault must be there after it.
        let (client, _) = key.split_once('-').unwrap_or((key, ""));
        let own = self.ledger().of(&format!("{client}-"));
        let some = usize::try_from(random.below(u64::try_from(own.len()).unwrap_or(1)));
        if let Some(id) = own.get(some.unwrap_or_default()) {
            let answer = self.rest.get(&format!("tasks/{id}"));
            self.ledger().asked(id, &answer, &self.pictures);
        }
    }

    /// Submits a task until that is acknowledged.
    pub(super) fn submit(&self, key: &str, picture: usize) {
        self.insist("tasks", &self.task(picture, Some(key)), |value| {
            let id = value["task_id"].as_str().unwrap_or_default();
            self.ledger().acknowledged(key, picture, id);
        });
    }

    /// The same for a batch, whose first task has this key.
    fn submit_batch(&self, key: &str, picture: usize) {
        let later = (1..BATCH).map(|at| format!("{key}-{at}"));
        let keys: Vec<String> = std::iter::once(key.to_owned()).chain(later).collect();
        let tasks: Vec<Value> = keys.iter().map(|key| self.task(picture, Some(key))).collect();
        self.insist("tasks/batch", &json!({ "tasks": tasks }), |value| {
            let ids = value["tasks"].as_array().cloned().unwrap_or_default();
            if ids.len() != keys.len() {
                self.ledger().violation(format!("a batch of {BATCH} was answered by {value}"));
            }
            for (key, id) in keys.iter().zip(&ids) {
                let id = id["task_id"].as_str().unwrap_or_default();
                self.ledger().acknowledged(key, picture, id);
            }
        });
    }

    /// Submits until that is acknowledged: who got no answer asks again with the same keys.
    fn insist(&self, path: &str, body: &Value, acknowledged: impl Fn(&Value)) {
        let until = Instant::now() + VOLATILE;
        loop {
            let answer = self.rest.post(path, body);
            match (&answer, answer.code()) {
                (Answer::Said(202, value), _) => return acknowledged(value),
                (Answer::Said(503, _), Some(code)) => self.tell(format!("submit: {code}")),
                (Answer::Gone(_), _) => self.tell("submit: no answer, asked again"),
                (other, _) => {
                    let what = format!("a durable submission was met with {other:?}");
                    return self.ledger().violation(what);
                }
            }
            if Instant::now() > until {
                let what = format!("a durable task was not accepted within {VOLATILE:?}");
                return self.ledger().violation(what);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Submits a durable task once; the code of the refusal where it is refused.
    pub(super) fn try_once(&self, key: &str, picture: usize) -> Result<Option<String>> {
        let answer = self.rest.post("tasks", &self.task(picture, Some(key)));
        match (&answer, answer.code()) {
            (Answer::Said(202, value), _) => {
                let id = value["task_id"].as_str().unwrap_or_default();
                self.ledger().acknowledged(key, picture, id);
                Ok(None)
            }
            (_, Some(code)) => Ok(Some(code)),
            (other, None) => bail!("a durable submission was met with {other:?}"),
        }
    }

    /// An inference: its result, or an error that says what is the matter.
    fn infer(&self, random: &mut Random) {
        let picture = self.picture(random);
        let (begun, lives) = (Instant::now(), self.lives.load(SeqCst));
        let answer = self.rest.infer(self.pictures.pixels(picture));
        match (&answer, answer.code()) {
            (Answer::Said(200, value), _) => {
                if self.pictures.right(picture, value) {
                    self.tell("infer: result");
                    self.succeeded(begun);
                } else {
                    self.ledger().violation(format!("an inference answered {value}"));
                }
            }
            // This interface has words, and no codes.
            (Answer::Said(503, _), Some(_)) => self.tell("infer: an error that says why"),
            (Answer::Gone(_), _) if self.was_away(lives) => self.tell("infer: coordinator gone"),
            (other, _) => {
                let took = begun.elapsed();
                let what = format!("an inference was met with {other:?} after {took:?}");
                self.ledger().violation(what);
            }
        }
    }

    /// Whether there was no coordinator at some time since `lives` was read.
    fn was_away(&self, lives: u64) -> bool {
        lives % 2 == 1 || self.lives.load(SeqCst) != lives
    }

    /// A task that is not durable: it ends, or is gone with its coordinator.
    fn volatile(&self, random: &mut Random) {
        let picture = self.picture(random);
        let (begun, lives) = (Instant::now(), self.lives.load(SeqCst));
        let answer = self.rest.post("tasks", &self.task(picture, None));
        let id = match (&answer, answer.code()) {
            (Answer::Said(202, value), _) => value["task_id"].as_str().unwrap_or("?").to_owned(),
            (Answer::Said(503, _), Some(code)) => return self.tell(format!("task: {code}")),
            (Answer::Gone(_), _) if self.was_away(lives) => {
                return self.tell("task: coordinator gone");
            }
            (other, _) => {
                let what = format!("a submission was met with {other:?}");
                return self.ledger().violation(what);
            }
        };
        while begun.elapsed() < VOLATILE {
            let answer = self.rest.get(&format!("tasks/{id}"));
            match &answer {
                Answer::Said(200, value) => match value["state"].as_str() {
                    Some("queued" | "running") => {}
                    Some("succeeded") if self.pictures.right(picture, value) => {
                        self.succeeded(begun);
                        return self.tell("task: result");
                    }
                    Some("failed") if value["error"]["code"].is_string() => {
                        let code = value["error"]["code"].as_str().unwrap_or_default();
                        return self.tell(format!("task: failed, {code}"));
                    }
                    _ => return self.ledger().violation(format!("a task became {value}")),
                },
                Answer::Said(404, _) if self.was_away(lives) => {
                    return self.tell("task: gone with its coordinator");
                }
                Answer::Said(503, _) => {}
                Answer::Gone(_) if self.was_away(lives) => {}
                other => {
                    let what = format!("task {id} was asked for and met with {other:?}");
                    return self.ledger().violation(what);
                }
            }
            std::thread::sleep(AGAIN);
        }
        self.ledger().violation(format!("task {id} did not end within {VOLATILE:?}"));
    }
}
