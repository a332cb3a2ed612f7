//! The core behind its lock, and the carrying out of what it wants done.

use crate::control::writer::Writer;
use crate::error::{Error, JournalError, Result};
use crate::net::close::Close;
use crate::net::lane::Berth;
use crate::net::large::{Claim, Large, Offers, Vault};
use crate::net::{exchange, journal};
use crate::proto::Order;
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::frame;
use crate::proto::image::{Apart, Change, Image};
use crate::proto::message::{AttemptId, Kind, Place};
use crate::proto::state::{Action, Completion, SessionId};
use crate::task::{TaskId, TaskRecord};
use crate::worker_info::Traffic;
use quinn::Connection;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;

/// The journal's word on one task, there or to come.
pub(super) type Promise = oneshot::Receiver<Result<()>>;

/// What the tasks of a coordinator share.
pub(super) struct Shared {
    state: Mutex<State>,
    started: Instant,
    /// Wall time at the start: the core's clock begins there and never jumps.
    began: Duration,
    runtime: tokio::runtime::Handle,
    /// Workers or models changed, or the last open task finished.
    pub(super) changed: Notify,
    /// Inputs that workers may ask for.
    pub(super) offers: Arc<Offers>,
    /// The core's next timeout came closer.
    sooner: Notify,
    /// What happened, with the wall time.
    pub(super) events: broadcast::Sender<(Duration, Event)>,
}

/// Events that a slow subscriber may be behind by before it misses some.
const EVENTS_KEPT: usize = 1_024;

struct State {
    core: Core,
    sessions: HashMap<SessionId, Session>,
    waiters: HashMap<u64, Vec<oneshot::Sender<Result<TaskRecord>>>>,
    /// Who waits for the journal to have a task.
    acceptors: HashMap<u64, Vec<oneshot::Sender<Result<()>>>>,
    /// Large inputs of tasks that are not terminal.
    larges: HashMap<u64, Arc<Large>>,
    /// Takes the journal's changes, if there is a journal.
    writer: Option<Arc<Writer>>,
    /// Keeps large inputs of the journal's tasks.
    vault: Option<Arc<Vault>>,
    /// Why the journal takes no more.
    broken: Option<JournalError>,
    /// When the timer wakes next; `None` while it decides.
    wakes_at: Option<Duration>,
    stopped: bool,
}

/// A connection as the core's actions need it.
pub(super) struct Session {
    pub(super) connection: Connection,
    /// Frames for the control stream.
    pub(super) control: mpsc::UnboundedSender<Vec<u8>>,
    berth: Arc<Berth>,
    attempts: HashMap<AttemptId, AbortHandle>,
}

impl Session {
    pub(super) fn new(
        connection: Connection,
        control: mpsc::UnboundedSender<Vec<u8>>,
        berth: Arc<Berth>,
    ) -> Self {
        Self { connection, control, berth, attempts: HashMap::new() }
    }

    fn tell(&self, kind: Kind, header: &impl Serialize) {
        match frame::encode(kind, header, 0, 0) {
            // A closed channel belongs to a connection that is about to be reported as lost.
            Ok(bytes) => drop(self.control.send(bytes)),
            Err(error) => tracing::error!(%error, "control message not sent"),
        }
    }
}

impl Shared {
    /// `began` is the wall time that the core was made at.
    pub(super) fn new(core: Core, began: Duration, runtime: tokio::runtime::Handle) -> Self {
        let state = State {
            core,
            sessions: HashMap::new(),
            waiters: HashMap::new(),
            acceptors: HashMap::new(),
            larges: HashMap::new(),
            writer: None,
            vault: None,
            broken: None,
            wakes_at: None,
            stopped: false,
        };
        Self {
            state: Mutex::new(state),
            started: Instant::now(),
            began,
            runtime,
            changed: Notify::new(),
            offers: Arc::default(),
            sooner: Notify::new(),
            events: broadcast::Sender::new(EVENTS_KEPT),
        }
    }

    fn now(&self) -> Duration {
        self.began + self.started.elapsed()
    }

    /// The state stays usable after a panic elsewhere: each step leaves it consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the core.
    pub(super) fn read<R>(&self, look: impl FnOnce(&Core, Duration) -> R) -> R {
        look(&self.lock().core, self.now())
    }

    /// Gives the core an event and carries out what it then wants done.
    pub(super) fn with<R>(self: &Arc<Self>, event: impl FnOnce(&mut Core, Duration) -> R) -> R {
        let mut state = self.lock();
        let result = event(&mut state.core, self.now());
        self.carry_out(&mut state);
        result
    }

