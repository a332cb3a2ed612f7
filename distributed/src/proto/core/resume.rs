//! Workers that come back: their attempts go on where no other worker has begun them meanwhile.

use super::Core;
use crate::proto::message::AttemptId;
use crate::proto::placement::{Held, Kept, Standing};
use crate::proto::state::{Action, SessionId};
use crate::proto::tasks::{Run, Task, What};
use crate::proto::timers::Timer;
use crate::task::Priority;
use crate::worker_info::WorkerId;
use std::sync::Arc;
use std::time::Duration;

impl Core {
    /// Takes over the attempts of a worker's earlier session. An attempt that is current, or that
    /// was lost with its worker and that no other has followed yet, goes on in the new session; any
    /// other attempt, such as one that hung, keeps its slot until it has stopped.
    pub(super) fn resume(
        &mut self,
        now: Duration,
        (old, new): (SessionId, SessionId),
        worker: &WorkerId,
        kept: Vec<Kept>,
    ) {
        for Kept { id, device, model, begun, hung } in kept {
            let Some((seat, _)) = self.placement.device_of(new, device) else { continue };
            let task = self.tasks.get(id.seq);
            let priority = task.map_or(Priority::Background, |task| task.request().priority());
            let standing = Standing::resumed(priority, begun, hung);
            let held = Held { confirmed: now, model: Arc::clone(&model), standing };
            let number = self.scheduler.count_dispatch(false);
            let Some(taken) = self.placement.take_slot(seat, id, held, number) else { continue };
            let goes_on = |task: &&Task| {
                let waits = task.awaits(old, id.attempt)
                    || (task.waits_to_run() && task.attempts() == id.attempt && task.was_lost());
                waits && task.attempt_id(id.attempt) == id
            };
            let Some(task) = task.filter(goes_on) else {
                self.actions.push(Action::Cancel { session: new, id });
                let at = now + self.config.timing.stop_grace;
                self.timers.set(at, Timer::Hang(new, id));
                continue;
            };
            let variant = (model != *task.model()).then_some(model);
            let (attempt, worker, queued) = (id.attempt, worker.clone(), task.queued(now));
            let device = taken.name;
            let run = Run { session: new, attempt, worker, device, variant, queued };
            self.go_on(now, old, run, id);
        }
    }

    fn go_on(&mut self, now: Duration, old: SessionId, run: Run, id: AttemptId) {
        if planted!(self, ForgetResumed) {
            return;
        }
        let Some(mut task) = self.tasks.entry(id.seq) else { return };
        if !task.is_running() {
            if let Some((at, timer)) = task.timer() {
                self.timers.clear(at, timer);
            }
            self.scheduler.dequeue(&task);
        }
        task.note(now, What::Resumed { attempt: id.attempt, worker: run.worker.clone() });
        task.resume(old, run);
    }
}
