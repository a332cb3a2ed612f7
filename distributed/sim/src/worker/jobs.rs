//! The tasks of a worker: they arrive, run, end, and are returned.

use super::{Job, Recalled, Report, Worker, answer};
use crate::workload::BAD_MODEL;
use lgp_distributed::inside::message::AttemptId;
use lgp_distributed::inside::queue::{Place, aged};
use lgp_distributed::inside::state::Completion;
use lgp_distributed::{ExecError, ModelRef, Priority};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::collections::BTreeSet;
use std::time::Duration;

impl Worker {
    /// A task arrives. A repeated message is ignored, because the transport sends each task once,
    /// on its own stream.
    pub(crate) fn receive(
        &mut self,
        now: Duration,
        device: u32,
        id: AttemptId,
        model: &ModelRef,
        priority: Priority,
    ) -> Option<Report> {
        if self.leaving || self.early.contains(&id) {
            return Some(Report::Completion(id, Completion::Refused));
        }
        if !self.ended.contains(&id) && !self.jobs.iter().any(|j| j.id == id) {
            let (connection, model) = (self.connection, model.clone());
            self.received += 1;
            let place = Place::new(aged(now, priority), self.received);
            let job = Job {
                connection,
                device,
                id,
                model,
                place,
                batch: None,
                cancelled: false,
                no_room: false,
                hangs: false,
                abandoned: false,
            };
            self.jobs.push(job);
        }
        None
    }

    /// Begins jobs while their devices have free threads, in batches of one model; returns each
    /// with its service time and the size of its batch.
    pub(crate) fn begin(
        &mut self,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Vec<(AttemptId, Duration, usize)> {
        let narrow = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let mut begun = Vec::new();
        self.jobs.sort_by_key(|job| job.place);
        for device in 0..self.devices {
            let here = self.jobs.iter().filter(|j| j.device == device);
            let running: BTreeSet<u64> = here.filter_map(|j| j.batch).collect();
            for _ in running.len()..narrow(self.threads) {
                let waits = |j: &&Job| j.device == device && j.batch.is_none();
                let mut waiting = self.jobs.iter().filter(waits);
                let Some(first) = waiting.next() else { break };
                let model = first.model.clone();
                let others = waiting.filter(|j| j.model == model).take(narrow(self.batch_max) - 1);
                let batch: Vec<u64> =
                    std::iter::once(first).chain(others).map(|j| j.place.seq()).collect();
                // The model of a task is loaded, unless the input is rejected first.
                let no_room = model.name != BAD_MODEL && !self.take(device, &model);
                let (size, service) =
                    (batch.len(), self.service.mul_f64(rng.random_range(0.2..2.0)));
                self.batches += 1;
                for job in self.jobs.iter_mut().filter(|j| batch.contains(&j.place.seq())) {
                    (job.batch, job.no_room) = (Some(self.batches), no_room);
                    begun.push((job.id, service, size));
                }
            }
        }
        begun
    }

    /// A job ends; returns its connection and the message for it.
    pub(crate) fn end(&mut self, id: AttemptId, device_error: bool) -> Option<(u64, Report)> {
        let index = self.jobs.iter().position(|j| j.id == id && j.batch.is_some())?;
        let job = self.jobs.remove(index);
        self.ended.insert(id);
        if job.cancelled {
            return Some((job.connection, Report::Released(id)));
        }
        let model = self.service;
        let completion = if device_error || job.no_room {
            Completion::Error { error: ExecError::unavailable("out of memory"), model }
        } else if job.model.name == BAD_MODEL {
            Completion::Error { error: ExecError::bad_input("expected rank 4"), model }
        } else {
            Completion::Done { outputs: answer(id), model, batch: 1, joined: false }
        };
        Some((job.connection, Report::Completion(id, completion)))
    }

    /// From now on the run of an attempt does not end.
    pub(crate) fn hang(&mut self, id: AttemptId) {
        self.jobs.iter_mut().filter(|job| job.id == id).for_each(|job| job.hangs = true);
    }

    /// Whether a run of an earlier connection does not end.
    pub(crate) fn is_stuck(&self) -> bool {
        self.jobs.iter().any(|job| job.hangs && job.connection != self.connection)
    }

    /// Whether the run of an attempt ends when asked to.
    pub(crate) fn stops(&self, id: AttemptId) -> bool {
        self.jobs.iter().any(|job| job.id == id && job.batch.is_some() && !job.hangs)
    }

    /// Cancels an attempt.
    pub(crate) fn cancel(&mut self, id: AttemptId) -> Option<Report> {
        let Some(index) = self.jobs.iter().position(|j| j.id == id) else {
            // A reset stream does not deliver its request later.
            self.early.insert(id);
            return None;
        };
        if self.jobs[index].batch.is_some() {
            self.jobs[index].cancelled = true;
            return None;
        }
        self.jobs.remove(index);
        self.ended.insert(id);
        Some(Report::Released(id))
    }

    /// The coordinator recalls an attempt; it is returned unless it has begun.
    pub(crate) fn recall(&mut self, id: AttemptId) -> Recalled {
        let Some(index) = self.jobs.iter().position(|j| j.id == id) else {
            self.early.insert(id);
            return Recalled::Unknown;
        };
        if self.jobs[index].batch.is_some() {
            return Recalled::Begun;
        }
        self.jobs.remove(index);
        self.ended.insert(id);
        Recalled::Refused
    }

    /// The worker leaves; unbegun attempts of its connection are returned.
    pub(crate) fn leave(&mut self) -> Vec<AttemptId> {
        self.leaving = true;
        let connection = self.connection;
        let goes = |j: &Job| j.connection == connection && j.batch.is_none();
        let refused = self.jobs.iter().filter(|j| goes(j)).map(|j| j.id).collect();
        self.jobs.retain(|j| !goes(j));
        refused
    }
}
