//! The coordinator: a handle on the core and on the endpoint that workers connect to.

use crate::config::{CoordinatorConfig, unix_ms};
use crate::error::{Error, Result};
use crate::executor::ExecError;
use crate::net::close::Close;
use crate::net::enrol::Limits;
use crate::net::gate::{Gate, Services};
use crate::net::lane::Door;
use crate::net::large::{self, Large};
use crate::net::pki::{Pki, Revocation};
use crate::net::present::Present;
use crate::net::role::Role;
use crate::net::shared::{Checked, Inputs, Shared};
use crate::net::token::Tokens;
use crate::net::transport::SocketWatch;
use crate::net::{attend, journal, tls, transport};
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::models::ModelNeeds;
use crate::proto::request;
use crate::proto::state::{CoreConfig, Timing};
use crate::proto::{Order, balance};
use crate::task::{ModelRef, TaskId, TaskRecord, TaskSpec};
use crate::worker_info::{Stats, Traffic, WorkerId, WorkerInfo, WorkerState};
use quinn::{Endpoint, ServerConfig};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;

/// What the key is made with that connections of earlier coordinators are ended by.
const RESET_LABEL: &str = "legacy-gpu stateless reset";

/// A running coordinator. Clones share it; it runs until [`Coordinator::stop`].
#[derive(Clone)]
pub struct Coordinator {
    shared: Arc<Shared>,
    config: Arc<CoordinatorConfig>,
    addr: SocketAddr,
    /// Taken by `stop`, so that the port becomes free.
    endpoint: Arc<Mutex<Option<(Endpoint, SocketWatch)>>>,
    tokens: Option<Tokens>,
    pki: Pki,
    present: Arc<Present>,
    limits: Arc<Limits>,
    /// Buffers of memory that is shared with workers.
    door: Option<Arc<Door>>,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Listens for workers whose certificates `pki` issued. Must run within a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Pki`], [`Error::UnknownBalancing`]; [`Error::Journal`] where
    /// the journal cannot be used, which is then left as it was.
    pub async fn start(config: CoordinatorConfig, pki: &Pki) -> Result<Self> {
        Self::start_with(config, pki, Services::default()).await
    }

    /// As [`Coordinator::start`], for machines that join with tokens and fetch their models.
    ///
    /// # Errors
    /// As [`Coordinator::start`].
    pub async fn start_with(
        config: CoordinatorConfig,
        pki: &Pki,
        services: Services,
    ) -> Result<Self> {
        let began = Duration::from_millis(unix_ms());
        let path = config.journal.clone();
        let runtime = tokio::runtime::Handle::current();
        let handle = runtime.clone();
        let opening = path.map(|path| {
            tokio::task::spawn_blocking(move || journal::open(&path, unix_ms(), handle))
        });
        let mut prepared = match opening {
            Some(opening) => Some(opening.await.map_err(|_| Error::Stopped)??),
            None => None,
        };
        // A coordinator that starts later must never reuse an epoch: answers to attempts of
        // its predecessor would be taken for its own. A journal remembers the last one; without
        // it the clock has to do.
        let epoch = prepared.as_ref().map_or_else(unix_ms, |prepared| prepared.epoch);
        let settings = core_config(&config, epoch, prepared.is_some())?;
        let heartbeat = settings.timing.heartbeat;
        let core = Core::new(began, settings, rand::random());
        let shared = Arc::new(Shared::new(core, began, runtime));
        if let Some(prepared) = &mut prepared {
            shared.keep_inputs(Arc::clone(&prepared.vault), prepared.apart());
            shared.restore(began, std::mem::take(&mut prepared.images));
        }
        let mut server = ServerConfig::with_crypto(Arc::new(tls::server(pki)?));
        // Workers open one stream for their reports, and others for questions.
        server.transport_config(transport::cautious(attend::ASKS_MAX, 1)).migration(false);
        let settings = transport::successor(pki.secret(RESET_LABEL));
        let (endpoint, watch) = transport::bind_as(settings, config.quic_addr, Some(server))?;
        let addr = endpoint
            .local_addr()
            .map_err(|source| Error::Bind { addr: config.quic_addr, source })?;
        if let Some(prepared) = prepared {
            shared.keep(Arc::new(journal::start(prepared, Arc::downgrade(&shared))?));
        }
        tokio::spawn(Arc::clone(&shared).run_timer());
        let tokens = services.tokens.clone();
        let door = Door::open(config.shared_memory_bytes_max);
        let coordinator = Self {
            shared,
            config: Arc::new(config),
            addr,
            endpoint: Arc::new(Mutex::new(Some((endpoint.clone(), watch)))),
            tokens,
            pki: pki.clone(),
            present: Arc::default(),
            limits: Limits::new(),
            door: door.clone(),
        };
        let gate = Gate::new(coordinator.clone(), services, (epoch, heartbeat), door);
        tokio::spawn(gate.accept(endpoint));
        Ok(coordinator)
    }

    /// The settings it was started with.
    #[must_use]
    pub fn config(&self) -> &CoordinatorConfig {
        &self.config
    }

    /// The UDP address that workers connect to.
    #[must_use]
    pub fn quic_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The tokens that let machines join, if it was started with any.
    #[must_use]
    pub fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    pub(super) fn present(&self) -> &Arc<Present> {
        &self.present
    }

    /// The authority whose certificates it accepts.
    #[must_use]
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Revokes every certificate that a member was given so far: it can neither connect nor renew
    /// with it, and its connections are closed; answers how many it had. Certificates that it is
    /// given for another token later are good. Join tokens that it has made, as an administrator may,
    /// are taken back; who joined with one stays. The authority's folder keeps the revocation until
    /// the last of the certificates would have expired. Once begun, this goes on to its end, also
    /// where its future is dropped.
    ///
    /// Members that know one another's addresses, as ranks of a ring may, find out nothing.
    ///
    /// # Errors
    /// [`Error::TokenLimit`] when too many members are revoked at once, and then nothing happened.
    /// [`Error::File`] where it cannot be written down: then it was done all the same, and holds
    /// until the coordinator restarts.
    pub async fn revoke(&self, role: Role, name: WorkerId) -> Result<(Revocation, usize)> {
        let own = self.clone();
        // What is begun there, nobody who gives up can end halfway.
        let revoking = tokio::task::spawn_blocking(move || {
            let (revocation, kept) = own.pki.revoke(role, name)?;
            let name = &revocation.name;
            let closed = own.present.send_away(|m| own.pki.is_revoked(m), (role, name));
            if role == Role::Worker {
                // It may have been kept for a machine that joined a moment ago.
                own.limits.release(name);
            }
            let maker = (role, name.clone());
            let taken = own.tokens.as_ref().map(|tokens| tokens.take_back(&maker));
            let (tokens, forgotten) = taken.unwrap_or_else(|| (Vec::new(), Ok(())));
            tracing::warn!(%role, %name, closed, ?tokens, "certificates were revoked");
            kept.and(forgotten).map_err(|error| match error {
                Error::File { path, source, .. } => {
                    let what = "keep a revocation, which holds until the coordinator restarts, in";
                    tracing::error!(%role, %name, path = %path.display(), %source, "cannot {what}");
                    Error::File { what, path, source }
                }
                other => other,
            })?;
            Ok::<_, Error>((revocation, closed))
        });
        revoking.await.map_err(|_| Error::Stopped)?
    }

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

    /// Every worker, by name; lost ones stay listed for ten minutes.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerInfo> {
        self.shared.read(Core::workers)
    }

    /// One worker.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`].
    pub fn worker(&self, id: &str) -> Result<WorkerInfo> {
        self.workers().into_iter().find(|w| w.id.as_str() == id).ok_or_else(|| unknown(id))
    }

    /// Asks a worker to finish what it holds and leave.
    ///
    /// # Errors
    /// [`Error::UnknownWorker`], also for a lost one.
    pub fn shutdown_worker(&self, id: &str) -> Result<()> {
        let found = self.shared.with(|core, _| core.drain_worker(id));
        if found { Ok(()) } else { Err(unknown(id)) }
    }

    /// For a supervisor that saw a worker's process end: its tasks are redone at once instead
    /// of after the two seconds that silence takes to be noticed.
    pub fn worker_exited(&self, id: &str) {
        self.shared.with(|core, now| core.worker_exited(now, id));
    }

    /// Resolves once at least `count` workers are ready.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn wait_for_workers(&self, count: usize) -> Result<()> {
        let ready = |core: &Core, now| {
            let workers = core.workers(now);
            let ready = workers.iter().filter(|w| w.state == WorkerState::Ready).count();
            (ready >= count).then_some(())
        };
        self.until(ready).await
    }

    /// Has every device with room for the model load it, also those of workers that join later;
    /// where none has room, idle models make some on one. Answers what became of it at each
    /// worker that was to load it; a worker that failed gets no tasks of the model. A model that
    /// has left a device for another comes back when its tasks need it.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn load(&self, model: ModelRef) -> Result<Vec<(WorkerId, Result<(), ExecError>)>> {
        self.load_where(model, ModelNeeds::default()).await
    }

    /// The same for a model that asks something of the devices that run it.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn load_where(
        &self,
        model: ModelRef,
        needs: ModelNeeds,
    ) -> Result<Vec<(WorkerId, Result<(), ExecError>)>> {
        self.shared.with(|core, now| core.load(now, &model, needs));
        self.until(|core, _| core.load_report(&model)).await
    }

    /// Whether no device of a worker is about to load a model; false where there is no such worker.
    #[must_use]
    pub fn is_settled(&self, worker: &str) -> bool {
        self.shared.read(|core, _| core.is_settled(worker))
    }

    /// Says anew what a model that was loaded asks of the devices that run it; nothing for others.
    pub fn set_needs(&self, model: &ModelRef, needs: ModelNeeds) {
        self.shared.with(|core, now| core.set_needs(now, model, needs));
    }

    /// Whether a model that was loaded lies on no device because others need the room: it comes
    /// back when a task needs it.
    #[must_use]
    pub fn is_parked(&self, model: &ModelRef) -> bool {
        self.shared.read(|core, _| core.is_parked(model))
    }

    /// Has every worker let go of the model.
    pub fn unload(&self, model: &ModelRef) {
        self.shared.with(|core, now| core.unload(now, model));
    }

    /// What happens from now on, each with the milliseconds since 1970. A subscriber that reads too
    /// slowly misses some, and is told how many ([`Event::Missed`]).
    #[must_use]
    pub fn events(&self) -> Events {
        Events(self.shared.events.subscribe())
    }

    /// Tells subscribers of something that this coordinator cannot see itself.
    pub fn announce(&self, event: Event) {
        self.shared.with(|core, _| core.tell(event));
    }

    /// Models that the cluster is to have.
    #[must_use]
    pub fn models(&self) -> Vec<ModelRef> {
        self.shared.read(|core, _| core.models())
    }

    /// Totals.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared_buffers = self.door.as_ref().map(|door| door.buffers()).unwrap_or_default();
        Stats { shared_buffers, ..self.shared.read(Core::stats) }
    }

    /// What travelled between this coordinator and the workers that are connected now.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.shared.traffic()
    }

    /// The balancing strategy in use.
    #[must_use]
    pub fn balancing(&self) -> &'static str {
        self.shared.read(|core, _| core.balancing())
    }

    /// Switches the balancing strategy, for tasks that are not yet dispatched.
    ///
    /// # Errors
    /// [`Error::UnknownBalancing`], with the names that exist.
    pub fn set_balancing(&self, name: &str) -> Result<()> {
        let strategy = balance::by_name(name)?;
        self.shared.with(|core, _| core.set_balancing(strategy));
        Ok(())
    }

    /// Accepts no more tasks and resolves when every accepted one is terminal.
    pub async fn drain(&self) {
        self.shared.with(|core, _| core.drain());
        // Stopped meanwhile: then every task is terminal too.
        let _ = self.until(|core, _| core.is_idle().then_some(())).await;
    }

    /// Resolves when the journal takes no more, with the reason. The coordinator can no longer
    /// keep its promises then, and should be stopped and started anew.
    pub async fn journal_broken(&self) -> Error {
        let broken = self.until_any(|| self.shared.journal_error());
        broken.await.map_or_else(|error| error, Error::from)
    }

    /// Copies the journal to a new file while the coordinator goes on: a consistent state of one
    /// moment, which a coordinator can be started on. Large inputs of its tasks go to a folder
    /// beside it, which has its name and `.inputs` after it and belongs to it. Until they are
    /// complete both have `.new` after that: what is left of a copy that was cut off goes with the
    /// next one to the same place.
    ///
    /// # Errors
    /// [`Error::NoJournal`]; [`Error::Journal`], also where the file or the folder exists already.
    /// A folder without its file may be that of a copy that was moved, or of one that was cut off
    /// between getting the two names.
    pub async fn back_up(&self, to: PathBuf) -> Result<()> {
        let writer = self.shared.writer().ok_or(Error::NoJournal)?;
        let vault = self.shared.vault().ok_or(Error::NoJournal)?;
        // What the copy refers to was there before its moment, and stays until it is copied.
        let pause = vault.pause().await;
        let copy = tokio::task::spawn_blocking(move || {
            let _pause = pause;
            vault.back_up(&writer, &to)
        });
        Ok(copy.await.map_err(|_| Error::Stopped)??)
    }

    /// Bytes of the journal's file.
    ///
    /// # Errors
    /// [`Error::NoJournal`]; [`Error::Journal`].
    pub fn journal_bytes(&self) -> Result<u64> {
        Ok(self.shared.writer().ok_or(Error::NoJournal)?.upkeep().size_bytes()?)
    }

    /// Gives the disk what the journal no longer needs; true when that was anything.
    ///
    /// # Errors
    /// [`Error::NoJournal`]; [`Error::Journal`].
    pub async fn compact(&self) -> Result<bool> {
        let writer = self.shared.writer().ok_or(Error::NoJournal)?;
        let compacted = tokio::task::spawn_blocking(move || writer.compact());
        Ok(compacted.await.map_err(|_| Error::Stopped)??)
    }

    /// Fails what is neither terminal nor durable, closes every connection and frees the port.
    /// Durable tasks wait in the journal for the next coordinator.
    pub async fn stop(&self) {
        self.shared.stop();
        // Before the journal is free for another coordinator.
        if let Some(vault) = self.shared.vault() {
            vault.close().await;
        }
        let shared = Arc::clone(&self.shared);
        // What waits is still written.
        let closed = tokio::task::spawn_blocking(move || shared.close_journal());
        if let Err(error) = closed.await {
            tracing::error!(%error, "the journal's thread did not end well");
        }
        let endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((endpoint, watch)) = endpoint else { return };
        endpoint.close(Close::Stopping.code(), Close::Stopping.reason().as_bytes());
        let closed = async {
            endpoint.wait_idle().await;
            drop(endpoint);
            watch.closed().await;
        };
        // Workers that are gone cannot confirm.
        let _ = tokio::time::timeout(Duration::from_secs(2), closed).await;
    }

    /// Waits until `look` finds what it looks for in the core.
    async fn until<R>(&self, look: impl Fn(&Core, Duration) -> Option<R>) -> Result<R> {
        self.until_any(|| self.shared.read(&look)).await
    }

    /// Looks after each change, until something is found.
    async fn until_any<R>(&self, look: impl Fn() -> Option<R>) -> Result<R> {
        loop {
            // Created before looking: it counts every change from here on.
            let changed = self.shared.changed.notified();
            if let Some(found) = look() {
                return Ok(found);
            }
            if self.shared.is_stopped() {
                return Err(Error::Stopped);
            }
            changed.await;
        }
    }
}