    /// Submits a task that lives in memory.
    pub(super) fn submit(self: &Arc<Self>, (order, large): Checked) -> Result<TaskId> {
        let mut state = self.lock();
        let id = state.core.submit(self.now(), order)?;
        state.note(id, large);
        self.carry_out(&mut state);
        Ok(id)
    }

    /// Submits a task and leaves a waiter with it in the same step.
    pub(super) fn submit_and_wait(self: &Arc<Self>, (order, large): Checked) -> Result<Waiting> {
        let mut state = self.lock();
        let now = self.now();
        let id = state.core.submit(now, order)?;
        state.note(id, large);
        let waiting = state.wait(now, id)?;
        self.carry_out(&mut state);
        Ok(waiting)
    }

    /// Submits tasks and leaves a waiter for each durable one that the journal does not have yet.
    /// Those from the last number on are new.
    pub(super) fn submit_durably(
        self: &Arc<Self>,
        tasks: Vec<Checked>,
    ) -> Result<(Vec<TaskId>, Vec<Promise>, u64)> {
        let (orders, larges): (Vec<Order>, Vec<_>) = tasks.into_iter().unzip();
        let mut state = self.lock();
        let new = state.core.next_seq();
        let ids = state.core.submit_all(self.now(), orders)?;
        for (id, large) in ids.iter().zip(larges) {
            state.note(*id, large);
        }
        let mut promises = Vec::new();
        for id in &ids {
            if !state.core.is_saved(*id) {
                let (sender, receiver) = oneshot::channel();
                state.acceptors.entry(id.seq).or_default().push(sender);
                promises.push(receiver);
            }
        }
        self.carry_out(&mut state);
        Ok((ids, promises, new))
    }

    /// From now on the journal's changes go there.
    pub(super) fn keep(&self, writer: Arc<Writer>) {
        self.lock().writer = Some(writer);
    }

    /// From now on large inputs of durable tasks go there, where those of `tasks` are already.
    pub(super) fn keep_inputs<'a>(
        &self,
        vault: Arc<Vault>,
        tasks: impl Iterator<Item = (u64, &'a Apart)>,
    ) {
        let large = |apart: &Apart| Large::on_disk(apart.clone(), Arc::clone(&vault));
        let larges = tasks.map(|(seq, apart)| (seq, Arc::new(large(apart)))).collect();
        let mut state = self.lock();
        (state.larges, state.vault) = (larges, Some(vault));
    }

    /// Where large inputs of durable tasks go, if there is a journal.
    pub(super) fn vault(&self) -> Option<Arc<Vault>> {
        self.lock().vault.clone()
    }

    /// Goes on with what an earlier life left in the journal. Must come before anything else.
    pub(super) fn restore(&self, now: Duration, images: Vec<Image>) {
        self.lock().core.restore(now, images);
    }

    pub(super) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// The journal's thread, while it runs.
    pub(super) fn writer(&self) -> Option<Arc<Writer>> {
        self.lock().writer.clone()
    }

    /// Ends the journal's thread once it has written what waits.
    pub(super) fn close_journal(&self) {
        let writer = self.lock().writer.take();
        drop(writer);
    }

    /// The journal could not take these changes.
    pub(super) fn unrecorded(self: &Arc<Self>, tickets: &[u64], error: &JournalError) {
        let mut state = self.lock();
        state.unrecorded(self.now(), tickets, error);
        self.carry_out(&mut state);
        self.changed.notify_waiters();
    }

    /// Why the journal takes no more, if so.
    pub(super) fn journal_error(&self) -> Option<JournalError> {
        self.lock().broken.clone()
    }

    /// The record of a terminal task, or the promise of it.
    pub(super) fn wait(&self, id: TaskId) -> Result<Waiting> {
        let now = self.now();
        self.lock().wait(now, id)
    }

