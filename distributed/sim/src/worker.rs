//! A simulated worker: slots, jobs, a connection, and a heartbeat.

mod jobs;

use super::workload::{MODEL_BYTES, MODELS};
use lgp_distributed::inside::message::{AttemptId, Heartbeat, Stint};
use lgp_distributed::inside::queue::Place;
use lgp_distributed::inside::state::Completion;
use lgp_distributed::{DeviceStatus, ExecError, ExecutorStatus, ModelRef};
use lgp_memory::{NamedTensor, Tensor};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::time::Duration;

/// Silence after which a worker reconnects, as the transport would.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_millis(2_500);

/// Messages from a worker.
#[derive(Debug, Clone)]
pub(super) enum Report {
    /// The stint that the worker knows.
    Hello(Option<Stint>),
    Heartbeat(Heartbeat),
    Completion(AttemptId, Completion),
    Released(AttemptId),
    Loaded(u32, ModelRef, Result<(), ExecError>),
    Unloaded(u32, ModelRef),
    Draining,
}

/// One task at a worker.
#[derive(Debug, Clone)]
struct Job {
    connection: u64,
    device: u32,
    id: AttemptId,
    model: ModelRef,
    place: Place,
    /// The number of the batch that it runs in.
    batch: Option<u64>,
    cancelled: bool,
    /// The job's model found no room when the job began.
    no_room: bool,
    /// The job's run never ends, not even when asked to.
    hangs: bool,
    /// A new coordinator does not know the job.
    abandoned: bool,
}

/// The state of an attempt that the coordinator recalls.
pub(super) enum Recalled {
    Refused,
    Begun,
    /// The attempt has ended, or has not arrived yet.
    Unknown,
}

/// A worker's process, or its place while none runs.
pub(super) struct Worker {
    pub(super) threads: u32,
    /// The most tasks in a batch.
    batch_max: u32,
    /// Batches begun and tasks received since the start of the run.
    batches: u64,
    received: u64,
    /// Counts the processes of this name; events of an earlier process are ignored.
    pub(super) life: u64,
    pub(super) alive: bool,
    /// The present connection. Numbers are never reused.
    pub(super) connection: u64,
    pub(super) last_heard: Duration,
    pub(super) leaving: bool,
    /// The worker is suspended until then.
    pub(super) stalled_until: Duration,
    /// The worker fails most of its runs.
    pub(super) sick: bool,
    pub(super) devices: u32,
    /// The memory for models on each device, in bytes, if limited.
    pub(super) memory: Option<u64>,
    service: Duration,
    jobs: Vec<Job>,
    models: BTreeSet<(u32, ModelRef)>,
    /// Attempts that were recalled or cancelled before they arrived.
    early: BTreeSet<AttemptId>,
    /// Attempts that have ended here.
    ended: BTreeSet<AttemptId>,
    /// Whether the coordinator has welcomed it on its connection.
    welcomed: bool,
    /// The stint of the last welcome.
    stint: Option<Stint>,
    /// The last answers, each with its connection: they may be lost.
    said: Vec<(u64, Report)>,
}

/// Answers that may be in flight.
const SAID: usize = 4;

impl Worker {
    pub(super) fn new(rng: &mut Xoshiro256PlusPlus, sick: f64, small: f64) -> Self {
        // Some machines are a hundred times slower than others, and some runs outlast the lease,
        // which must then be renewed.
        let ms = match rng.random_range(0..20) {
            0 => 2_500,
            1..=4 => 800,
            _ => 8,
        };
        let service = Duration::from_millis(ms);
        Self {
            threads: rng.random_range(1..=4),
            batch_max: if rng.random_bool(0.5) { 1 } else { rng.random_range(2..=4) },
            batches: 0,
            received: 0,
            life: 0,
            alive: false,
            connection: 0,
            last_heard: Duration::ZERO,
            leaving: false,
            stalled_until: Duration::ZERO,
            sick: rng.random_bool(sick),
            devices: if rng.random_bool(0.3) { 2 } else { 1 },
            memory: rng.random_bool(small).then_some(MODEL_BYTES + MODEL_BYTES / 2),
            service,
            jobs: Vec::new(),
            models: BTreeSet::new(),
            early: BTreeSet::new(),
            ended: BTreeSet::new(),
            welcomed: false,
            stint: None,
            said: Vec::new(),
        }
    }

