//! The coordinator without its network: a facade over four parts, each with its own state, and the
//! events that concern several of them, a file each.

mod assign;
mod attempts;
mod batch;
mod depend;
mod durable;
mod explain;
mod finish;
mod hand_over;
mod hangs;
mod health;
mod heartbeat;
pub(crate) mod membership;
mod models;
mod orders;
mod page;
pub(crate) mod readiness;
mod recall;
mod relieve;
mod residency;
mod restore;
mod results;
mod resume;
mod retry;
mod stats;
mod stock;
mod submit;
#[cfg(test)]
pub(in crate::proto) mod tests;
mod views;

pub use assign::Errand;
pub(crate) use restore::retell;
pub use restore::{Left, recollect};
pub use results::Found;
pub use submit::Order;

use crate::error::Result;
use crate::proto::actions::Actions;
use crate::proto::balance::Balance;
use crate::proto::event::Event;
use crate::proto::ledger::Ledger;
use crate::proto::placement::Placement;
use crate::proto::scheduler::Scheduler;
use crate::proto::state::{Action, CoreConfig};
use crate::proto::statistics::Statistics;
use crate::proto::tasks::{Task, Tasks};
use crate::proto::timers::{Timer, Timers};
use crate::task::{TaskError, TaskErrorKind, TaskId, TaskState};
use std::time::Duration;

/// The coordinator without its network.
pub struct Core {
    config: CoreConfig,
    /// The submitted tasks and their phases.
    tasks: Tasks,
    /// Workers, their devices, and the models there.
    placement: Placement,
    /// Which task goes next, and where.
    scheduler: Scheduler,
    /// Changes under way to the journal, and the records that are kept.
    ledger: Ledger,
    statistics: Statistics,
    timers: Timers,
    actions: Actions,
    draining: bool,
    stopped: bool,
    #[cfg(feature = "planted")]
    planted: Option<crate::proto::planted::Planted>,
}

impl Core {
    /// An empty coordinator; `seed` feeds the jitter of retries.
    pub fn new(now: Duration, config: CoreConfig, seed: u64) -> Self {
        Self {
            scheduler: Scheduler::new(now, config.balancing, config.thrift, seed),
            tasks: Tasks::new(config.first_seq),
            config,
            placement: Placement::default(),
            ledger: Ledger::default(),
            statistics: Statistics::new(now),
            timers: Timers::default(),
            actions: Actions::default(),
            draining: false,
            stopped: false,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }

    /// From now on the core has this fault.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, fault: Option<crate::proto::planted::Planted>) {
        self.planted = fault;
        self.placement.plant(fault);
    }

    /// Panics where counts and lists that are kept up to date differ from a look at everything.
    #[cfg(feature = "planted")]
    pub fn check(&self) {
        self.placement.check();
        self.tasks.check(self.scheduler.queue().len());
    }

    /// Cancels a task; one that is terminal stays as it is.
    pub fn cancel(&mut self, now: Duration, id: TaskId) -> Result<Found> {
        let seq = match self.whole(id)? {
            Found::Here(task) => task.id().seq,
            Found::Stored(id) => return Ok(Found::Stored(id)),
        };
        let error = TaskError::new(TaskErrorKind::Cancelled, "cancelled by a caller");
        self.abort(now, seq, TaskState::Cancelled, error);
        self.schedule(now);
        self.give(now, id)
    }

    /// Lets time pass: deadlines, retries, silent workers.
    pub fn tick(&mut self, now: Duration) {
        while let Some((due, timer)) = self.timers.pop(now) {
            match timer {
                Timer::Deadline(_) if planted!(self, IgnoreDeadlines) => {}
                Timer::Deadline(seq) => {
                    let error =
                        TaskError::new(TaskErrorKind::DeadlineExceeded, self.overdue(now, seq));
                    self.abort(now, seq, TaskState::Failed, error);
                }
                Timer::Retry(seq) => self.retry(now, seq),
                Timer::Budget => self.release_parked(now),
                Timer::Hedge(seq, attempt) => self.hedge(now, seq, attempt),
                Timer::Probe(session, model) => self.placement.probe(now, session, &model),
                Timer::RunLimit(session, id) => self.overran(now, session, id),
                Timer::Hang(session, id) => self.hang(now, due, session, id),
                Timer::Journal => self.record_again(),
                Timer::Membership => self.check_membership(now, due),
            }
        }
        self.schedule(now);
    }

    /// When [`Core::tick`] must be called next, at the latest.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// The next action. Records of finished tasks may be dropped once this returned `None`.
    pub fn next_action(&mut self, now: Duration) -> Option<Action> {
        if let Some(action) = self.actions.pop() {
            return Some(action);
        }
        self.evict_records(now);
        self.actions.pop()
    }

    /// Sends an event to subscribers.
    pub(crate) fn tell(&mut self, event: Event) {
        self.actions.tell(event);
    }

    /// Accepts no more tasks.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Fails every task that is neither terminal nor in the journal; nothing is accepted
    /// afterwards, and tasks in the journal wait there for the next coordinator.
    pub(crate) fn stop(&mut self, now: Duration) {
        self.stopped = true;
        let lost = |task: &&Task| !task.is_terminal() && !task.request().is_durable();
        let lost: Vec<u64> = self.tasks.iter().filter(lost).map(|task| task.id().seq).collect();
        for seq in lost {
            let error = TaskError::new(TaskErrorKind::Stopped, "the coordinator stopped first");
            self.abort(now, seq, TaskState::Failed, error);
        }
    }

    pub fn set_balancing(&mut self, strategy: &'static dyn Balance) {
        self.scheduler.set_strategy(strategy);
    }
}
