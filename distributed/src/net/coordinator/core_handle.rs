//! The core behind its lock.

use crate::control::persisted::Persisted;
use crate::error::Error;
use crate::net::call::Supervisor;
use crate::net::coordinator::backlog::Backlog;
use crate::net::coordinator::outputs::Outputs;
use crate::net::outside::{self, planted_here};
use crate::net::transfer::tensors::{Large, Offers, TensorCache};
use crate::net::transport::close::Close;
use crate::proto::HangTable;
use crate::proto::core::Core;
use crate::proto::event::Event;
use crate::proto::state::SessionId;
use crate::run_trace::RunTraces;
use callers::Callers;
use durable::Journal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

mod actions;
mod callers;
mod durable;
#[cfg(feature = "planted")]
mod residue;
mod sessions;
mod submit;

pub(crate) use sessions::Session;
pub(crate) use submit::{Checked, Inputs, Submitted};

/// The core, as the Tokio tasks of a coordinator share it.
pub struct CoreHandle {
    state: Mutex<State>,
    started: Instant,
    /// Wall time at the start: the core's clock begins there and never jumps.
    began: Duration,
    runtime: tokio::runtime::Handle,
    /// Signals that workers or models changed, or that the last open task finished.
    pub(crate) changed: Notify,
    /// Room at the journal.
    pub(crate) backlog: Arc<Backlog>,
    /// Inputs that workers may ask for.
    pub(crate) offers: Arc<Offers>,
    /// Outputs that workers are asked for.
    pub(crate) collected: Arc<TensorCache>,
    /// Signals that the core's next timeout came closer.
    sooner: Notify,
    /// Ends and starts the processes of local workers, if there is one.
    supervisor: Option<Arc<dyn Supervisor>>,
    /// Traces of runs from workers, until a caller takes them.
    pub(crate) run_traces: RunTraces,
    /// Devices on which runs did not stop.
    hangs: Arc<Persisted<HangTable>>,
    /// Events, with the wall time.
    pub(crate) events: broadcast::Sender<(Duration, Event)>,
}

/// Large outputs that are fetched at a time, most often from as many machines.
const TRANSFERS_MAX: usize = 4;
/// Events by which a slow subscriber may be behind before it misses some.
const EVENTS_KEPT: usize = 1_024;

struct State {
    core: Core,
    sessions: HashMap<SessionId, Session>,
    callers: Callers,
    /// Large inputs of tasks that are not terminal.
    larges: HashMap<u64, Arc<Large>>,
    /// Large outputs of tasks that have ended.
    outputs: Outputs,
    journal: Journal,
    /// When the timer wakes next; `None` while it decides.
    wakes_at: Option<Duration>,
    stopped: bool,
}

impl CoreHandle {
    /// `began` is the wall time at which the core was made.
    pub(crate) fn new(
        mut core: Core,
        began: Duration,
        runtime: tokio::runtime::Handle,
        supervisor: Option<Arc<dyn Supervisor>>,
        hangs: Persisted<HangTable>,
        output_bytes_max: u64,
    ) -> Self {
        core.remember_hangs(hangs.read().clone());
        let state = State {
            core,
            sessions: HashMap::new(),
            callers: Callers::default(),
            larges: HashMap::new(),
            outputs: Outputs::default(),
            journal: Journal::default(),
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
            collected: Arc::new(TensorCache::new(output_bytes_max, TRANSFERS_MAX)),
            sooner: Notify::new(),
            supervisor,
            run_traces: RunTraces::default(),
            hangs: Arc::new(hangs),
            events: broadcast::Sender::new(EVENTS_KEPT),
        }
    }

    fn now(&self) -> Duration {
        self.began + self.started.elapsed()
    }

    /// After a panic within the core, its state is useless: the next process finds in the journal
    /// what was promised.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|_: PoisonError<_>| {
            tracing::error!("a panic has left the coordinator's state unusable; the process ends");
            std::process::abort()
        })
    }

    /// Writes the table of devices down; if the disk does not take it, it lasts as long as this
    /// process.
    fn keep_hangs(&self, table: HangTable) {
        let hangs = Arc::clone(&self.hangs);
        // The caller may be the journal's thread, which is no thread of the runtime.
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

    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Looks at the core.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Core, Duration) -> R) -> R {
        look(&self.lock().core, self.now())
    }

    /// Gives the core an event and carries out the actions that it asks for.
    pub(crate) fn with<R>(self: &Arc<Self>, event: impl FnOnce(&mut Core, Duration) -> R) -> R {
        let mut state = self.lock();
        let result = event(&mut state.core, self.now());
        self.carry_out(&mut state);
        result
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

    /// Fails tasks that are not terminal, and closes every connection.
    pub(crate) fn stop(self: &Arc<Self>) {
        self.with(|core, now| core.stop(now));
        let mut state = self.lock();
        state.stopped = true;
        for (_, session) in state.sessions.drain() {
            let reason = Close::Stopping;
            session.connection.close(reason.code(), reason.reason().as_bytes());
        }
        state.callers = Callers::default();
        self.sooner.notify_one();
        self.changed.notify_waiters();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }
}
