//! An independent record of what was promised, and the invariants that follow from it.

use super::laws::Laws;
use super::worker::{Worker, answer};
use super::workload::{BAD_MODEL, MODEL_BYTES, MODELS};
use crate::executor::{DeviceStatus, ExecErrorKind};
use crate::proto::Order;
use crate::proto::core::Core;
use crate::proto::message::AttemptId;
use crate::proto::state::{Completion, Digest, SessionId};
use crate::task::{ModelRef, TaskErrorKind, TaskId, TaskRecord, TaskSpec, TaskState};
use lgp_memory::NamedTensor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How much later than its deadline a durable task may end: its end has to reach the disk, which may
/// be full for seconds more than once, and the coordinator may be away meanwhile.
const DISK: Duration = Duration::from_secs(20);
/// Wait of a task of the next lower priority that makes it the equal of a more urgent one.
const AGEING: Duration = Duration::from_secs(10);

/// What the ledger knows of a task.
struct Entry {
    spec: Arc<TaskSpec>,
    digest: Digest,
    submitted: Duration,
    cancelled: bool,
    /// The journal has it, so it must never be lost.
    acknowledged: bool,
    /// Attempts of this life of the coordinator, the last of each session.
    attempts: u32,
    current: Vec<(SessionId, AttemptId)>,
    /// The last attempt failed with an answer.
    unavailable: bool,
    /// Its last attempt came back unbegun, and no other is under way.
    refused: bool,
    /// Attempts that were asked back.
    recalled: BTreeSet<(SessionId, AttemptId)>,
    /// The end that callers were shown.
    shown: Option<(TaskState, Option<Vec<NamedTensor>>)>,
    /// It went with a coordinator, or was rejected.
    gone: bool,
}

/// Everything that happened, as seen from outside of the core.
pub(super) struct Ledger {
    tasks: BTreeMap<TaskId, Entry>,
    /// Tasks of this life of the coordinator.
    alive: BTreeMap<u64, TaskId>,
    /// Those that depend on a task.
    dependants: BTreeMap<TaskId, Vec<TaskId>>,
    open: usize,
    /// Ids by submission, of those that were answered.
    ids: BTreeMap<usize, Vec<TaskId>>,
    /// Submissions that nobody answered.
    unheard: BTreeSet<usize>,
    /// Slots of the sessions that have not ended.
    sessions: BTreeMap<SessionId, u32>,
    held: BTreeMap<SessionId, BTreeMap<AttemptId, (u32, ModelRef)>>,
    /// The model of each attempt of the sessions that have not ended, whether it is current or not.
    models: BTreeMap<(SessionId, AttemptId), String>,
    /// Models that devices were told to load, until they said that they do not have them.
    placed: BTreeMap<(SessionId, u32), BTreeSet<ModelRef>>,
    /// Models that devices last said they have.
    told: BTreeMap<(SessionId, u32), BTreeSet<ModelRef>>,
    /// Models that devices were told to let go of and have not said that they have.
    going: BTreeSet<(SessionId, u32, ModelRef)>,
    keys: BTreeMap<String, TaskId>,
    keys_kept_for: Duration,
    deadlines: BTreeSet<(Duration, TaskId)>,
    /// Tasks that could begin and were not begun yet, by model and place in line.
    fresh: BTreeMap<String, BTreeSet<(Duration, TaskId)>>,
    laws: Laws,
}

impl Ledger {
    pub(super) fn new(keys_kept_for: Duration) -> Self {
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
            keys_kept_for,
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

    pub(super) fn session_ended(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.held.remove(&session);
        self.models.retain(|(of, _), _| *of != session);
        self.placed.retain(|(of, _), _| *of != session);
        self.told.retain(|(of, _), _| *of != session);
        self.going.retain(|(of, ..)| *of != session);
    }

    /// A worker says what its devices have; answers how many models they were not told to load.
    pub(super) fn listed<'a>(
        &mut self,
        session: SessionId,
        devices: impl Iterator<Item = &'a DeviceStatus>,
    ) -> u64 {
        let mut strays = 0;
        for (device, status) in (0u32..).zip(devices) {
            let models: BTreeSet<ModelRef> = status.models.iter().cloned().collect();
            let placed = self.placed.get(&(session, device));
            let stray = |model: &&ModelRef| placed.is_none_or(|placed| !placed.contains(*model));
            strays += u64::try_from(models.iter().filter(stray).count()).unwrap_or(u64::MAX);
            self.told.insert((session, device), models);
        }
        strays
    }

