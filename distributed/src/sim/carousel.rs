//! Scheduling without a network: what the core itself costs.

use crate::proto::balance::by_name;
use crate::proto::core::Core;
use crate::proto::membership::Join;
use crate::proto::state::{Action, Completion, CoreConfig, Digest, Timing};
use crate::task::{ModelRef, TaskSpec};
use crate::{Result, WorkerId};
use std::sync::Arc;
use std::time::Duration;

/// A core with workers that answer at once.
pub struct Carousel {
    core: Core,
    spec: Arc<TaskSpec>,
    now: Duration,
}

impl Carousel {
    /// A core with so many workers of two slots each.
    ///
    /// # Errors
    /// [`Error::UnknownBalancing`](crate::Error).
    pub fn new(workers: usize, balancing: &str) -> Result<Self> {
        let config = CoreConfig {
            epoch: 1,
            balancing: by_name(balancing)?,
            queue_tasks_max: 100,
            queue_bytes_max: 1 << 20,
            retained_tasks_max: 100,
            retained_bytes_max: 1 << 20,
            timing: Timing::default(),
        };
        let mut core = Core::new(config, 1);
        for worker in 0..workers {
            let id: WorkerId = format!("worker-{worker}").parse()?;
            let status = crate::ExecutorStatus::default();
            core.join(Duration::ZERO, Join { id, pid: None, slots: 2, status });
        }
        let model = ModelRef { name: "m".into(), version: 1, sha256: "00".repeat(32) };
        let spec = Arc::new(TaskSpec::new(model, Vec::new()));
        Ok(Self { core, spec, now: Duration::ZERO })
    }

    /// Takes one task from its submission to its terminal state.
    ///
    /// # Errors
    /// As [`Coordinator::submit`](crate::Coordinator::submit); never with a worker.
    pub fn turn(&mut self) -> Result<()> {
        self.now += Duration::from_nanos(1);
        self.core.submit(self.now, Arc::clone(&self.spec), 0, Digest::default())?;
        while let Some(action) = self.core.next_action() {
            if let Action::Dispatch { session, id, .. } = action {
                let done = Completion::Done { outputs: Vec::new(), model: Duration::ZERO };
                self.core.complete(self.now, session, id, done);
            }
        }
        Ok(())
    }
}
