//! The core behind its lock, and the carrying out of what it wants done.

use crate::control::log::Log;
use crate::error::{Error, JournalError, Result};
use crate::net::call::Supervisor;
use crate::net::coordinator::backlog::{Backlog, Room};
use crate::net::coordinator::exchange;
use crate::net::coordinator::journal::{self, Prepared};
use crate::net::coordinator::outputs::Outputs;
use crate::net::coordinator::waiting::{Promise, Waiting};
use crate::net::identity::persisted::Persisted;
use crate::net::outside::{self, planted_here};
use crate::net::transfer::blobs::{BlobStore, Claim};
use crate::net::transfer::inputs::{Large, Offers};
use crate::net::transport::close::Close;
use crate::net::transport::shared_memory::SharedMemory;
use crate::proto::HangTable;
use crate::proto::Order;
use crate::proto::core::{Core, Found, Left};
use crate::proto::event::Event;
use crate::proto::frame;
use crate::proto::image::{Apart, Change};
use crate::proto::membership::Parting;
use crate::proto::message::{AttemptId, Kind, Place};
use crate::proto::state::{Action, Completion, SessionId};
use crate::task::{TaskId, TaskRecord, TaskState};
use crate::worker_info::Traffic;
use quinn::Connection;
use serde::Serialize;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// What became of a submission.
pub(crate) enum Submitted {
    /// It is accepted once the journal has it, where there is a promise.
    Now(Vec<TaskId>, Option<Promise<()>>),
    /// Keys of it stand for tasks that the journal may yet refuse: it is to come again after that.
    After(Vec<Promise<()>>, Vec<Checked>),
}

/// What the tasks of a coordinator share.
pub(crate) struct CoreHandle {
    state: Mutex<State>,
    started: Instant,
    /// Wall time at the start: the core's clock begins there and never jumps.
    began: Duration,
    runtime: tokio::runtime::Handle,
    /// Workers or models changed, or the last open task finished.
    pub(crate) changed: Notify,
    /// Room at the journal.
    pub(crate) backlog: Arc<Backlog>,
    /// Inputs that workers may ask for.
    pub(crate) offers: Arc<Offers>,
    /// The core's next timeout came closer.
    sooner: Notify,
    /// Who ends and starts the processes of local workers, if anybody does.
    supervisor: Option<Arc<dyn Supervisor>>,
    /// Devices on which runs did not stop.
    hangs: Arc<Persisted<HangTable>>,
    /// What happened, with the wall time.
    pub(crate) events: broadcast::Sender<(Duration, Event)>,
}

/// What a coordinator holds for callers and workers.
#[cfg(feature = "planted")]
#[derive(Debug)]
pub(crate) struct Residue {
    pub(crate) waiting: usize,
    forgetters: usize,
    larges: usize,
    rooms: usize,
    sessions: usize,
    attempts: usize,
}

#[cfg(feature = "planted")]
impl Residue {
    /// Whether there is nothing but the sessions of so many workers.
    pub(crate) fn is_none(&self, workers: usize) -> bool {
        let held = [self.waiting, self.forgetters, self.larges, self.rooms, self.attempts];
        held.iter().all(|count| *count == 0) && self.sessions == workers
    }
}

/// Events that a slow subscriber may be behind by before it misses some.
const EVENTS_KEPT: usize = 1_024;

struct State {
    core: Core,
    sessions: HashMap<SessionId, Session>,
    waiters: HashMap<u64, Vec<oneshot::Sender<Result<TaskRecord>>>>,
    /// Who waits for the journal to have a task.
    acceptors: HashMap<u64, Vec<oneshot::Sender<Result<()>>>>,
    /// Who waits for the journal to have no result of a task any more.
    forgetters: HashMap<u64, Vec<oneshot::Sender<()>>>,
    /// Large inputs of tasks that are not terminal.
    larges: HashMap<u64, Arc<Large>>,
    /// Large outputs of tasks that have ended.
    outputs: Outputs,
    /// Takes the journal's changes, if there is a journal.
    log: Option<Arc<dyn Log>>,
    /// Keeps large inputs and outputs of the journal's tasks.
    blob_store: Option<Arc<BlobStore>>,
    /// Room of the submission that is being taken in, and of those under way by their tickets.
    room: Option<Room>,
    rooms: BTreeMap<u64, Room>,
    /// Why the journal takes no more.
    broken: Option<JournalError>,
    /// When the timer wakes next; `None` while it decides.
    wakes_at: Option<Duration>,
    stopped: bool,
}