    /// A device is told to load a model, for which there must be room.
    pub(super) fn loads(
        &mut self,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        memory: Option<u64>,
    ) -> Result<(), String> {
        let placed = self.placed.entry((session, device)).or_default();
        placed.insert(model.clone());
        let told = self.told.get(&(session, device)).into_iter().flatten();
        let others = told.filter(|model| !placed.contains(*model)).count();
        let bytes = MODEL_BYTES * u64::try_from(placed.len() + others).unwrap_or(u64::MAX);
        match memory {
            Some(memory) if bytes > memory => {
                Err(format!("session {session}, device {device}: {bytes} of {memory} bytes"))
            }
            _ => Ok(()),
        }
    }

    /// A device is told to let go of a model, which nobody may be using while it is wanted.
    pub(super) fn unloads(
        &mut self,
        session: SessionId,
        device: u32,
        model: &ModelRef,
        core: &Core,
    ) -> Result<(), String> {
        // What callers have no more use for goes whoever uses it.
        let wanted = core.models().contains(model);
        // To be told again takes nothing away.
        let first = self.going.insert((session, device, model.clone()));
        let held = self.held.get(&session).filter(|_| wanted && first).into_iter().flatten();
        for (id, (at, of)) in held {
            if (*at, of) == (device, model) && core.is_current(session, *id) {
                return Err(format!("model {model} was taken away from attempt {id:?}"));
            }
        }
        Ok(())
    }

    /// The core learns that a device does not have a model.
    pub(super) fn failed_to_load(&mut self, session: SessionId, device: u32, model: &ModelRef) {
        for models in [&mut self.placed, &mut self.told] {
            if let Some(models) = models.get_mut(&(session, device)) {
                models.remove(model);
            }
        }
    }

    /// A caller has no more use for a model.
    pub(super) fn unwanted(&mut self, model: &str) {
        self.laws.unloaded(model);
    }

    /// A device says that it has let go of a model, as it was told.
    pub(super) fn unloaded(&mut self, session: SessionId, device: u32, model: &ModelRef) {
        self.going.remove(&(session, device, model.clone()));
        self.failed_to_load(session, device, model);
    }

    /// Ids that a submission was answered with.
    pub(super) fn ids(&self, number: usize) -> Vec<TaskId> {
        self.ids.get(&number).cloned().unwrap_or_default()
    }

    /// A submission met no coordinator.
    pub(super) fn unheard(&mut self, number: usize) {
        self.unheard.insert(number);
    }

    /// Submissions whose callers don't know what became of them.
    pub(super) fn unanswered(&mut self) -> Vec<usize> {
        let unsure = |ids: &Vec<TaskId>| {
            ids.iter().any(|id| {
                self.tasks.get(id).is_some_and(|e| {
                    e.spec.durable && !e.acknowledged && e.spec.idempotency_key.is_some()
                })
            })
        };
        let unsure = self.ids.iter().filter(|(_, ids)| unsure(ids)).map(|(number, _)| *number);
        let all: Vec<usize> = unsure.chain(std::mem::take(&mut self.unheard)).collect();
        for number in &all {
            self.ids.remove(number);
        }
        all
    }

