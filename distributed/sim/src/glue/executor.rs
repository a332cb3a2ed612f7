//! The executor of simulated workers: models that take simulated time, fail, and hang.

use super::behaviour::{Behaviour, mark, outputs_of};
use super::ledger::Ledger;
use super::scene::PLANNED;
use super::threads::pause;
use lgp_distributed::{DeviceStatus, ExecError, Executor, ExecutorStatus, ModelRef, Stop};
use lgp_memory::NamedTensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a waiting run polls.
const LOOK: Duration = Duration::from_millis(50);

/// A process of a worker.
#[derive(Default)]
pub(super) struct Life {
    dead: AtomicBool,
}

impl Life {
    /// Ends the process with everything that runs in it.
    pub(super) fn end(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }
}

pub(super) struct SimExecutor {
    pub(super) ledger: Arc<Ledger>,
    pub(super) life: Arc<Life>,
    /// Whether the callers have left.
    pub(super) released: Arc<AtomicBool>,
}

impl SimExecutor {
    /// Waits until `done` holds; false if the process or the simulation ends first.
    fn until(&self, done: impl Fn() -> bool) -> bool {
        while !done() {
            if self.life.dead.load(Ordering::SeqCst) || !pause(LOOK) {
                return false;
            }
        }
        true
    }

    fn hang(&self, stop: &Stop) -> ExecError {
        self.until(|| stop.is_stopped());
        ExecError::stopped("it was asked to stop")
    }
}

impl Executor for SimExecutor {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }

    fn unload(&self, _: usize, _: &ModelRef) {}

    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        let number = inputs.first().and_then(|input| input.tensor.as_bytes().first_chunk());
        let number = number.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let before = self.ledger.runs(number);
        let behaviour = self.ledger.with(number, |entry| entry.behaviour);
        match behaviour.unwrap_or(Behaviour::Fails) {
            Behaviour::Takes(ms) => {
                for _ in 0..ms / 50 {
                    if stop.is_stopped() || !pause(LOOK) {
                        return Err(ExecError::stopped("it was asked to stop"));
                    }
                }
                pause(Duration::from_millis(u64::from(ms % 50)));
            }
            Behaviour::Fails if before.is_multiple_of(2) => return Err(ExecError::failed(PLANNED)),
            Behaviour::Fails => std::panic::panic_any(PLANNED),
            Behaviour::Unavailable(runs) if before < runs => {
                return Err(ExecError::unavailable(PLANNED));
            }
            Behaviour::Hangs(runs) if before < runs => return Err(self.hang(stop)),
            Behaviour::Deaf(runs) if before < runs => {
                self.until(|| false);
                return Err(ExecError::stopped("its process has ended"));
            }
            Behaviour::Held => {
                let released = || self.released.load(Ordering::SeqCst);
                if !self.until(|| released() || stop.is_stopped()) || stop.is_stopped() {
                    return Err(ExecError::stopped("it was asked to stop"));
                }
            }
            Behaviour::Unavailable(_) | Behaviour::Hangs(_) | Behaviour::Deaf(_) => {}
        }
        let mut outputs = outputs_of(inputs);
        outputs.extend(mark(before));
        Ok(outputs)
    }

    fn status(&self) -> ExecutorStatus {
        let (device, backend) = ("cpu:0".into(), "cpu".into());
        ExecutorStatus::of(DeviceStatus { device, backend, ..DeviceStatus::default() })
    }
}