/// A connection as the core's actions need it.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// Frames for the control stream.
    pub(crate) control: mpsc::UnboundedSender<Vec<u8>>,
    shared_memory: Arc<SharedMemory>,
    attempts: HashMap<AttemptId, AbortHandle>,
}

impl Session {
    pub(crate) fn new(
        connection: Connection,
        control: mpsc::UnboundedSender<Vec<u8>>,
        shared_memory: Arc<SharedMemory>,
    ) -> Self {
        Self { connection, control, shared_memory, attempts: HashMap::new() }
    }

    fn tell(&self, kind: Kind, header: &impl Serialize) {
        match frame::encode(kind, header, 0, 0) {
            // A closed channel belongs to a connection that is about to be reported as lost.
            Ok(bytes) => drop(self.control.send(bytes)),
            Err(error) => tracing::error!(%error, "control message not sent"),
        }
    }
}

impl CoreHandle {
    /// `began` is the wall time that the core was made at.
    pub(crate) fn new(
        mut core: Core,
        began: Duration,
        runtime: tokio::runtime::Handle,
        supervisor: Option<Arc<dyn Supervisor>>,
        hangs: Persisted<HangTable>,
    ) -> Self {
        core.remember_hangs(hangs.read().clone());
        let state = State {
            core,
            sessions: HashMap::new(),
            waiters: HashMap::new(),
            acceptors: HashMap::new(),
            forgetters: HashMap::new(),
            larges: HashMap::new(),
            outputs: Outputs::default(),
            log: None,
            blob_store: None,
            room: None,
            rooms: BTreeMap::new(),
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
            backlog: Arc::default(),
            offers: Arc::default(),
            sooner: Notify::new(),
            supervisor,
            hangs: Arc::new(hangs),
            events: broadcast::Sender::new(EVENTS_KEPT),
        }
    }

    fn now(&self) -> Duration {
        self.began + self.started.elapsed()
    }

