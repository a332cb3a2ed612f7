//! Callers: each asks different coordinators about the same tasks.

use super::cluster::{Cluster, coordinator_node};
use super::history::{Asking, Saw};
use super::machine::Machine;
use crate::glue::callers::is_final;
use crate::glue::cluster::caller_node;
use crate::glue::ledger::Way;
use crate::glue::net::NODE;
use lgp_distributed::inside::outside::on;
use lgp_distributed::{Error, TaskFilter, TaskId, TaskRecord};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The longest wait for the answer to a submission, or for the end of its connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A caller of one task; several callers may share a task.
pub(super) struct Caller {
    machine: Arc<Machine>,
    number: usize,
    rng: Xoshiro256PlusPlus,
}

impl Caller {
    /// Starts a caller, which continues until the task has ended or is reported lost.
    pub(super) fn start(machine: &Arc<Machine>, number: usize) -> tokio::task::JoinHandle<()> {
        let (rng, machine) = (machine.cluster.scene.rng(), Arc::clone(machine));
        let node = caller_node(machine.at);
        tokio::spawn(NODE.scope(node, Self { machine, number, rng }.run()))
    }

    fn cluster(&self) -> &Arc<Cluster> {
        &self.machine.cluster
    }

    fn note(&self, what: &str) {
        let (at, number) = (self.machine.at, self.number);
        self.cluster().scene.note(|| format!("caller {at}, task {number}: {what}"));
    }

    fn fail(&self, what: &str) {
        self.cluster().scene.fail(format!("task {}: {what}", self.number));
    }

    fn any(&mut self) -> usize {
        self.rng.random_range(0..self.machine.cluster.shape.coordinators)
    }

    async fn pause(&mut self, ms_max: u64) {
        let ms = self.rng.random_range(0..=ms_max);
        sleep(Duration::from_millis(ms)).await;
    }

    async fn run(mut self) {
        self.pause(9_000).await;
        let Some((id, taker)) = self.submit().await else { return };
        let durable = self.cluster().ledger.with(self.number, |entry| entry.way.is_durable());
        if durable == Some(false) {
            return self.wait(id, Some(taker)).await;
        }
        for _ in 0..self.rng.random_range(0..4) {
            match self.rng.random_range(0..10) {
                0..3 => self.look(id).await,
                3..5 => self.key(id).await,
                5..6 => self.cancel(id).await,
                6..8 => self.list().await,
                _ => {
                    // The caller leaves and comes back.
                    let patience = Duration::from_millis(self.rng.random_range(1..900));
                    let _ = timeout(patience, self.wait(id, None)).await;
                }
            }
            self.pause(1_500).await;
        }
        self.wait(id, None).await;
        self.look(id).await;
    }

    /// Submits the task until it is accepted; returns its id and the process that accepted it. A
    /// task without a key whose answer is lost is given up.
    async fn submit(&mut self) -> Option<(TaskId, (usize, u32))> {
        let spec = self.cluster().ledger.with(self.number, |entry| entry.spec.clone())?;
        loop {
            let to = self.any();
            self.note(&format!("submits to {to}"));
            let life = self.cluster().process(to).map(|process| process.life);
            let asking = self.cluster().history.ask(self.number, Saw::Submitted(None));
            let again = spec.clone();
            let submitting = self.machine.call(to, async |client| client.submit(again).await);
            let error = match timeout(ANSWER_LIMIT, submitting).await {
                Err(_) => {
                    self.fail("a submission has no answer");
                    return None;
                }
                Ok(Ok(id)) => {
                    let life = life.unwrap_or_default();
                    self.cluster().history.tell(asking, Saw::Submitted(Some(id)));
                    self.cluster().ledger.accept(self.number, id, life);
                    return Some((id, (to, life)));
                }
                // The failed submission may have taken effect.
                Ok(Err(error)) => error,
            };
            self.note(&format!("{to} says of it: {error}"));
            if is_final(&error) {
                self.fail(&format!("it is refused: {error}"));
                return None;
            }
            let lost = matches!(error, Error::Connection(_) | Error::Stopped | Error::Frame(_));
            if lost && spec.idempotency_key.is_none() {
                return None;
            }
            self.pause(400).await;
        }
    }

    /// Waits for the end of a task. A volatile task of the process `taker` may be reported lost.
    async fn wait(&mut self, id: TaskId, taker: Option<(usize, u32)>) {
        loop {
            let to = match taker {
                Some((at, _)) if self.rng.random_range(0..2) == 0 => at,
                _ => self.any(),
            };
            self.note(&format!("waits at {to}"));
            let lives = self.cluster().lives();
            let asking = self.cluster().history.ask(self.number, Saw::Nothing);
            let patience = Duration::from_millis(self.rng.random_range(500..15_000));
            let waiting = self.machine.call(to, async |client| client.wait(id).await);
            let error = match timeout(patience, waiting).await {
                Ok(Ok(record)) => {
                    self.cluster().history.tell(asking, Saw::Ended(id, record.state));
                    return self.cluster().ledger.show(self.number, record);
                }
                Ok(Err(error)) => error,
                Err(_) => continue,
            };
            self.note(&format!("{to} says: {error}"));
            if is_final(&error) {
                match taker {
                    None => self.unknown(id, to, asking, &error),
                    Some(taker) if self.is_gone(taker) => return,
                    // The process was restarted meanwhile, or cannot be reached from there.
                    Some((at, life)) if at != to || lives != self.cluster().lives() => {
                        self.note(&format!("{to} does not reach life {life}"));
                    }
                    Some(_) => self.fail(&format!("{to} has it, and says: {error}")),
                }
            }
            if self.cluster().scene.failure().is_some() {
                return;
            }
            self.pause(300).await;
        }
    }

