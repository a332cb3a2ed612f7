//! The cost of choosing one of many different workers.

use crate::carousel::{config, joining, order};
use lgp_distributed::inside::balance::by_name;
use lgp_distributed::inside::core::{Core, Errand};
use lgp_distributed::inside::message::AttemptId;
use lgp_distributed::inside::state::{Action, Completion, CoreConfig, SessionId};
use lgp_distributed::{DeviceStatus, ExecutorStatus, ModelRef, Result, TaskSpec};
use std::sync::Arc;
use std::time::Duration;

/// A core whose workers differ in load, memory, speed and models. Each has two slots and was
/// measured once; a third of all slots are taken.
pub struct Selection {
    core: Core,
    model: Arc<ModelRef>,
    now: Duration,
}

impl Selection {
    /// A core with `workers` workers.
    ///
    /// # Errors
    /// [`Error::UnknownBalancing`](lgp_distributed::Error).
    pub fn new(workers: usize, balancing: &str) -> Result<Self> {
        // Every worker gets one task before any gets two.
        let settings = CoreConfig { queue_tasks_max: workers, ..config("round_robin")? };
        let now = Duration::from_millis(1);
        let mut core = Core::new(Duration::ZERO, settings, 1);
        let model = ModelRef { name: "m".into(), version: 1, sha256: "00".repeat(32) };
        for worker in 0..workers {
            core.join(now, joining(worker, ExecutorStatus::of(status(worker, &model)))?);
        }
        let spec = Arc::new(TaskSpec::new(model.clone(), Vec::new()));
        for (at, (session, id)) in (0..).zip(submit(&mut core, now, &spec, workers)?) {
            let model = Duration::from_micros(15_000 + 10 * (at % 97));
            core.complete(
                now,
                session,
                id,
                Completion::Done { outputs: Vec::new(), model, batch: 1, joined: false },
            );
        }
        submit(&mut core, now, &spec, workers * 2 / 3)?;
        core.set_balancing(by_name(balancing)?);
        Ok(Self { core, model: Arc::new(model), now })
    }

    /// Chooses a worker for a task without dispatching it; false if there is none.
    pub fn choose(&mut self) -> bool {
        self.core.choose(self.now, &self.model, Errand::default()).is_some()
    }

    /// Advances the time, with a heartbeat of every worker: measurements fade.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
        for session in 1..self.core.next_session() {
            self.core.heard(session, self.now);
        }
    }
}

fn status(worker: usize, model: &ModelRef) -> DeviceStatus {
    let quarters = |n: usize| u64::try_from(n).unwrap_or_default() << 28;
    DeviceStatus {
        vram_total_bytes: Some(quarters(32)),
        vram_used_bytes: Some(quarters(worker % 7)),
        utilisation: Some((worker * 31 % 100) as f32 / 100.0),
        power_w: Some(50.0),
        models: if worker.is_multiple_of(3) { Vec::new() } else { vec![model.clone()] },
        ..DeviceStatus::default()
    }
}

/// Submits tasks; returns the worker of each.
fn submit(
    core: &mut Core,
    now: Duration,
    spec: &Arc<TaskSpec>,
    count: usize,
) -> Result<Vec<(SessionId, AttemptId)>> {
    let mut sent = Vec::with_capacity(count);
    for _ in 0..count {
        core.submit(now, order(spec))?;
        while let Some(action) = core.next_action(now) {
            if let Action::Dispatch { session, id, .. } = action {
                sent.push((session, id));
            }
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_finds_a_worker_now_and_later() {
        for balancing in lgp_distributed::balancing_strategies() {
            let mut selection = Selection::new(50, balancing).expect("a known strategy");
            assert!(selection.choose(), "{balancing}");
            selection.wait(Duration::from_secs(100));
            assert!(selection.choose(), "{balancing}");
        }
        assert!(!Selection::new(0, "adaptive").expect("a known strategy").choose());
    }
}