    /// A submission was accepted, as these tasks.
    pub(super) fn submitted(
        &mut self,
        now: Duration,
        number: usize,
        ids: &[TaskId],
        orders: &[Order],
        core: &Core,
    ) -> Result<(), String> {
        if ids.len() != orders.len() {
            return Err(format!("{} tasks became {}", orders.len(), ids.len()));
        }
        self.ids.insert(number, ids.to_vec());
        for (id, order) in ids.iter().zip(orders) {
            let within = order.within.iter().filter_map(|&at| ids.get(at).copied());
            let mut spec = (*order.spec).clone();
            spec.depends_on.extend(within);
            self.add(now, *id, spec, order.digest, core)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        now: Duration,
        id: TaskId,
        spec: TaskSpec,
        digest: Digest,
        core: &Core,
    ) -> Result<(), String> {
        if let Some(key) = &spec.idempotency_key {
            if let Some(known) = self.keys.get(key).copied() {
                let entry = self.tasks.get(&known).ok_or("a key of no task")?;
                if known == id {
                    let same = entry.digest == digest;
                    return same.then_some(()).ok_or(format!("key {key} took another body"));
                }
                let finished = core.record(now, known).is_ok();
                if !entry.gone && (finished || entry.shown.is_none()) {
                    return Err(format!("key {key} stands for task {known}, not {id}"));
                }
            }
            self.keys.insert(key.clone(), id);
        }
        if let Some(deadline) = spec.deadline {
            self.deadlines.insert((now + deadline, id));
        }
        for dependency in &spec.depends_on {
            self.dependants.entry(*dependency).or_default().push(id);
        }
        let entry = Entry {
            acknowledged: !spec.durable,
            spec: Arc::new(spec),
            digest,
            submitted: now,
            cancelled: false,
            attempts: 0,
            current: Vec::new(),
            unavailable: false,
            refused: false,
            recalled: BTreeSet::new(),
            shown: None,
            gone: false,
        };
        if self.tasks.insert(id, entry).is_some() || self.alive.insert(id.seq, id).is_some() {
            return Err(format!("task {id} was given out twice"));
        }
        self.open += 1;
        self.may_begin(id);
        Ok(())
    }

    /// Notes that a task could begin from now on, if so.
    fn may_begin(&mut self, id: TaskId) {
        let Some(entry) = self.tasks.get(&id) else { return };
        let succeeded = |id: &TaskId| {
            let shown = self.tasks.get(id).and_then(|e| e.shown.as_ref());
            shown.is_some_and(|(state, _)| *state == TaskState::Succeeded)
        };
        let unbegun = entry.attempts == 0 || entry.refused;
        let ready = entry.acknowledged && entry.shown.is_none() && unbegun;
        if ready && !entry.cancelled && entry.spec.depends_on.iter().all(succeeded) {
            let place = (entry.submitted + AGEING * entry.spec.priority.level(), id);
            self.fresh.entry(entry.spec.model.name.clone()).or_default().insert(place);
        }
    }

    fn begun(&mut self, id: TaskId) {
        let Some(entry) = self.tasks.get(&id) else { return };
        let place = (entry.submitted + AGEING * entry.spec.priority.level(), id);
        if let Some(fresh) = self.fresh.get_mut(&entry.spec.model.name) {
            fresh.remove(&place);
        }
    }

    fn entry(&mut self, seq: u64) -> Result<(TaskId, &mut Entry), String> {
        let id = *self.alive.get(&seq).ok_or_else(|| format!("no task {seq} is known"))?;
        let entry = self.tasks.get_mut(&id).ok_or("a task without an entry")?;
        Ok((id, entry))
    }

    /// The core says that the journal has a task.
    pub(super) fn acknowledged(&mut self, seq: u64) -> Result<(), String> {
        let (id, entry) = self.entry(seq)?;
        entry.acknowledged = true;
        self.may_begin(id);
        Ok(())
    }

    /// The core says that it could not keep a task.
    pub(super) fn rejected(&mut self, seq: u64) -> Result<(), String> {
        let (id, entry) = self.entry(seq)?;
        if entry.acknowledged {
            return Err(format!("task {id} was rejected after it was acknowledged"));
        }
        entry.gone = true;
        self.alive.remove(&seq);
        self.open -= 1;
        self.deadlines.retain(|(_, other)| *other != id);
        Ok(())
    }

    pub(super) fn cancelled(&mut self, id: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&id) {
            entry.cancelled = true;
        }
        self.begun(id);
    }

    /// An attempt was cancelled.
    pub(super) fn let_go(&mut self, session: SessionId, id: AttemptId) {
        if let Ok((_, entry)) = self.entry(id.seq) {
            entry.current.retain(|at| *at != (session, id));
        }
    }

