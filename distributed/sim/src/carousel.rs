//! Scheduling without a network: the cost of the core alone.

use lgp_distributed::inside::balance::by_name;
use lgp_distributed::inside::core::{Core, Order};
use lgp_distributed::inside::membership::Join;
use lgp_distributed::inside::state::{
    Action, Completion, CoreConfig, Digest, RetentionLimits, Timing,
};
use lgp_distributed::{ExecutorStatus, ModelRef, Result, TaskSpec};
use std::sync::Arc;
use std::time::Duration;

/// A core with workers that answer at once.
pub struct Carousel {
    core: Core,
    spec: Arc<TaskSpec>,
    now: Duration,
}

/// Settings of a core that keeps few records.
pub(super) fn config(balancing: &str) -> Result<CoreConfig> {
    Ok(CoreConfig {
        epoch: 1,
        first_seq: None,
        balancing: by_name(balancing)?,
        queue_tasks_max: 100,
        queue_bytes_max: 1 << 20,
        retention: RetentionLimits {
            retained_tasks_max: 100,
            retained_bytes_max: 1 << 20,
            keys_kept_for: Duration::from_secs(600),
            results_kept_for: Duration::from_secs(600),
            results_bytes_max: 1 << 20,
            outputs_inline_max: 1 << 20,
            results_max: 1_000,
        },
        durable: false,
        thrift: 0.0,
        run_limit: None,
        timing: Timing::default(),
    })
}

/// The introduction of a worker with two slots.
pub(super) fn joining(number: usize, status: ExecutorStatus) -> Result<Join> {
    Ok(Join {
        id: format!("worker-{number}").parse()?,
        incarnation: 0,
        pid: None,
        slots: 2,
        threads: 2,
        status,
        input_bytes_max: u64::MAX,
        machine: String::new(),
        version: String::new(),
        stint: None,
    })
}

/// A task whose inputs count as zero bytes.
pub(super) fn order(spec: &Arc<TaskSpec>) -> Order {
    let (spec, digest) = (Arc::clone(spec), Digest::default());
    Order { spec, input_bytes: 0, queued_bytes: 0, digest, within: Vec::new() }
}

impl Carousel {
    /// A core with `workers` workers of two slots each.
    ///
    /// # Errors
    /// [`Error::UnknownBalancing`](lgp_distributed::Error).
    pub fn new(workers: usize, balancing: &str) -> Result<Self> {
        let mut core = Core::new(Duration::ZERO, config(balancing)?, 1);
        for worker in 0..workers {
            core.join(Duration::ZERO, joining(worker, ExecutorStatus::default())?);
        }
        let model = ModelRef { name: "m".into(), version: 1, sha256: "00".repeat(32) };
        let spec = Arc::new(TaskSpec::new(model, Vec::new()));
        Ok(Self { core, spec, now: Duration::ZERO })
    }

    /// Takes one task from its submission to its terminal state.
    ///
    /// # Errors
    /// As [`Coordinator::submit`](lgp_distributed::Coordinator::submit); never with a worker.
    pub fn turn(&mut self) -> Result<()> {
        self.now += Duration::from_nanos(1);
        self.core.submit(self.now, order(&self.spec))?;
        while let Some(action) = self.core.next_action(self.now) {
            if let Action::Dispatch { session, id, .. } = action {
                let done = Completion::Done {
                    outputs: Vec::new(),
                    model: Duration::ZERO,
                    batch: 1,
                    joined: false,
                };
                self.core.complete(self.now, session, id, done);
            }
        }
        Ok(())
    }

    /// Tasks that the core still knows, a bounded number.
    #[must_use]
    pub fn known(&self) -> usize {
        self.core.known()
    }
}