    /// Registers a connection; its tasks begin at once. Answers why it is to be closed instead.
    pub(super) fn join(
        self: &Arc<Self>,
        join: crate::proto::membership::Join,
        session: Session,
    ) -> Result<SessionId, Close> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Close::Stopping);
        }
        let id = state.core.join(self.now(), join).ok_or(Close::Superseded)?;
        state.sessions.insert(id, session);
        self.carry_out(&mut state);
        Ok(id)
    }

    /// A connection ended.
    pub(super) fn leave(self: &Arc<Self>, session: SessionId, farewell: bool) {
        self.with(|core, now| core.disconnected(now, session, farewell));
        self.lock().sessions.remove(&session);
    }

    /// An attempt ended with an answer.
    pub(super) fn complete(
        self: &Arc<Self>,
        session: SessionId,
        id: AttemptId,
        completion: Completion,
    ) {
        let mut state = self.lock();
        if let Some(session) = state.sessions.get_mut(&session) {
            session.attempts.remove(&id);
        }
        let now = self.now();
        state.core.complete(now, session, id, completion);
        self.carry_out(&mut state);
    }

    /// An attempt's stream broke. If the whole connection did, its session says so by itself.
    pub(super) fn broken(
        self: &Arc<Self>,
        connection: &Connection,
        session: SessionId,
        id: AttemptId,
        error: &Error,
    ) {
        if connection.close_reason().is_none() {
            let reason = format!("the exchange with its worker broke: {error}");
            self.complete(session, id, Completion::Broken { reason });
        }
    }

    fn carry_out(self: &Arc<Self>, state: &mut State) {
        while let Some(action) = state.core.next_action(self.now()) {
            self.perform(state, action);
        }
        let next = state.core.next_timeout();
        if let (Some(next), Some(wakes_at)) = (next, state.wakes_at)
            && next < wakes_at
        {
            state.wakes_at = None;
            self.sooner.notify_one();
        }
    }

    fn perform(self: &Arc<Self>, state: &mut State, action: Action) {
        match action {
            Action::Dispatch { session: number, device, id, model, spec } => {
                let Some(session) = state.sessions.get_mut(&number) else { return };
                let connection = session.connection.clone();
                let (to, berth) = ((number, device), Arc::clone(&session.berth));
                let large = state.larges.get(&id.seq).cloned();
                let what = (model, spec, large);
                let run = exchange::run(Arc::clone(self), connection, to, id, what, berth);
                let task = self.runtime.spawn(run);
                session.attempts.insert(id, task.abort_handle());
            }
            Action::Cancel { session, id } => {
                let session = state.sessions.get_mut(&session);
                if let Some(attempt) = session.and_then(|s| s.attempts.remove(&id)) {
                    attempt.abort();
                }
            }
            Action::Recall { session, id } => {
                state.sessions.get(&session).inspect(|s| s.tell(Kind::Recall, &id));
            }
            Action::Record { ticket, mut change } => {
                if let Change::Put(image) = &mut change
                    && image.end.is_none()
                {
                    image.apart = state.larges.get(&image.id.seq).and_then(|large| large.apart());
                }
                let Some(writer) = &state.writer else { return };
                if let Err(error) = journal::submit(writer, ticket, change) {
                    state.unrecorded(self.now(), &[ticket], &error);
                }
            }
            Action::Accepted { seq } => {
                for acceptor in state.acceptors.remove(&seq).unwrap_or_default() {
                    let _ = acceptor.send(Ok(()));
                }
            }
            Action::Rejected { seq, reason } => {
                state.forget(seq);
                let error = || Error::NotSaved { reason: reason.clone() };
                for acceptor in state.acceptors.remove(&seq).unwrap_or_default() {
                    let _ = acceptor.send(Err(error()));
                }
                for waiter in state.waiters.remove(&seq).unwrap_or_default() {
                    let _ = waiter.send(Err(error()));
                }
            }
            Action::Finished { seq } => {
                state.forget(seq);
                let Some(mut waiters) = state.waiters.remove(&seq) else { return };
                let Some(record) = state.core.record_of(self.now(), seq) else { return };
                // Most tasks have one, which needs no copy.
                let last = waiters.pop();
                for waiter in waiters {
                    // A caller that no longer waits is no error.
                    let _ = waiter.send(Ok(record.clone()));
                }
                if let Some(waiter) = last {
                    let _ = waiter.send(Ok(record));
                }
            }
            Action::Load { session, device, model } => {
                let place = Place { device, model };
                state.sessions.get(&session).inspect(|s| s.tell(Kind::Load, &place));
            }
            Action::Unload { session, device, model } => {
                let place = Place { device, model };
                state.sessions.get(&session).inspect(|s| s.tell(Kind::Unload, &place));
            }
            // Without a subscriber nobody hears it.
            Action::Tell(event) => drop(self.events.send((self.now(), event))),
            Action::Drain { session } => {
                state.sessions.get(&session).inspect(|s| s.tell(Kind::Drain, &()));
            }
            Action::Dismiss { session } => close(state, session, Close::Farewell),
            Action::Supersede { session } => close(state, session, Close::Superseded),
            Action::Abandon { session } => close(state, session, Close::Abandoned),
            Action::Changed => self.changed.notify_waiters(),
        }
    }

    /// Calls the core when its next timeout is due, until the coordinator stops.
    pub(super) async fn run_timer(self: Arc<Self>) {
        /// How long to sleep when nothing is due; anything sooner wakes the timer.
        const NOTHING_DUE: Duration = Duration::from_secs(3600);
        loop {
            let wait = {
                let mut state = self.lock();
                if state.stopped {
                    return;
                }
                let now = self.now();
                let next = state.core.next_timeout().unwrap_or(now + NOTHING_DUE);
                state.wakes_at = Some(next);
                next.saturating_sub(now)
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => self.with(|core, now| core.tick(now)),
                () = self.sooner.notified() => {}
            }
        }
    }

    /// Fails what is not terminal and closes every connection.
    pub(super) fn stop(self: &Arc<Self>) {
        self.with(|core, now| core.stop(now));
        let mut state = self.lock();
        state.stopped = true;
        for (_, session) in state.sessions.drain() {
            let reason = Close::Stopping;
            session.connection.close(reason.code(), reason.reason().as_bytes());
        }
        state.waiters.clear();
        state.acceptors.clear();
        self.sooner.notify_one();
        self.changed.notify_waiters();
    }

    /// What travelled over the connections that there are.
    pub(super) fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for session in self.lock().sessions.values() {
            let stats = session.connection.stats();
            sum.sent_bytes += stats.udp_tx.bytes;
            sum.sent_datagrams += stats.udp_tx.datagrams;
            sum.received_bytes += stats.udp_rx.bytes;
            sum.received_datagrams += stats.udp_rx.datagrams;
        }
        sum
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }
}