    pub(super) fn dispatched(
        &mut self,
        now: Duration,
        session: SessionId,
        id: AttemptId,
        (device, model): (u32, &ModelRef),
        core: &Core,
    ) -> Result<(), String> {
        let (task, entry) = self.entry(id.seq)?;
        if entry.shown.is_some() {
            return Err(format!("task {task} was dispatched after its end"));
        }
        if !entry.acknowledged {
            return Err(format!("task {task} was dispatched before the journal had it"));
        }
        if id.attempt != entry.attempts + 1 {
            return Err(format!("task {task}: attempt {} after {}", id.attempt, entry.attempts));
        }
        let held = |&&(session, id): &&(SessionId, AttemptId)| core.holds(session, id);
        let other = entry.current.iter().find(held).filter(|_| entry.spec.hedge_after.is_none());
        if let Some(other) = other {
            return Err(format!("task {task} was dispatched while {other:?} may run"));
        }
        entry.refused = false;
        let (first, retry) = (entry.attempts == 0, std::mem::take(&mut entry.unavailable));
        entry.attempts = id.attempt;
        entry.current.retain(|(s, _)| *s != session);
        entry.current.push((session, id));
        let depends_on = entry.spec.depends_on.clone();
        for other in depends_on {
            let shown = self.tasks.get(&other).and_then(|e| e.shown.as_ref());
            if shown.is_none_or(|(state, _)| *state != TaskState::Succeeded) {
                return Err(format!("task {task} was dispatched before task {other} succeeded"));
            }
        }
        self.check_turn(now, task, first, core)?;
        self.check_slots(session, id, (device, model), core)?;
        self.laws.dispatched(now, (session, id), &model.name, first, retry)
    }

    /// Nobody of the same model who could begin has waited for a better right to.
    fn check_turn(
        &mut self,
        now: Duration,
        id: TaskId,
        first: bool,
        core: &Core,
    ) -> Result<(), String> {
        self.begun(id);
        let Some(entry) = self.tasks.get(&id) else { return Ok(()) };
        let due = entry.submitted + AGEING * entry.spec.priority.level();
        let fresh = self.fresh.get(&entry.spec.model.name);
        // One whose end is on its way to the disk waits for that alone.
        let waits = |(_, id): &&(Duration, TaskId)| !core.is_ending(*id);
        let fresh = fresh.and_then(|fresh| fresh.iter().find(waits));
        match fresh {
            // An attempt that began in time may get a rival, or be repeated, before its turn.
            Some((other_due, other)) if first && *other_due < due => {
                let why = core.explain(now, *other);
                let what = format!("task {id}, due at {due:?}, overtook {other}");
                Err(format!("{what}, due at {other_due:?}: {why:?}"))
            }
            _ => Ok(()),
        }
    }

    /// A session gets no more than its slots hold.
    fn check_slots(
        &mut self,
        session: SessionId,
        id: AttemptId,
        (device, model): (u32, &ModelRef),
        core: &Core,
    ) -> Result<(), String> {
        let slots = *self.sessions.get(&session).ok_or("a session that has ended gets a task")?;
        let held = self.held.entry(session).or_default();
        held.retain(|id, _| core.is_current(session, *id));
        held.insert(id, (device, model.clone()));
        self.models.insert((session, id), model.name.clone());
        let running = u32::try_from(held.len()).unwrap_or(u32::MAX);
        if running > slots {
            let what = format!("session {session} runs {running} tasks");
            return Err(format!("{what}, more than its slots, which are {slots}"));
        }
        Ok(())
    }

    /// A worker's answer reaches the core.
    pub(super) fn answered(
        &mut self,
        session: SessionId,
        id: AttemptId,
        completion: &Completion,
        core: &Core,
    ) {
        let failed = match completion {
            Completion::Error { error, .. } => Some(error.kind == ExecErrorKind::Unavailable),
            Completion::Broken { .. } => Some(true),
            Completion::Done { .. } => Some(false),
            Completion::Refused | Completion::Unshared | Completion::NoInputs { .. } => None,
        };
        let model = self.models.get(&(session, id)).filter(|_| core.holds(session, id));
        match (model, failed) {
            (Some(model), Some(failed)) => self.laws.answered(session, model, failed),
            (Some(model), None) => self.laws.came_back(session, id, model),
            (None, _) => {}
        }
    }