/// A subscription to [`Coordinator::events`].
#[derive(Debug)]
pub struct Events(broadcast::Receiver<(Duration, Event)>);

impl Events {
    /// The next event and its time; `None` once the coordinator is gone.
    pub async fn next(&mut self) -> Option<(u64, Event)> {
        let ms = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        match self.0.recv().await {
            Ok((at, event)) => Some((ms(at), event)),
            Err(broadcast::error::RecvError::Lagged(count)) => {
                Some((unix_ms(), Event::Missed { count }))
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

fn core_config(config: &CoordinatorConfig, epoch: u64, durable: bool) -> Result<CoreConfig> {
    Ok(CoreConfig {
        epoch,
        balancing: balance::by_name(&config.balancing)?,
        queue_tasks_max: config.queue_tasks_max,
        queue_bytes_max: config.queue_bytes_max,
        retained_tasks_max: config.retained_tasks_max,
        retained_bytes_max: config.retained_bytes_max,
        keys_kept_for: Duration::from_secs(config.keys_kept_for_s),
        keys_max: config.keys_max,
        durable,
        thrift: config.thrift_ms_per_joule,
        timing: Timing::default(),
    })
}

fn unknown(id: &str) -> Error {
    Error::UnknownWorker { id: id.chars().take(64).collect() }
}
