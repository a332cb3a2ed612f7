//! An independent record of all promises, and the invariants that follow from them.

mod attempts;
mod ends;
mod models;
mod restart;
mod submissions;

use super::laws::Laws;
use super::worker::Worker;
use lgp_distributed::inside;
use lgp_distributed::inside::core::Core;
use lgp_distributed::inside::message::AttemptId;
use lgp_distributed::inside::state::{CoreConfig, Digest, SessionId};
use lgp_distributed::{ModelRef, TaskId, TaskSpec, TaskState};
use lgp_memory::NamedTensor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How much later than its deadline a durable task may end: its end must reach the disk, which may
/// be full for seconds more than once while the coordinator may be down.
const DISK: Duration = Duration::from_secs(20);
/// The wait that makes a task the equal of one with the next higher priority.
const AGEING: Duration = Duration::from_secs(10);

/// The ledger's record of a task.
struct Entry {
    spec: Arc<TaskSpec>,
    digest: Digest,
    submitted: Duration,
    /// The number of its submission.
    number: usize,
    cancelled: bool,
    /// The journal has the task, so it must never be lost.
    acknowledged: bool,
    /// Attempts in this life of the coordinator, and the last attempt of each session.
    attempts: u32,
    current: Vec<(SessionId, AttemptId)>,
    /// The last attempt failed with an answer.
    unavailable: bool,
    /// The last attempt came back unbegun, and no other one is running.
    refused: bool,
    /// Attempts that were recalled.
    recalled: BTreeSet<(SessionId, AttemptId)>,
    /// The end that callers saw.
    shown: Option<(TaskState, Option<Vec<NamedTensor>>)>,
    /// A caller has read the result.
    read: bool,
    /// The task was lost with its coordinator, or was rejected.
    gone: bool,
}

/// The record of a run, as seen from outside the core.
pub(super) struct Ledger {
    tasks: BTreeMap<TaskId, Entry>,
    /// Tasks in this life of the coordinator.
    alive: BTreeMap<u64, TaskId>,
    /// The dependants of each task.
    dependants: BTreeMap<TaskId, Vec<TaskId>>,
    open: usize,
    /// Ids of the answered submissions.
    ids: BTreeMap<usize, Vec<TaskId>>,
    /// Submissions without an answer.
    unheard: BTreeSet<usize>,
    /// Slots of the open sessions.
    sessions: BTreeMap<SessionId, u32>,
    held: BTreeMap<SessionId, BTreeMap<AttemptId, (u32, ModelRef)>>,
    /// The model of each attempt of this coordinator, current or not.
    models: BTreeMap<AttemptId, String>,
    /// Models that devices were told to load and did not report as missing.
    placed: BTreeMap<(SessionId, u32), BTreeSet<ModelRef>>,
    /// Models that devices reported last.
    told: BTreeMap<(SessionId, u32), BTreeSet<ModelRef>>,
    /// Models that devices were told to unload, before they confirm it.
    going: BTreeSet<(SessionId, u32, ModelRef)>,
    keys: BTreeMap<String, TaskId>,
    keys_kept_for: Duration,
    /// The time for which unread results must be kept.
    results_kept_for: Duration,
    deadlines: BTreeSet<(Duration, TaskId)>,
    /// Tasks that are ready but not begun, by model and place in line.
    fresh: BTreeMap<String, BTreeSet<(Duration, TaskId)>>,
    laws: Laws,
}

impl Ledger {
    pub(super) fn new(config: &CoreConfig) -> Self {
        // With room for few results, any of them may be removed.
        let roomy = config.retention.results_max > 1_000;
        let results_kept_for =
            if roomy { config.retention.results_kept_for } else { Duration::ZERO };
        Self {
            tasks: BTreeMap::new(),
            alive: BTreeMap::new(),
            dependants: BTreeMap::new(),
            open: 0,
            ids: BTreeMap::new(),
            unheard: BTreeSet::new(),
            sessions: BTreeMap::new(),
            held: BTreeMap::new(),
            models: BTreeMap::new(),
            placed: BTreeMap::new(),
            told: BTreeMap::new(),
            going: BTreeSet::new(),
            keys: BTreeMap::new(),
            keys_kept_for: config.retention.keys_kept_for,
            results_kept_for,
            deadlines: BTreeSet::new(),
            fresh: BTreeMap::new(),
            laws: Laws::default(),
        }
    }

