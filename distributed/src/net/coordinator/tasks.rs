//! Tasks as callers see them: submitted, waited for, looked at, cancelled.

use super::Coordinator;
use crate::error::{Error, Result};
use crate::net::large::{self, Large};
use crate::net::shared::{Checked, Inputs};
use crate::proto::core::Core;
use crate::proto::{Order, request};
use crate::task::{TaskId, TaskRecord, TaskSpec};
use std::sync::Arc;

impl Coordinator {
    /// Accepts a task that lives in memory.
    ///
    /// # Errors
    /// [`Error::InvalidTask`], [`Error::TooLarge`], [`Error::UnknownTask`] for a dependency,
    /// [`Error::Conflict`] for an idempotency key that stands for another body,
    /// [`Error::Overloaded`], [`Error::Draining`], [`Error::Stopped`].
    pub fn submit(&self, spec: TaskSpec) -> Result<TaskId> {
        if spec.durable {
            let message = "a durable task is accepted once the journal has it: wait for that";
            return Err(Error::InvalidTask { message: message.into() });
        }
        let large = match large::is_large(&spec.inputs) {
            true => Some(Arc::new(Large::in_memory(&spec.inputs)?)),
            false => None,
        };
        let order = request::check(spec, self.config.input_bytes_max)?;
        if let Some(large) = large.clone() {
            // Their digest is there sooner than the first attempt asks for it.
            self.shared.runtime().spawn(async move { large.blob().await });
        }
        let inputs = large.map(|large| Inputs { large, claim: None });
        self.shared.submit((order, inputs))
    }

    /// Accepts tasks, all of them or none, and answers their ids in the same order; of durable
    /// ones once the journal has them. Each comes with the positions of those in `tasks` that it
    /// depends on, besides the earlier ones that [`TaskSpec::depends_on`] names.
    ///
    /// # Errors
    /// As [`Coordinator::submit`]; [`Error::InvalidTask`] for tasks that depend on one another in
    /// a circle; [`Error::NoJournal`]; [`Error::NotSaved`] when the journal could not take all of
    /// them: those that it took are cancelled, though some may have run by then.
    pub async fn submit_all(&self, tasks: Vec<(TaskSpec, Vec<usize>)>) -> Result<Vec<TaskId>> {
        let mut checked = Vec::with_capacity(tasks.len());
        for (spec, within) in tasks {
            let (order, inputs) = self.check(spec).await?;
            checked.push((Order { within, ..order }, inputs));
        }
        let (ids, promises, new) = self.shared.submit_durably(checked)?;
        let mut refused = None;
        for promise in promises {
            // Each is waited for: what is not known yet cannot be taken back.
            if let Err(error) = promise.await.unwrap_or(Err(Error::Stopped)) {
                refused = refused.or(Some(error));
            }
        }
        let Some(error) = refused else { return Ok(ids) };
        // What a key stood for already was promised to others.
        for id in ids.into_iter().filter(|id| id.seq >= new) {
            // One that the journal refused is not known any more.
            let _ = self.cancel(id);
        }
        Err(error)
    }

    /// Resolves once the task is terminal, whatever its state then is.
    ///
    /// # Errors
    /// [`Error::UnknownTask`]; [`Error::Stopped`].
    pub async fn wait(&self, id: TaskId) -> Result<TaskRecord> {
        self.shared.wait(id)?.record().await
    }

    /// Submits and waits. Dropping the future does not cancel the task.
    ///
    /// # Errors
    /// As [`Coordinator::submit`]; what becomes of an accepted task is in its record.
    pub async fn run(&self, spec: TaskSpec) -> Result<TaskRecord> {
        let checked = self.check(spec).await?;
        let waiting = self.shared.submit_and_wait(checked)?;
        waiting.record().await
    }

    /// Checks a task. Large inputs are hashed, away from the threads that serve connections, and
    /// those of a durable task are on the disk, for good, before the journal hears of it.
    async fn check(&self, spec: TaskSpec) -> Result<Checked> {
        let bytes_max = self.config.input_bytes_max;
        if !large::is_large(&spec.inputs) {
            return Ok((request::check(spec, bytes_max)?, None));
        }
        let vault = match spec.durable {
            true => Some(self.shared.vault().ok_or(Error::NoJournal)?),
            false => None,
        };
        let checking = tokio::task::spawn_blocking(move || request::check(spec, bytes_max));
        let mut order = checking.await.map_err(|_| Error::Stopped)??;
        let large = Large::in_memory(&order.spec.inputs)?;
        let Some(vault) = vault else {
            large.blob().await?;
            return Ok((order, Some(Inputs { large: Arc::new(large), claim: None })));
        };
        order.queued_bytes = 0;
        if self.shared.with(|core, _| core.foresee(&order))?.is_some() {
            // Its key stands for a task that has them already.
            return Ok((order, Some(Inputs { large: Arc::new(large), claim: None })));
        }
        let (large, claim) = large.store(&vault).await?;
        // From now on they lie there, and take no room in the queue.
        Arc::make_mut(&mut order.spec).inputs.clear();
        Ok((order, Some(Inputs { large: Arc::new(large), claim: Some(claim) })))
    }

    /// What became of a task so far.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], also for finished tasks beyond the retention bounds.
    pub fn task(&self, id: TaskId) -> Result<TaskRecord> {
        self.shared.read(|core, now| core.record(now, id))
    }

    /// Each decision about a task, with the milliseconds since its submission, and what it waits
    /// for now.
    ///
    /// # Errors
    /// [`Error::UnknownTask`].
    pub fn explain(&self, id: TaskId) -> Result<Vec<(f64, String)>> {
        self.shared.read(|core, now| core.explain(now, id))
    }

    /// Every known task without its outputs, newest first.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskRecord> {
        self.shared.read(Core::records)
    }

    /// Cancels a task: at once if it waits; if it runs, its answer will be dropped. A terminal
    /// task stays as it is.
    ///
    /// # Errors
    /// [`Error::UnknownTask`].
    pub fn cancel(&self, id: TaskId) -> Result<TaskRecord> {
        self.shared.with(|core, now| core.cancel(now, id))
    }

    /// Accepts no more tasks and resolves when every accepted one is terminal.
    pub async fn drain(&self) {
        self.shared.with(|core, _| core.drain());
        // Stopped meanwhile: then every task is terminal too.
        let _ = self.until(|core, _| core.is_idle().then_some(())).await;
    }
}
