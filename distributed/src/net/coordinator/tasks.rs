//! Tasks as callers see them: submit, wait, read, cancel.

use super::Coordinator;
use crate::error::{Error, Result};
use crate::net::call::{Client, PeerCall, Told};
use crate::net::coordinator::backlog::Room;
use crate::net::coordinator::core_handle::{Checked, Inputs, Submitted};
use crate::net::coordinator::stored;
use crate::net::outside::planted_here;
use crate::net::transfer::tensors::{self, Large};
use crate::proto::core::Found;
use crate::proto::message::AttemptId;
use crate::proto::{Order, request};
use crate::run_trace::RunTrace;
use crate::task::{ModelRef, TaskFilter, TaskId, TaskPage, TaskRecord, TaskSpec, TaskState};
use std::sync::Arc;
use std::time::Duration;

impl Coordinator {
    /// Accepts a task that is kept in memory only.
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
        let large = match tensors::is_large(&spec.inputs) {
            true => Some(Arc::new(Large::in_memory(&spec.inputs)?)),
            false => None,
        };
        let order = request::check(spec, self.config.input_bytes_max)?;
        if let Some(large) = large.clone() {
            // Hash the inputs now: the first attempt needs their digest.
            self.shared.runtime().spawn(async move { large.blob().await });
        }
        let inputs = large.map(|large| Inputs { large, claim: None });
        self.shared.submit((order, inputs))
    }

    /// Accepts tasks, all of them or none, and returns their ids in the same order; with durable
    /// tasks, once the journal has them. Each task comes with the positions in `tasks` of tasks
    /// that it depends on, besides the earlier tasks that [`TaskSpec::depends_on`] names.
    ///
    /// # Errors
    /// As [`Coordinator::submit`]; [`Error::InvalidTask`] for tasks that depend on one another in a
    /// circle; [`Error::NoJournal`]; [`Error::NotSaved`] when the journal could not take the
    /// durable tasks: none of them is kept, and none has run; [`Error::Backlog`] when the journal
    /// had no room for them in time. Where there are several coordinators, [`Error::NoLeader`], and
    /// [`Error::HandedOver`] for tasks without keys, which the next leader may have.
    pub async fn submit_all(&self, tasks: Vec<(TaskSpec, Vec<usize>)>) -> Result<Vec<TaskId>> {
        self.submit_or_pass_on(tasks).await
    }

    pub(super) async fn submit_here(
        &self,
        tasks: Vec<(TaskSpec, Vec<usize>)>,
    ) -> Result<Vec<TaskId>> {
        let mut room = self.room_for(tasks.iter().map(|(spec, _)| spec)).await?;
        let mut checked = Vec::with_capacity(tasks.len());
        for (spec, within) in tasks {
            let (order, inputs) = self.check(spec).await?;
            checked.push((Order { within, ..order }, inputs));
        }
        loop {
            match self.shared.submit_all(checked, &mut room)? {
                Submitted::Now((ids, None)) => return Ok(ids),
                Submitted::Now((ids, Some(promise))) => {
                    if planted_here!(AcknowledgeEarly) {
                        return Ok(ids);
                    }
                    return promise.answer().await.map(|()| ids);
                }
                Submitted::After(undecided, again) => {
                    undecided.decided().await?;
                    checked = again;
                }
            }
        }
    }

    /// The task that an idempotency key stands for, and the digest of its request: [`TaskSpec::request_digest`],
    /// or a digest of the whole task. A durable task must be in the journal first.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::NoLeader`].
    pub async fn keyed(&self, key: &str) -> Result<Option<(TaskId, [u8; 32])>> {
        loop {
            // A key keeps its task when the leader changes.
            if self.leads()
                && let Submitted::Now(Some(known)) = self.shared.keyed(key)
            {
                return Ok(Some(known));
            }
            if let Some(known) = self.keyed_elsewhere(key).await? {
                return Ok(known);
            }
            match self.shared.keyed(key) {
                // The lead was lost meanwhile, and the keys with it: ask the new leader.
                Submitted::Now(None) if !self.leads() => {}
                Submitted::Now(known) => return Ok(known),
                Submitted::After(undecided, ()) => undecided.decided().await?,
            }
        }
    }

    /// Reserves room at the journal for the durable tasks among `specs`.
    async fn room_for(&self, specs: impl Iterator<Item = &TaskSpec>) -> Result<Option<Room>> {
        /// Approximate size of a task without its inputs.
        const TASK_BYTES: usize = 512;
        let durable = specs.filter(|spec| spec.durable);
        let bytes = durable.map(|spec| tensors::bytes_of(&spec.inputs) + TASK_BYTES);
        match bytes.fold(0, usize::saturating_add) {
            0 => Ok(None),
            bytes => self.shared.backlog.reserve(bytes).await.map(Some),
        }
    }

    /// Resolves once the task is terminal, whatever its state then is.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], [`Error::Expired`]; [`Error::Stopped`]; [`Error::NoLeader`].
    pub async fn wait(&self, id: TaskId) -> Result<TaskRecord> {
        loop {
            if let Some(record) = self.record_elsewhere(id, || PeerCall::Wait(id)).await? {
                return Ok(record);
            }
            let ended = match self.shared.wait(id) {
                Ok(waiting) => waiting.record(&self.shared).await,
                Err(error) => Err(error),
            };
            match ended {
                // Ask the new leader.
                Err(Error::HandedOver) if self.peers.is_some() => {}
                ended => return ended,
            }
        }
    }

    /// The trace that a worker reported of an attempt's run, for a task with [`TaskSpec::traced`]. It can be
    /// taken once, while it is among the last 64. A run whose answer came over another connection than its
    /// request has none.
    #[must_use]
    pub fn run_trace(&self, task: TaskId, attempt: u32) -> Option<RunTrace> {
        let TaskId { epoch, seq } = task;
        self.shared.run_traces.take(AttemptId { epoch, seq, attempt })
    }

    /// Submits and waits. Dropping the future does not cancel the task.
    ///
    /// # Errors
    /// As [`Coordinator::submit_all`]; the record says how an accepted task ended.
    pub async fn run(&self, spec: TaskSpec) -> Result<TaskRecord> {
        if self.peers.is_some() && (spec.durable || self.must_lead_now(&spec)) {
            // Another coordinator may accept the task, and report its end.
            let ids = self.submit_all(vec![(spec, Vec::new())]).await?;
            return self.wait(ids.first().copied().ok_or(Error::Stopped)?).await;
        }
        let mut room = self.room_for(std::iter::once(&spec)).await?;
        let mut checked = self.check(spec).await?;
        loop {
            match self.shared.submit_and_wait(checked, &mut room)? {
                Submitted::Now(waiting) => return waiting.record(&self.shared).await,
                Submitted::After(undecided, again) => {
                    undecided.decided().await?;
                    checked = again;
                }
            }
        }
    }

    /// Checks a task. Large inputs are hashed away from the threads that serve connections. Large
    /// inputs of a durable task are durable on disk before the journal hears of the task.
    async fn check(&self, spec: TaskSpec) -> Result<Checked> {
        let bytes_max = self.config.input_bytes_max;
        if !tensors::is_large(&spec.inputs) {
            return Ok((request::check(spec, bytes_max)?, None));
        }
        let blob_store = match spec.durable {
            true => Some(self.shared.blob_store().ok_or(Error::NoJournal)?),
            false => None,
        };
        let checking = tokio::task::spawn_blocking(move || request::check(spec, bytes_max));
        let mut order = checking.await.map_err(|_| Error::Stopped)??;
        let large = Large::in_memory(&order.spec.inputs)?;
        let Some(blob_store) = blob_store else {
            large.blob().await?;
            return Ok((order, Some(Inputs { large: Arc::new(large), claim: None })));
        };
        order.queued_bytes = 0;
        if self.shared.with(|core, _| core.foresee(&order))?.is_some() {
            // The key stands for an earlier task, which has these inputs already.
            return Ok((order, Some(Inputs { large: Arc::new(large), claim: None })));
        }
        let (large, claim) = large.store(&blob_store).await?;
        // The inputs now lie in the blob store, and take no room in the queue.
        Arc::make_mut(&mut order.spec).inputs.clear();
        Ok((order, Some(Inputs { large: Arc::new(large), claim: Some(claim) })))
    }

    /// A task's record as it is now.
    ///
    /// # Errors
    /// [`Error::UnknownTask`]; [`Error::Expired`] for an accepted task whose result is gone;
    /// [`Error::ResultLost`], [`Error::ResultUnread`]; [`Error::Journal`] where the record cannot
    /// be read back, [`Error::Stopped`]; [`Error::NoLeader`] where only another coordinator can
    /// answer, and is not reached within some 10 s.
    pub async fn task(&self, id: TaskId) -> Result<TaskRecord> {
        if let Some(record) = self.record_elsewhere(id, || PeerCall::Task(id)).await? {
            return Ok(record);
        }
        self.found(self.shared.give(id)?).await
    }

    /// Bytes of a task's outputs that [`Coordinator::task`] would read from a separate file; 0
    /// where the outputs are in memory or in the journal.
    ///
    /// # Errors
    /// As [`Coordinator::task`].
    pub async fn stored_bytes(&self, id: TaskId) -> Result<u64> {
        match self.told_elsewhere(id, || PeerCall::StoredBytes(id)).await? {
            None => {}
            Some(Told::Count(bytes)) => return Ok(bytes),
            Some(_) => return Err(Client::odd()),
        }
        match self.shared.read(|core, _| core.is_stored(id))? {
            true => stored::bytes_apart(&self.shared, id).await,
            false => Ok(0),
        }
    }

    async fn found(&self, found: Found) -> Result<TaskRecord> {
        match found {
            Found::Here(record) => Ok(*record),
            Found::Stored(id) => stored::record(&self.shared, id).await,
        }
    }

    /// The state of a task of this coordinator, also of one whose result is gone while its key stands.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], [`Error::Expired`].
    pub fn state(&self, id: TaskId) -> Result<TaskState> {
        self.shared.read(|core, _| core.state(id))
    }

    /// The state of a task, also of one that another coordinator has.
    ///
    /// # Errors
    /// As [`Coordinator::task`].
    pub async fn state_of(&self, id: TaskId) -> Result<TaskState> {
        match self.told_elsewhere(id, || PeerCall::State(id)).await? {
            None => self.state(id),
            Some(Told::State(state)) => Ok(state),
            Some(_) => Err(Client::odd()),
        }
    }

    /// The model of a task, also of one whose result is gone while its key stands.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], [`Error::Expired`]; [`Error::NoLeader`].
    pub async fn model_of(&self, id: TaskId) -> Result<Arc<ModelRef>> {
        match self.told_elsewhere(id, || PeerCall::ModelOf(id)).await? {
            None => {}
            Some(Told::Model(model)) => return Ok(Arc::new(model)),
            Some(_) => return Err(Client::odd()),
        }
        self.shared.read(|core, _| core.model_of(id))
    }

    /// Discards the result of an ended task; returns the task's state once the journal no longer
    /// has the result.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], [`Error::Expired`]; [`Error::NotEnded`]; [`Error::Stopped`] where
    /// the journal takes no more changes; [`Error::NoLeader`].
    pub async fn let_go(&self, id: TaskId) -> Result<TaskState> {
        match self.told_elsewhere(id, || PeerCall::LetGo(id)).await? {
            None => {}
            Some(Told::State(state)) => return Ok(state),
            Some(_) => return Err(Client::odd()),
        }
        let (state, forgotten) = self.shared.let_go(id)?;
        if let Some(forgotten) = forgotten {
            forgotten.await.map_err(|_| Error::Stopped)?;
        }
        Ok(state)
    }

    /// Each decision about a task, with the milliseconds since its submission, and what the task
    /// waits for now.
    ///
    /// # Errors
    /// As [`Coordinator::task`].
    pub async fn explain(&self, id: TaskId) -> Result<Vec<(f64, String)>> {
        match self.told_elsewhere(id, || PeerCall::Explain(id)).await? {
            None => {}
            Some(Told::Story(lines)) => return Ok(lines),
            Some(_) => return Err(Client::odd()),
        }
        match self.shared.read(|core, now| core.explain(now, id))? {
            Found::Here(lines) => Ok(lines),
            Found::Stored(id) => stored::story(&self.shared, id).await,
        }
    }

    /// A page of the tasks whose results are kept or still to come.
    ///
    /// # Errors
    /// [`Error::Journal`] where some cannot be read back, [`Error::Stopped`]; [`Error::NoLeader`].
    pub async fn tasks(&self, filter: &TaskFilter) -> Result<TaskPage> {
        loop {
            let of_leader = self.tasks_of_leader(filter).await?;
            // Read second: taking the lead in between brings the old leader's tasks here.
            let own = self.tasks_here(filter).await?;
            match of_leader {
                Some(of_leader) => return Ok(TaskPage::merge(own, of_leader, filter.limit)),
                // The lead was lost meanwhile: ask the new leader, which has the tasks.
                None if !self.leads() => {}
                None => return Ok(own),
            }
        }
    }

    async fn tasks_here(&self, filter: &TaskFilter) -> Result<TaskPage> {
        let mut below = filter.after.map_or(u64::MAX, |id| id.seq);
        let mut found = Vec::new();
        let more = loop {
            let left = filter.limit.saturating_sub(found.len());
            let page = self.shared.read(|core, now| core.page(now, filter, below, left));
            found.extend(page.found);
            match page.below {
                None => break false,
                Some(_) if found.len() >= filter.limit => break true,
                // The core looked at many tasks and few matched: let other callers have a turn.
                Some(next) => below = next,
            }
            tokio::task::yield_now().await;
        };
        let id = |found: &Found<TaskRecord>| match found {
            Found::Here(record) => record.task_id,
            Found::Stored(id) => *id,
        };
        let next = found.last().map(id).filter(|_| more);
        let ids = found.iter().filter(|found| matches!(found, Found::Stored(_))).map(id);
        let mut read = stored::summaries(&self.shared, ids.collect()).await?.into_iter();
        let tasks = found.into_iter().filter_map(|found| match found {
            Found::Here(record) => Some(record),
            Found::Stored(_) => read.next().flatten(),
        });
        Ok(TaskPage { tasks: tasks.collect(), next })
    }

    /// Tasks that have not ended and end with this coordinator, because no journal has them.
    #[must_use]
    pub fn fleeting(&self) -> usize {
        self.shared.read(|core, _| core.fleeting())
    }

    /// Cancels a task. A waiting task ends at once; a running task's answer will be dropped. A
    /// terminal task stays as it is.
    ///
    /// # Errors
    /// As [`Coordinator::task`].
    pub async fn cancel(&self, id: TaskId) -> Result<TaskRecord> {
        if let Some(record) = self.record_elsewhere(id, || PeerCall::Cancel(id)).await? {
            return Ok(record);
        }
        let found = self.shared.with(|core, now| core.cancel(now, id))?;
        self.found(found).await
    }

    /// Submits a task that failed or was cancelled at this coordinator again; returns the new task, which has no
    /// idempotency key. The inputs of the last 256 such tasks are kept, up to 16 MiB of them.
    ///
    /// # Errors
    /// [`Error::NotEnded`]; [`Error::InputsGone`] for a task that succeeded or whose inputs are not
    /// kept; [`Error::UnknownTask`], [`Error::Expired`]; as [`Coordinator::submit_all`].
    pub async fn retry(&self, id: TaskId) -> Result<TaskId> {
        let spec = self.shared.with(|core, _| core.again(id))?;
        let ids = self.submit_all(vec![(spec, Vec::new())]).await?;
        ids.first().copied().ok_or(Error::Stopped)
    }

    /// Cancels a task whose result no caller wants any more.
    ///
    /// # Errors
    /// [`Error::UnknownTask`], [`Error::Expired`].
    pub fn give_up(&self, id: TaskId) -> Result<()> {
        self.shared.with(|core, now| core.cancel(now, id)).map(drop)
    }

    /// Accepts no more tasks and resolves when every accepted task is terminal. Where there are
    /// other coordinators, this one gives up the lead, and durable tasks pass to the next leader.
    pub async fn drain(&self) {
        if let Some(peers) = &self.peers {
            peers.retire();
            while self.leading().is_some() && !self.shared.is_stopped() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        self.shared.with(|core, _| core.drain());
        // An error means that the coordinator stopped: then every task is terminal, too.
        let _ = self.until(|core, _| core.is_idle().then_some(())).await;
    }
}
