//! Heartbeats: the attempts that workers hold, and the models that their devices have.

use super::Core;
use crate::proto::message::{AttemptId, Heartbeat};
use crate::proto::placement::{devices, unused};
use crate::proto::state::SessionId;
use crate::task::{TaskError, TaskErrorKind};
use std::time::Duration;

impl Core {
    /// A worker is alive and says what it holds.
    pub fn heartbeat(&mut self, now: Duration, session: SessionId, heartbeat: Heartbeat) {
        self.excuse(now, session);
        let Some(worker) = self.placement.live_mut(session) else { return };
        let status = heartbeat.status.clone().map(|status| {
            worker.set_unused(unused(status.unused));
            devices(status.devices)
        });
        if let Some(status) = &status {
            worker.set_status(now, status);
        }
        self.placement.heard(session, now);
        let heard = self.placement.confirm(now, session, &heartbeat);
        self.begun(now, session, heard.begun);
        for (id, status) in
            self.placement.seats_of(session).into_iter().zip(status.unwrap_or_default())
        {
            self.placement.set_status(id, status);
            self.take_stock(now, id);
        }
        self.placement.refresh(session);
        self.expire(now, session, heard.missing);
        self.check_orders(now, session);
        self.dismiss_if_done(session);
        self.schedule(now);
        self.relieve(now, session);
    }

    /// Frees the slots of attempts that their worker has not named for too long.
    fn expire(&mut self, now: Duration, session: SessionId, missing: Vec<(AttemptId, Duration)>) {
        let timing = self.config.timing;
        for (id, age) in missing {
            let current = self.is_current(session, id);
            // The request or the answer may still be under way, and the answer may be long. For an
            // attempt that is not wanted, only the request matters. An attempt that a worker did
            // not bring back was lost with the connection.
            let resumed = self.placement.is_resumed(session, id);
            if !resumed && age <= if current { timing.lease } else { timing.heartbeat } {
                continue;
            }
            let Some(held) = self.placement.release(session, id) else { continue };
            if current && resumed {
                let reason = "the task was on its way when its worker's connection was lost";
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.lose_attempt(now, id, session, error);
                self.placement.abandon(session, id, &held.model);
            } else if current {
                self.worker_failed(now, session, &held.model);
                let reason = "the worker no longer holds the task and sent no answer";
                let error = TaskError::new(TaskErrorKind::WorkerLost, reason);
                self.lose_attempt(now, id, session, error);
            } else {
                self.placement.abandon(session, id, &held.model);
                self.actions.changed();
            }
        }
    }
}