fn close(state: &State, session: SessionId, why: Close) {
    if let Some(session) = state.sessions.get(&session) {
        session.connection.close(why.code(), why.reason().as_bytes());
    }
}

/// A task's final record, there already or to come.
pub(super) enum Waiting {
    Done(Box<TaskRecord>),
    Promise(oneshot::Receiver<Result<TaskRecord>>),
}

impl Waiting {
    pub(super) async fn record(self) -> Result<TaskRecord> {
        match self {
            Self::Done(record) => Ok(*record),
            Self::Promise(promise) => promise.await.map_err(|_| Error::Stopped)?,
        }
    }
}

/// A task that may be submitted, and its inputs where they are large.
pub(super) type Checked = (Order, Option<Inputs>);

/// Large inputs that are submitted with a task, and what keeps them on the disk until it has them.
pub(super) struct Inputs {
    pub(super) large: Arc<Large>,
    pub(super) claim: Option<Claim>,
}

impl State {
    /// Keeps large inputs with a task, unless it is one that was submitted before.
    fn note(&mut self, id: TaskId, inputs: Option<Inputs>) {
        let Some(Inputs { large, claim }) = inputs else { return };
        if self.core.is_open(id) && !self.larges.contains_key(&id.seq) {
            self.larges.insert(id.seq, large);
            claim.into_iter().for_each(Claim::keep);
        }
    }

    /// A task needs its inputs no more.
    fn forget(&mut self, seq: u64) {
        if let Some(large) = self.larges.remove(&seq) {
            large.release();
        }
    }

    fn unrecorded(&mut self, now: Duration, tickets: &[u64], error: &JournalError) {
        let ended = matches!(error, JournalError::Broken { .. } | JournalError::Closed { .. });
        if ended && !self.stopped && self.broken.is_none() {
            tracing::error!(%error, "the journal takes no more");
            self.broken = Some(error.clone());
        }
        let reason = error.to_string();
        for ticket in tickets {
            self.core.unrecorded(now, *ticket, &reason);
        }
    }

    fn wait(&mut self, now: Duration, id: TaskId) -> Result<Waiting> {
        let record = self.core.record(now, id)?;
        if record.state.is_terminal() {
            return Ok(Waiting::Done(Box::new(record)));
        }
        if self.stopped {
            // A durable task goes on with the next coordinator, of which nobody here will hear.
            return Err(Error::Stopped);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiters.entry(id.seq).or_default().push(sender);
        Ok(Waiting::Promise(receiver))
    }
}