    fn is_gone(&self, (at, life): (usize, u32)) -> bool {
        self.cluster().process(at).is_none_or(|process| process.life != life)
    }

    /// A coordinator does not know a durable task that was acknowledged.
    fn unknown(&self, id: TaskId, to: usize, asking: Asking, error: &Error) {
        self.cluster().history.tell(asking, Saw::Unknown(id));
        self.fail(&format!("it was accepted as {id}, and {to} says: {error}"));
    }

    /// Asks for the task's state.
    async fn look(&mut self, id: TaskId) {
        let to = self.any();
        self.note(&format!("looks at {to}"));
        let asking = self.cluster().history.ask(self.number, Saw::Nothing);
        let told = self.machine.call(to, async |client| client.task(id).await);
        match timeout(ANSWER_LIMIT, told).await {
            Ok(Ok(record)) => self.seen(asking, record),
            Ok(Err(error)) if is_final(&error) => self.unknown(id, to, asking, &error),
            Ok(Err(error)) => self.note(&format!("{to} says: {error}")),
            Err(_) => self.fail(&format!("{to} does not say how it stands")),
        }
    }

    fn seen(&self, asking: Asking, record: TaskRecord) {
        let (id, state) = (record.task_id, record.state);
        self.note(&format!("it is {state:?}"));
        if state.is_terminal() {
            self.cluster().history.tell(asking, Saw::Ended(id, state));
            return self.cluster().ledger.show(self.number, record);
        }
        self.cluster().history.tell(asking, Saw::Open(id));
    }

    async fn cancel(&mut self, id: TaskId) {
        let to = self.any();
        self.note(&format!("cancels at {to}"));
        self.cluster().ledger.with(self.number, |entry| entry.cancelled = true);
        let asking = self.cluster().history.ask(self.number, Saw::Nothing);
        let told = self.machine.call(to, async |client| client.cancel(id).await);
        match timeout(ANSWER_LIMIT, told).await {
            Ok(Ok(record)) => self.seen(asking, record),
            Ok(Err(error)) if is_final(&error) => self.unknown(id, to, asking, &error),
            _ => {}
        }
    }

    /// Looks up the key, as programs inside a coordinator's process do.
    async fn key(&mut self, id: TaskId) {
        let to = self.any();
        let key = self.cluster().ledger.with(self.number, |it| it.spec.idempotency_key.clone());
        let (Some(Some(key)), Some(process)) = (key, self.cluster().process(to)) else { return };
        self.note(&format!("asks {to} for the key"));
        let asking = self.cluster().history.ask(self.number, Saw::Nothing);
        let told = on(coordinator_node(to), process.coordinator.keyed(&key));
        let Ok(Ok(told)) = timeout(ANSWER_LIMIT, told).await else { return };
        let told = told.map(|(id, _)| id);
        self.note(&format!("the key stands for {told:?}"));
        if self.is_gone((to, process.life)) {
            return;
        }
        if told != Some(id) {
            self.fail(&format!("it is {id}, and {to} says that its key stands for {told:?}"));
        }
        self.cluster().history.tell(asking, Saw::Stands(told));
    }

    /// Checks that every previously accepted durable task is listed.
    async fn list(&mut self) {
        let to = self.any();
        let Some(process) = self.cluster().process(to) else { return };
        self.note(&format!("lists at {to}"));
        let accepted = self.cluster().ledger.accepted();
        let listing = async {
            let mut seen = Vec::new();
            let mut filter = TaskFilter { limit: 7, ..TaskFilter::default() };
            loop {
                let page = process.coordinator.tasks(&filter).await?;
                seen.extend(page.tasks.into_iter().map(|task| task.task_id));
                match page.next {
                    Some(next) => filter.after = Some(next),
                    None => return Ok::<_, Error>(seen),
                }
            }
        };
        let listing = timeout(ANSWER_LIMIT, on(coordinator_node(to), listing)).await;
        let Ok(Ok(seen)) = listing else { return };
        if self.is_gone((to, process.life)) {
            return;
        }
        let missing =
            |(_, way, id, _): &&(usize, Way, TaskId, u32)| way.is_durable() && !seen.contains(id);
        if let Some((number, _, id, _)) = accepted.iter().find(missing) {
            self.fail(&format!("task {number}, {id}, is missing from the list of {to}"));
        }
    }
}
