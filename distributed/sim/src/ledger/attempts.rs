//! Attempts: when they may begin, and which answers the core may accept.

use super::{AGEING, Ledger};
use lgp_distributed::inside;
use lgp_distributed::inside::core::Core;
use lgp_distributed::inside::message::AttemptId;
use lgp_distributed::inside::state::{Completion, SessionId};
use lgp_distributed::{ExecErrorKind, ModelRef, TaskId, TaskState};
use std::time::Duration;

impl Ledger {
    /// An attempt was cancelled.
    pub(crate) fn let_go(&mut self, session: SessionId, id: AttemptId) {
        if let Ok((_, entry)) = self.entry(id.seq) {
            entry.current.retain(|at| *at != (session, id));
        }
    }

    pub(crate) fn dispatched(
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

    /// Checks that no ready task of the same model had a better place.
    fn check_turn(
        &mut self,
        now: Duration,
        id: TaskId,
        first: bool,
        core: &Core,
    ) -> Result<(), String> {
        self.begun(id);
        let Some(entry) = self.tasks.get(&id) else { return Ok(()) };
        let due = entry.submitted + AGEING * inside::level(entry.spec.priority);
        let fresh = self.fresh.get(&entry.spec.model.name);
        // A task whose end is being written waits only for the disk.
        let waits = |(_, id): &&(Duration, TaskId)| !core.is_ending(*id);
        let fresh = fresh.and_then(|fresh| fresh.iter().find(waits));
        match fresh {
            // An attempt that began in time may be hedged or repeated out of turn.
            Some((other_due, other)) if first && *other_due < due => {
                let why = core.explain(now, *other);
                let what = format!("task {id}, due at {due:?}, overtook {other}");
                Err(format!("{what}, due at {other_due:?}: {why:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a session gets no more attempts than it has slots.
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
        self.models.insert(id, model.name.clone());
        let running = u32::try_from(held.len()).unwrap_or(u32::MAX);
        if running > slots {
            let what = format!("session {session} runs {running} tasks");
            return Err(format!("{what}, more than its slots, which are {slots}"));
        }
        Ok(())
    }

    /// A worker's answer reaches the core.
    pub(crate) fn answered(
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
        let model = self.models.get(&id).filter(|_| core.holds(session, id));
        match (model, failed) {
            (Some(model), Some(failed)) => self.laws.answered(session, model, failed),
            (Some(model), None) => self.laws.came_back(session, id, model),
            (None, _) => {}
        }
    }

    /// A worker drops an attempt that is no longer current.
    pub(crate) fn released(&mut self, session: SessionId, id: AttemptId, core: &Core) {
        let model = self.models.get(&id).filter(|_| core.holds(session, id));
        if let Some(model) = model.filter(|_| !core.is_current(session, id)) {
            self.laws.came_back(session, id, model);
        }
    }

    /// The core accepted a completion.
    pub(crate) fn accepted(
        &mut self,
        session: SessionId,
        id: AttemptId,
        unavailable: bool,
    ) -> Result<(), String> {
        let live = self.sessions.contains_key(&session);
        let (task, entry) = self.entry(id.seq)?;
        if live && entry.current.contains(&(session, id)) && entry.shown.is_none() {
            // A hedged attempt that is still running makes a retry unnecessary.
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

    /// The core took back an attempt that its worker had not begun, so the task waits again.
    pub(crate) fn refused(&mut self, session: SessionId, id: AttemptId) -> Result<(), String> {
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

    /// Checks that a recalled attempt is current and was not recalled before.
    pub(crate) fn recalled(
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
}