    /// A worker lets go of an attempt that nobody waits for.
    pub(super) fn released(&mut self, session: SessionId, id: AttemptId, core: &Core) {
        let model = self.models.get(&(session, id)).filter(|_| core.holds(session, id));
        if let Some(model) = model.filter(|_| !core.is_current(session, id)) {
            self.laws.came_back(session, id, model);
        }
    }

    /// The core accepted a completion.
    pub(super) fn accepted(
        &mut self,
        session: SessionId,
        id: AttemptId,
        unavailable: bool,
    ) -> Result<(), String> {
        let live = self.sessions.contains_key(&session);
        let (task, entry) = self.entry(id.seq)?;
        if live && entry.current.contains(&(session, id)) && entry.shown.is_none() {
            // A rival that is still at work makes a retry unnecessary.
            entry.current.retain(|(s, _)| *s != session);
            entry.unavailable = unavailable && entry.current.is_empty();
            entry.current.push((session, id));
            return Ok(());
        }
        Err(format!(
            "a completion of {id:?} from session {session} was accepted, which is not a current \
             attempt of task {task}: {:?}",
            entry.current
        ))
    }

    /// The core took an attempt back that its worker had not begun: the task waits as before.
    pub(super) fn refused(&mut self, session: SessionId, id: AttemptId) -> Result<(), String> {
        let live = self.sessions.contains_key(&session);
        let (task, entry) = self.entry(id.seq)?;
        if !live || !entry.current.contains(&(session, id)) {
            return Err(format!("a refusal of {id:?} from session {session} was accepted"));
        }
        entry.current.retain(|at| *at != (session, id));
        entry.refused = entry.current.is_empty();
        self.may_begin(task);
        Ok(())
    }

    /// An attempt is asked back: a current one, and once.
    pub(super) fn recalled(
        &mut self,
        session: SessionId,
        id: AttemptId,
        core: &Core,
    ) -> Result<(), String> {
        let (task, entry) = self.entry(id.seq)?;
        if !entry.recalled.insert((session, id)) {
            return Err(format!("attempt {id:?} of task {task} is asked back twice"));
        }
        match core.holds(session, id) && entry.current.contains(&(session, id)) {
            true => Ok(()),
            false => Err(format!("attempt {id:?} is asked back and is not under way")),
        }
    }

    /// A task reached its end: for the first time, and the right one.
    pub(super) fn finished(
        &mut self,
        now: Duration,
        record: &TaskRecord,
        core: &Core,
    ) -> Result<(), String> {
        let id = record.task_id;
        let entry = self.tasks.get(&id).ok_or("an unknown task finished")?;
        if let Some((earlier, _)) = &entry.shown {
            return Err(format!("task {id} finished twice: {earlier}, then {}", record.state));
        }
        if !self.is_expected(now, entry, record) {
            return Err(format!("task {id} has no reason to end so: {record:?}"));
        }
        if let Some(at) = entry.current.iter().find(|(session, id)| core.holds(*session, *id)) {
            return Err(format!("task {id} has ended, and attempt {at:?} was not cancelled"));
        }
        let shown = Some((record.state, record.outputs.clone()));
        if let Some(deadline) = entry.spec.deadline {
            let due = entry.submitted + deadline;
            self.deadlines.remove(&(due, id));
        }
        self.begun(id);
        if let Some(entry) = self.tasks.get_mut(&id) {
            entry.shown = shown;
            entry.acknowledged = true;
        }
        self.open -= 1;
        for dependant in self.dependants.get(&id).cloned().unwrap_or_default() {
            if self.alive.get(&dependant.seq) == Some(&dependant) {
                self.may_begin(dependant);
            }
        }
        Ok(())
    }