    /// Makes a connection.
    pub(super) fn connect(&mut self, connection: u64) -> Report {
        (self.connection, self.welcomed) = (connection, false);
        Report::Hello(self.stint)
    }

    /// The coordinator welcomes the worker. If it continues the worker's stint, answers that may be
    /// lost are sent again; otherwise the worker's jobs are abandoned.
    pub(super) fn welcomed(&mut self, stint: Stint) -> Vec<Report> {
        self.welcomed = true;
        let resumed = self.stint.replace(stint) == Some(stint);
        let connection = self.connection;
        let said = std::mem::take(&mut self.said).into_iter();
        if !resumed {
            self.jobs.iter_mut().for_each(|job| job.abandoned = true);
            return Vec::new();
        }
        let wanted = self.jobs.iter_mut().filter(|job| !job.abandoned);
        wanted.for_each(|job| job.connection = connection);
        said.filter(|(by, _)| *by != connection).map(|(_, report)| report).collect()
    }

    /// Keeps an answer that may be lost.
    pub(super) fn remember(&mut self, connection: u64, report: &Report) {
        if self.said.len() == SAID {
            self.said.remove(0);
        }
        self.said.push((connection, report.clone()));
    }

    /// The most tasks on each device.
    pub(super) fn places(&self) -> u32 {
        self.threads * self.batch_max
    }

    /// The process starts.
    pub(super) fn start(&mut self) {
        self.life += 1;
        self.alive = true;
        self.leaving = false;
    }

    /// The process crashes, and everything in it is lost.
    pub(super) fn crash(&mut self) {
        self.alive = false;
        self.stint = None;
        self.life += 1;
        self.jobs.clear();
        self.models.clear();
        self.early.clear();
        self.ended.clear();
        self.said.clear();
    }

    pub(super) fn status(&self) -> ExecutorStatus {
        let device = |at| DeviceStatus {
            models: self.models.iter().filter(|(d, _)| *d == at).map(|(_, m)| m.clone()).collect(),
            vram_total_bytes: self.memory,
            ..DeviceStatus::default()
        };
        ExecutorStatus { devices: (0..self.devices).map(device).collect(), unused: Vec::new() }
    }

    /// `None` before the welcome.
    pub(super) fn heartbeats(&self) -> Option<Vec<Heartbeat>> {
        if !self.welcomed {
            return None;
        }
        let mine = self.jobs.iter().filter(|j| j.connection == self.connection);
        let mut held: Vec<_> = mine.map(|j| (j.id, j.batch.is_some())).collect();
        held.sort_unstable();
        Some(Heartbeat::all(&held, self.status()))
    }

    /// Loads a model at once; chance decides whether that fails.
    pub(super) fn load(
        &mut self,
        device: u32,
        model: &ModelRef,
        fails: bool,
    ) -> Result<(), ExecError> {
        let there = self.models.contains(&(device, model.clone()));
        let fails = fails && model.name == MODELS[1] && !there;
        match !fails && self.take(device, model) {
            true => Ok(()),
            false => Err(ExecError::unavailable("does not fit")),
        }
    }

    /// Loads a model if it is missing; false if there is no room.
    fn take(&mut self, device: u32, model: &ModelRef) -> bool {
        let place = (device, model.clone());
        let others = self.models.iter().filter(|other| other.0 == device && **other != place);
        let bytes = MODEL_BYTES * u64::try_from(others.count() + 1).unwrap_or(u64::MAX);
        let fits = self.memory.is_none_or(|memory| bytes <= memory);
        if fits {
            self.models.insert(place);
        }
        fits
    }

    pub(super) fn unload(&mut self, device: u32, model: ModelRef) {
        self.models.remove(&(device, model));
    }
}

/// An output that names the attempt that made it.
pub(super) fn answer(id: AttemptId) -> Vec<NamedTensor> {
    // Two numbers always fit in memory; an empty answer would be detected.
    let made_by = [id.seq, u64::from(id.attempt)];
    Tensor::from_slice([2], &made_by).map(|t| NamedTensor::new("made_by", t)).into_iter().collect()
}