    pub(super) fn accepted_tasks(&self) -> u64 {
        u64::try_from(self.tasks.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn durable_tasks(&self) -> u64 {
        u64::try_from(self.tasks.values().filter(|e| e.spec.durable).count()).unwrap_or(u64::MAX)
    }

    pub(super) fn session_began(&mut self, session: SessionId, slots: u32, worker: &Worker) {
        self.listed(session, worker.status().devices.iter());
        self.sessions.insert(session, slots * worker.devices);
    }

    /// A worker continues the attempts of an earlier session.
    pub(super) fn resumed(&mut self, session: SessionId, core: &Core) {
        let mut moved = Vec::new();
        for entry in self.tasks.values_mut() {
            for at in entry.current.iter_mut().filter(|at| core.is_current(session, at.1)) {
                moved.push((at.0, at.1));
                at.0 = session;
            }
        }
        for (old, id) in moved {
            let held = self.held.get_mut(&old).and_then(|held| held.remove(&id));
            if let Some(held) = held {
                self.held.entry(session).or_default().insert(id, held);
            }
        }
    }

    pub(super) fn session_ended(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.held.remove(&session);
        self.placed.retain(|(of, _), _| *of != session);
        self.told.retain(|(of, _), _| *of != session);
        self.going.retain(|(of, ..)| *of != session);
    }

    /// Notes that a task is ready to begin, if so.
    fn may_begin(&mut self, id: TaskId) {
        let Some(entry) = self.tasks.get(&id) else { return };
        let succeeded = |id: &TaskId| {
            let shown = self.tasks.get(id).and_then(|e| e.shown.as_ref());
            shown.is_some_and(|(state, _)| *state == TaskState::Succeeded)
        };
        let unbegun = entry.attempts == 0 || entry.refused;
        let ready = entry.acknowledged && entry.shown.is_none() && unbegun;
        if ready && !entry.cancelled && entry.spec.depends_on.iter().all(succeeded) {
            let place = (entry.submitted + AGEING * inside::level(entry.spec.priority), id);
            self.fresh.entry(entry.spec.model.name.clone()).or_default().insert(place);
        }
    }

    fn begun(&mut self, id: TaskId) {
        let Some(entry) = self.tasks.get(&id) else { return };
        let place = (entry.submitted + AGEING * inside::level(entry.spec.priority), id);
        if let Some(fresh) = self.fresh.get_mut(&entry.spec.model.name) {
            fresh.remove(&place);
        }
    }

    fn entry(&mut self, seq: u64) -> Result<(TaskId, &mut Entry), String> {
        let id = *self.alive.get(&seq).ok_or_else(|| format!("no task {seq} is known"))?;
        let entry = self.tasks.get_mut(&id).ok_or("a task without an entry")?;
        Ok((id, entry))
    }

    /// Checks the invariants that hold after every step.
    pub(super) fn check(&self, now: Duration, core: &Core) -> Result<(), String> {
        let counts = core.counts();
        let of = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let open = of(self.open);
        if counts.queued + counts.running != open {
            return Err(format!("{open} tasks are open, the core says {counts:?}"));
        }
        let ended = counts.succeeded + counts.failed + counts.cancelled;
        if ended + open != counts.submitted || counts.submitted != of(self.alive.len()) {
            let known = self.alive.len();
            return Err(format!("{known} tasks are known, the core says {counts:?}"));
        }
        for (due, id) in &self.deadlines {
            if *due >= now {
                break;
            }
            let durable = self.tasks.get(id).is_some_and(|e| e.spec.durable);
            if !durable || *due + DISK < now {
                return Err(format!("task {id} outlived its deadline {due:?}"));
            }
        }
        Ok(())
    }

    /// Whether the result of a task must exist: it is durable and unread.
    fn must_answer(&self, now: Duration, entry: &Entry) -> bool {
        let young = now < entry.submitted + self.results_kept_for;
        entry.spec.durable && entry.shown.is_some() && !entry.read && !entry.gone && young
    }

    /// A caller was given the result of a task.
    pub(super) fn given(&mut self, id: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&id) {
            entry.read = true;
        }
    }

    /// Checks that unread results are still there.
    pub(super) fn check_results(
        &self,
        now: Duration,
        answers: impl Fn(TaskId) -> bool,
    ) -> Result<(), String> {
        let waiting = self.tasks.iter().filter(|(_, entry)| self.must_answer(now, entry));
        let lost = waiting.map(|(id, _)| *id).find(|id| !answers(*id));
        lost.map_or(Ok(()), |id| {
            Err(format!("the result of task {id} is lost, and nobody read it"))
        })
    }

    /// Checks that no task is open at the end, long after the last fault.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let open = self.tasks.iter().find(|(_, e)| !e.gone && e.shown.is_none());
        open.map_or(Ok(()), |(id, e)| {
            Err(format!("task {id} is still open; its last attempts were {:?}", e.current))
        })
    }
}