    fn is_expected(&self, now: Duration, entry: &Entry, record: &TaskRecord) -> bool {
        let code = record.error.as_ref().map(|e| e.code);
        let bad = entry.spec.model.name == BAD_MODEL;
        let given_up = entry.spec.max_attempts < 1_000;
        match (record.state, code) {
            (TaskState::Succeeded, None) => {
                let made_by =
                    |(_, id): &(SessionId, AttemptId)| record.outputs == Some(answer(*id));
                !bad && entry.current.iter().any(made_by)
            }
            (TaskState::Cancelled, Some(TaskErrorKind::Cancelled)) => entry.cancelled,
            (TaskState::Failed, Some(TaskErrorKind::BadInput)) => bad,
            (TaskState::Failed, Some(TaskErrorKind::DeadlineExceeded)) => {
                let due = entry.spec.deadline.map(|d| entry.submitted + d);
                due.is_some_and(|due| now >= due)
            }
            (TaskState::Failed, Some(TaskErrorKind::DependencyFailed)) => {
                entry.spec.depends_on.iter().any(|id| {
                    let other = self.tasks.get(id);
                    other.is_none_or(|other| {
                        let shown = other.shown.as_ref().map(|(state, _)| *state);
                        shown.map_or(other.gone, |state| state != TaskState::Succeeded)
                    })
                })
            }
            // What came back unbegun has not failed.
            (TaskState::Failed, Some(TaskErrorKind::WorkerLost)) => given_up && !entry.refused,
            (TaskState::Failed, Some(TaskErrorKind::Unavailable)) => {
                // No worker could load the second model, or the device failed too often.
                (given_up && !entry.refused) || entry.spec.model.name == MODELS[1]
            }
            _ => false,
        }
    }

    /// The coordinator's process is gone, and with it all that was only in its memory.
    pub(super) fn coordinator_crashed(&mut self) {
        self.sessions.clear();
        self.held.clear();
        self.models.clear();
        self.placed.clear();
        self.told.clear();
        self.going.clear();
        self.fresh.clear();
        for id in std::mem::take(&mut self.alive).into_values() {
            let Some(entry) = self.tasks.get_mut(&id) else { continue };
            entry.gone |= !entry.spec.durable;
            entry.attempts = 0;
            entry.current.clear();
            entry.unavailable = false;
            entry.refused = false;
        }
        self.open = 0;
    }

    /// Another coordinator took over: what was promised is there, as it was shown.
    pub(super) fn coordinator_started(&mut self, now: Duration, core: &Core) -> Result<(), String> {
        self.laws = Laws::new(now);
        let mut back = Vec::new();
        for (id, entry) in self.tasks.iter_mut().filter(|(_, e)| !e.gone) {
            let Ok(record) = core.record(now, *id) else {
                // A record that was shown may have been dropped since, unless its key still stands.
                let keyed = entry.spec.idempotency_key.is_some();
                let young = now < entry.submitted + self.keys_kept_for;
                let dropped = entry.shown.is_some() && !(keyed && young);
                if entry.acknowledged && !dropped {
                    return Err(format!("task {id} was acknowledged and is lost"));
                }
                entry.gone = true;
                continue;
            };
            match &entry.shown {
                Some((state, outputs)) if record.state != *state || record.outputs != *outputs => {
                    let now_state = record.state;
                    return Err(format!("task {id} had ended {state} and is {now_state} again"));
                }
                Some(_) => {}
                // It ended, and the coordinator did too before it could say so.
                None if record.state.is_terminal() => {
                    entry.shown = Some((record.state, record.outputs));
                }
                None => self.open += 1,
            }
            // What the journal has needs no further word.
            entry.acknowledged = true;
            self.alive.insert(id.seq, *id);
            back.push(*id);
        }
        let gone: BTreeSet<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, e)| e.gone || e.shown.is_some())
            .map(|(id, _)| *id)
            .collect();
        self.deadlines.retain(|(_, id)| !gone.contains(id));
        for id in back {
            self.may_begin(id);
        }
        Ok(())
    }

    /// What holds after every step.
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

    /// What holds at the end, long after the last fault.
    pub(super) fn check_end(&self) -> Result<(), String> {
        let open = self.tasks.iter().find(|(_, e)| !e.gone && e.shown.is_none());
        open.map_or(Ok(()), |(id, e)| {
            Err(format!("task {id} is still open; its last attempts were {:?}", e.current))
        })
    }
}