    /// The core after a panic within it is of no use to anybody: who follows this process finds in the
    /// journal what was promised.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|_: PoisonError<_>| {
            tracing::error!("a panic has left the coordinator's state unusable; the process ends");
            std::process::abort()
        })
    }

    /// Writes down what is remembered of devices; where the disk does not take it, it holds as long as
    /// this process.
    fn keep_hangs(&self, table: HangTable) {
        let hangs = Arc::clone(&self.hangs);
        // Whoever is here may be the journal's thread.
        let _entered = self.runtime.enter();
        outside::blocking(move || {
            let kept = hangs.insist(|kept| {
                *kept = table;
                Ok::<_, Error>(())
            });
            if let Ok(((), Err(error))) | Err(error) = kept {
                tracing::error!(%error, "which devices hang is not written down");
            }
        });
    }

    /// Looks at the core.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Core, Duration) -> R) -> R {
        look(&self.lock().core, self.now())
    }

    /// Gives the core an event and carries out what it then wants done.
    pub(crate) fn with<R>(self: &Arc<Self>, event: impl FnOnce(&mut Core, Duration) -> R) -> R {
        let mut state = self.lock();
        let result = event(&mut state.core, self.now());
        self.carry_out(&mut state);
        result
    }

    /// Submits a task that lives in memory.
    pub(crate) fn submit(self: &Arc<Self>, (order, large): Checked) -> Result<TaskId> {
        let mut state = self.lock();
        let id = state.core.submit(self.now(), order)?;
        state.note(id, large);
        self.carry_out(&mut state);
        Ok(id)
    }

    /// Submits a task and leaves a waiter with it in the same step.
    pub(crate) fn submit_and_wait(self: &Arc<Self>, (order, large): Checked) -> Result<Waiting> {
        let mut state = self.lock();
        let now = self.now();
        let id = state.core.submit(now, order)?;
        state.note(id, large);
        let ending = state.wait(now, id)?;
        self.carry_out(&mut state);
        drop(state);
        Ok(self.waiting(id, ending))
    }

    /// Submits tasks, and answers the journal's word on those that are new and to be kept: it takes
    /// them together or not at all.
    pub(crate) fn submit_all(
        self: &Arc<Self>,
        tasks: Vec<Checked>,
        room: &mut Option<Room>,
    ) -> Result<Submitted> {
        let (orders, larges): (Vec<Order>, Vec<_>) = tasks.into_iter().unzip();
        let mut state = self.lock();
        let undecided = state.core.undecided(&orders);
        if !undecided.is_empty() {
            let receivers: Vec<_> =
                undecided.into_iter().map(|seq| (seq, state.promise(seq))).collect();
            // Made without the lock, which one that is dropped takes.
            drop(state);
            let promises = receivers.into_iter().map(|(seq, it)| Promise::new(self, seq, it));
            let again = orders.into_iter().zip(larges).collect();
            return Ok(Submitted::After(promises.collect(), again));
        }
        let ids = state.core.submit_all(self.now(), orders)?;
        for (id, large) in ids.iter().zip(larges) {
            state.note(*id, large);
        }
        let unsaved = ids.iter().rev().find(|id| !state.core.is_saved(**id)).copied();
        let receiver = unsaved.map(|id| (id.seq, state.promise(id.seq)));
        state.room = room.take();
        self.carry_out(&mut state);
        // Nothing of it is new.
        state.room = None;
        drop(state);
        Ok(Submitted::Now(ids, receiver.map(|(seq, receiver)| Promise::new(self, seq, receiver))))
    }

    /// From now on the journal's changes go there.
    pub(crate) fn keep(&self, log: Arc<dyn Log>) {
        self.lock().log = Some(log);
    }

    /// From now on large inputs and outputs of durable tasks go where those of the journal's tasks
    /// are already.
    pub(crate) fn keep_apart(&self, prepared: &mut Prepared) {
        let blob_store = &prepared.blob_store;
        let large = |apart: &Apart| Large::on_disk(apart.clone(), Arc::clone(blob_store));
        let larges = prepared.apart().map(|(seq, apart)| (seq, Arc::new(large(apart)))).collect();
        let mut state = self.lock();
        (state.larges, state.blob_store) = (larges, Some(Arc::clone(blob_store)));
        state.outputs = Outputs::of(std::mem::take(&mut prepared.outputs));
    }

    /// The outputs of a task lie apart, or could not be written.
    pub(super) fn stored(self: &Arc<Self>, seq: u64, written: Option<(Apart, Claim)>) {
        let mut state = self.lock();
        let apart = written.as_ref().map(|(apart, _)| apart.clone());
        let waits = state.core.stored(seq, apart);
        state.outputs.end(seq, written.filter(|_| waits));
        self.carry_out(&mut state);
        let last = !state.outputs.are_writing();
        drop(state);
        if last {
            self.changed.notify_waiters();
        }
    }

    /// Waits until no outputs are on their way to the disk.
    pub(super) async fn outputs_stored(&self) {
        loop {
            // Created before looking: it counts every change from here on.
            let changed = self.changed.notified();
            if !self.lock().outputs.are_writing() {
                return;
            }
            changed.await;
        }
    }

    /// Where large inputs and outputs of durable tasks go, if there is a journal.
    pub(crate) fn blob_store(&self) -> Option<Arc<BlobStore>> {
        self.lock().blob_store.clone()
    }

    /// Goes on with what an earlier life left in the journal. Must come before anything else.
    pub(crate) fn restore(&self, now: Duration, left: Left) {
        self.lock().core.restore(now, left);
    }

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// The journal, while it takes changes.
    pub(crate) fn log(&self) -> Option<Arc<dyn Log>> {
        self.lock().log.clone()
    }

    /// Ends the journal's thread once it has written what waits.
    pub(crate) fn close_journal(&self) {
        let log = self.lock().log.take();
        drop(log);
    }

    /// The journal has every change up to a ticket, but for those that it could not take.
    pub(crate) fn recorded(self: &Arc<Self>, upto: u64) {
        let mut state = self.lock();
        let later = state.rooms.split_off(&upto.saturating_add(1));
        std::mem::replace(&mut state.rooms, later).into_values().for_each(Room::written);
        state.core.recorded(self.now(), upto);
        self.carry_out(&mut state);
    }

    /// The journal could not take these changes.
    pub(crate) fn unrecorded(self: &Arc<Self>, tickets: &[u64], error: &JournalError) {
        let mut state = self.lock();
        state.unrecorded(self.now(), tickets, error);
        self.carry_out(&mut state);
        self.changed.notify_waiters();
    }

    /// Why the journal takes no more, if so.
    pub(crate) fn journal_error(&self) -> Option<JournalError> {
        self.lock().broken.clone()
    }

    /// What is known of a task, for somebody who is given it.
    pub(crate) fn give(&self, id: TaskId) -> Result<Found> {
        let now = self.now();
        self.lock().core.give(now, id)
    }

    /// Lets the result of a task go that has ended; answers how it ended, and where the journal's
    /// word will arrive, if it has to hear of it.
    pub(crate) fn let_go(
        self: &Arc<Self>,
        id: TaskId,
    ) -> Result<(TaskState, Option<oneshot::Receiver<()>>)> {
        let mut state = self.lock();
        let (ended, stored) = state.core.let_go(self.now(), id)?;
        let receiver = stored.then(|| {
            let (sender, receiver) = oneshot::channel();
            state.forgetters.entry(id.seq).or_default().push(sender);
            receiver
        });
        self.carry_out(&mut state);
        Ok((ended, receiver))
    }

    /// The record of a terminal task, or the promise of it.
    pub(crate) fn wait(self: &Arc<Self>, id: TaskId) -> Result<Waiting> {
        let now = self.now();
        let ending = self.lock().wait(now, id)?;
        Ok(self.waiting(id, ending))
    }

    fn waiting(self: &Arc<Self>, id: TaskId, ending: Ending) -> Waiting {
        match ending {
            Ending::Done(record) => Waiting::Done(record),
            Ending::Stored(id) => Waiting::Stored(id),
            Ending::ToCome(receiver) => Waiting::Promise(Promise::new(self, id.seq, receiver)),
        }
    }

    /// Drops who waited for an answer about a task and went away.
    pub(super) fn forget_gone(&self, seq: u64) {
        let mut state = self.lock();
        if let Entry::Occupied(mut waiters) = state.waiters.entry(seq) {
            waiters.get_mut().retain(|waiter| !waiter.is_closed());
            if waiters.get().is_empty() {
                waiters.remove();
            }
        }
        if let Entry::Occupied(mut acceptors) = state.acceptors.entry(seq) {
            acceptors.get_mut().retain(|acceptor| !acceptor.is_closed());
            if acceptors.get().is_empty() {
                acceptors.remove();
            }
        }
    }

    /// What is held for others.
    #[cfg(feature = "planted")]
    pub(crate) fn residue(&self) -> Residue {
        let state = self.lock();
        let waiting = state.waiters.values().map(Vec::len).sum::<usize>()
            + state.acceptors.values().map(Vec::len).sum::<usize>();
        Residue {
            waiting,
            forgetters: state.forgetters.len(),
            larges: state.larges.len(),
            rooms: state.rooms.len(),
            sessions: state.sessions.len(),
            attempts: state.sessions.values().map(|session| session.attempts.len()).sum(),
        }
    }

    /// How many wait for an answer about a task.
    #[cfg(test)]
    pub(super) fn waiters(&self) -> usize {
        let state = self.lock();
        let waiters = state.waiters.values().map(Vec::len).sum::<usize>();
        waiters + state.acceptors.values().map(Vec::len).sum::<usize>()
    }

    /// Registers a connection; its tasks begin at once. Answers its session, and whether that goes on
    /// from an earlier connection; or why it is to be closed instead.
    pub(crate) fn join(
        self: &Arc<Self>,
        join: crate::proto::membership::Join,
        session: Session,
    ) -> Result<(SessionId, bool), Close> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Close::Stopping);
        }
        let (id, resumed) = state.core.join(self.now(), join).ok_or(Close::Superseded)?;
        state.sessions.insert(id, session);
        self.carry_out(&mut state);
        Ok((id, resumed))
    }

    /// A connection ended.
    pub(crate) fn leave(
        self: &Arc<Self>,
        session: SessionId,
        connection: &Connection,
        parting: Parting,
    ) {
        let mut state = self.lock();
        let own = state.sessions.get(&session);
        if own.is_none_or(|own| own.connection.stable_id() != connection.stable_id()) {
            return;
        }
        if planted_here!(KeepSessions) {
            return;
        }
        let now = self.now();
        state.core.disconnected(now, session, parting);
        self.carry_out(&mut state);
        state.sessions.remove(&session);
    }

    /// The session that a connection belongs to.
    pub(crate) fn session_of(&self, connection: &Connection) -> Option<SessionId> {
        let id = connection.stable_id();
        let state = self.lock();
        let own = state.sessions.iter().find(|(_, own)| own.connection.stable_id() == id);
        own.map(|(number, _)| *number)
    }

    /// An attempt ended with an answer.
    pub(crate) fn complete(
        self: &Arc<Self>,
        session: SessionId,
        id: AttemptId,
        completion: Completion,
    ) {
        let mut state = self.lock();
        if let Some(session) = state.sessions.get_mut(&session)
            && !planted_here!(KeepAttempts)
        {
            session.attempts.remove(&id);
        }
        let now = self.now();
        state.core.complete(now, session, id, completion);
        self.carry_out(&mut state);
    }

    /// An attempt's stream broke. If the whole connection did, its session says so by itself.
    pub(crate) fn broken(
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
            && !planted_here!(LateTimers)
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
                let (to, shared_memory) = ((number, device), Arc::clone(&session.shared_memory));
                let large = state.larges.get(&id.seq).cloned();
                let what = (model, spec, large);
                let run = exchange::run(Arc::clone(self), connection, to, id, what, shared_memory);
                let task = self.runtime.spawn(run);
                session.attempts.insert(id, task.abort_handle());
            }
            Action::Cancel { session, id } => {
                let session = state.sessions.get_mut(&session);
                let Some(session) = session else { return };
                match session.attempts.remove(&id) {
                    Some(attempt) => attempt.abort(),
                    // Its stream went with an earlier connection.
                    None => session.tell(Kind::Stop, &id),
                }
            }
            Action::Stop { session, id } => {
                state.sessions.get(&session).inspect(|s| s.tell(Kind::Stop, &id));
            }
            Action::Replace { session, worker } => {
                close(state, session, Close::Replaced);
                // It may be no process of this machine's: then its own end alone hears of it.
                if let Some(supervisor) = &self.supervisor {
                    supervisor.replace(worker.as_str());
                }
            }
            Action::Hangs(table) => self.keep_hangs(table),
            Action::Recall { session, id } => {
                state.sessions.get(&session).inspect(|s| s.tell(Kind::Recall, &id));
            }
            Action::Record { ticket, mut change } => {
                if let Change::Put(images) = &mut change {
                    for image in images.iter_mut().filter(|image| image.end.is_none()) {
                        let large = state.larges.get(&image.id.seq);
                        image.apart = large.and_then(|large| large.apart());
                    }
                }
                // The first that is put after a submission is what its room is for.
                if let (Change::Put(_), Some(room)) = (&change, state.room.take()) {
                    state.rooms.insert(ticket, room);
                }
                let Some(log) = &state.log else { return };
                if let Err(error) = journal::submit(&**log, ticket, change) {
                    state.unrecorded(self.now(), &[ticket], &error);
                }
            }
            Action::Store { seq, outputs } => state.outputs.begin(self, seq, outputs),
            Action::Accepted { seq } => {
                for acceptor in state.acceptors.remove(&seq).unwrap_or_default() {
                    let _ = acceptor.send(Ok(()));
                }
            }
            Action::Forgotten { seq } => {
                state.outputs.release(seq, state.blob_store.as_ref());
                for forgetter in state.forgetters.remove(&seq).unwrap_or_default() {
                    let _ = forgetter.send(());
                }
            }
            Action::Rejected { seq, reason } => {
                state.forget(seq);
                let error = || Error::NotSaved { reason: reason.clone() };
                if planted_here!(ForgetRejected) {
                    return;
                }
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
                let mut given = false;
                for waiter in waiters {
                    // A caller that no longer waits is no error.
                    given |= waiter.send(Ok(record.clone())).is_ok();
                }
                if let Some(waiter) = last {
                    given |= waiter.send(Ok(record)).is_ok();
                }
                if given {
                    state.core.given(seq);
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
    pub(crate) async fn run_timer(self: Arc<Self>) {
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
    pub(crate) fn stop(self: &Arc<Self>) {
        self.with(|core, now| core.stop(now));
        let mut state = self.lock();
        state.stopped = true;
        for (_, session) in state.sessions.drain() {
            let reason = Close::Stopping;
            session.connection.close(reason.code(), reason.reason().as_bytes());
        }
        state.waiters.clear();
        state.acceptors.clear();
        state.forgetters.clear();
        self.sooner.notify_one();
        self.changed.notify_waiters();
    }

    /// What travelled over the connections that there are.
    pub(crate) fn traffic(&self) -> Traffic {
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

    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }
}

fn close(state: &State, session: SessionId, why: Close) {
    if let Some(session) = state.sessions.get(&session) {
        session.connection.close(why.code(), why.reason().as_bytes());
    }
}

/// A task that may be submitted, and its inputs where they are large.
pub(crate) type Checked = (Order, Option<Inputs>);

/// Large inputs that are submitted with a task, and what keeps them on the disk until it has them.
pub(crate) struct Inputs {
    pub(crate) large: Arc<Large>,
    pub(crate) claim: Option<Claim>,
}

/// A task's final record, or where it will arrive.
enum Ending {
    Done(Box<TaskRecord>),
    /// The journal has it.
    Stored(TaskId),
    ToCome(oneshot::Receiver<Result<TaskRecord>>),
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

    /// The journal's word on a task that it does not have yet.
    fn promise(&mut self, seq: u64) -> oneshot::Receiver<Result<()>> {
        let (sender, receiver) = oneshot::channel();
        self.acceptors.entry(seq).or_default().push(sender);
        receiver
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
            self.forgetters.clear();
        }
        let reason = error.to_string();
        for ticket in tickets {
            self.rooms.remove(ticket);
            self.core.unrecorded(now, *ticket, &reason);
        }
    }

    fn wait(&mut self, now: Duration, id: TaskId) -> Result<Ending> {
        match self.core.find(now, id)? {
            Found::Stored(id) => {
                self.core.given(id.seq);
                return Ok(Ending::Stored(id));
            }
            Found::Here(record) if record.state.is_terminal() => {
                self.core.given(id.seq);
                return Ok(Ending::Done(record));
            }
            Found::Here(_) => {}
        }
        if self.stopped {
            // A durable task goes on with the next coordinator, of which nobody here will hear.
            return Err(Error::Stopped);
        }
        let (sender, receiver) = oneshot::channel();
        self.waiters.entry(id.seq).or_default().push(sender);
        Ok(Ending::ToCome(receiver))
    }
}
