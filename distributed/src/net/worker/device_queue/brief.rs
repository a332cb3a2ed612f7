//! Tasks that are run by the thread that receives them: waking another one takes longer than they do.

use super::{DeviceQueue, Job, Ran, State};
use crate::executor::ExecErrorKind;
use crate::run_trace::RunTrace;
use std::sync::Arc;
use std::time::Duration;

/// The longest run that is brief. It delays the thread that serves the connection.
const BRIEF: Duration = Duration::from_micros(50);
/// After this, a run that should have been brief is stopped here, and made by a thread of its
/// device: its time may depend on its inputs.
const LONGEST: Duration = Duration::from_millis(5);
/// Brief runs of a kind in a row after which the next one is expected to be brief.
const SURE: u32 = 16;
/// Most kinds that are remembered.
const KINDS_MAX: usize = 1_024;

impl State {
    /// Remembers how long a run took.
    pub(super) fn learn(&mut self, kind: u64, took: Duration) {
        if self.brief.len() >= KINDS_MAX && !self.brief.contains_key(&kind) {
            self.brief.clear();
        }
        let runs = self.brief.entry(kind).or_default();
        *runs = if took <= BRIEF { runs.saturating_add(1) } else { 0 };
    }

    fn is_brief(&self, kind: u64) -> bool {
        self.brief.get(&kind).is_some_and(|runs| *runs >= SURE)
    }
}

impl DeviceQueue {
    /// Runs a task at once on this thread, if such runs are known to be brief and run alone, no task waits,
    /// and the device has no driver in which a run could hang. Otherwise gives the job back.
    pub(crate) fn run_at_once(self: &Arc<Self>, job: Job) -> Result<Ran, Job> {
        let kind = job.kind();
        {
            let mut state = self.lock();
            let free = state.free > 0 && state.waiting.is_empty();
            if !free || !state.is_brief(kind) || self.rule_of(&job).full() > 1 {
                return Err(job);
            }
            if !self.executor.is_at_hand(self.device, &job.model) {
                return Err(job);
            }
            state.free -= 1;
        }
        job.stage.begin();
        let began = tokio::time::Instant::now();
        let stop = job.stage.stopping().within(LONGEST);
        let (result, mut nodes) = self.execute(&job.model, &job.inputs, &stop, job.traced);
        let took = began.elapsed();
        let mut state = self.lock();
        state.free += 1;
        // A traced run takes longer.
        if !job.traced {
            state.learn(kind, took);
        }
        // Tasks that came meanwhile may have found no thread that could be started.
        self.staff(&mut state);
        let was_stopped = matches!(&result, Err(e) if e.kind == ExecErrorKind::Stopped);
        if was_stopped && job.stage.is_wanted() {
            return Err(job);
        }
        drop(state);
        RunTrace::shorten(&mut nodes);
        Ok(Ran { result, took, batch: 1, joined: false, began, nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{job, line};
    use super::*;
    use crate::batching::Batching;
    use crate::executor::{ExecError, Executor, ExecutorStatus, Stop};
    use crate::task::{ModelRef, Priority};
    use lgp_memory::NamedTensor;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Answers at once, or after a while.
    struct Quick {
        away: AtomicBool,
        slow: AtomicBool,
        /// Whether runs go on until they are asked to stop.
        endless: AtomicBool,
        /// Whether runs that begin wait at the gate.
        held: AtomicBool,
        gate: Barrier,
    }

    impl Default for Quick {
        fn default() -> Self {
            let (away, slow, endless, held) = Default::default();
            Self { away, slow, endless, held, gate: Barrier::new(2) }
        }
    }

    impl Executor for Quick {
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
            if self.endless.load(Ordering::SeqCst) {
                while !stop.is_stopped() {
                    std::thread::sleep(BRIEF);
                }
                return Err(ExecError::stopped("it was asked to"));
            }
            if self.held.swap(false, Ordering::SeqCst) {
                self.gate.wait();
                self.gate.wait();
            }
            if self.slow.load(Ordering::SeqCst) {
                std::thread::sleep(BRIEF * 2);
            }
            Ok(inputs.to_vec())
        }
        fn is_at_hand(&self, _: usize, _: &ModelRef) -> bool {
            !self.away.load(Ordering::SeqCst)
        }
        fn status(&self) -> ExecutorStatus {
            ExecutorStatus::default()
        }
    }

    #[test]
    fn what_was_brief_often_enough_runs_at_once() {
        let executor = Arc::new(Quick::default());
        let line = line(1, Duration::ZERO, &executor);
        let now = || line.run_at_once(job("a", 1, 0., Priority::Normal));
        assert!(now().is_err(), "nothing is known of it");
        let kind = job("a", 1, 0., Priority::Normal).kind();
        let learn = |took| (0..SURE).for_each(|_| line.lock().learn(kind, took));
        learn(BRIEF);
        let ran = now().ok().expect("it is brief");
        assert!((ran.batch, ran.joined) == (1, false) && ran.result.is_ok());
        // The thread is free again, and other shapes are another kind.
        assert!(line.run_at_once(job("a", 2, 0., Priority::Normal)).is_err());
        executor.away.store(true, Ordering::SeqCst);
        assert!(now().is_err(), "its device may hang");
        executor.away.store(false, Ordering::SeqCst);
        executor.slow.store(true, Ordering::SeqCst);
        assert!(now().is_ok(), "it was brief so far");
        assert!(now().is_err(), "it is not any more");
        learn(BRIEF);
        let max = std::num::NonZeroU32::new(2).expect("not zero");
        let batching = Some(Box::new(Batching { max, preferred: Vec::new(), delay_us: 0 }));
        let kind = Job { batching: batching.clone(), ..job("a", 1, 0., Priority::Normal) };
        (0..SURE).for_each(|_| line.lock().learn(kind.kind(), BRIEF));
        assert!(line.run_at_once(kind).is_err(), "others may join it");
    }

    #[test]
    fn a_run_that_does_not_end_soon_is_given_back() {
        let executor = Arc::new(Quick::default());
        let line = line(1, Duration::ZERO, &executor);
        let kind = job("a", 1, 0., Priority::Normal).kind();
        (0..SURE).for_each(|_| line.lock().learn(kind, BRIEF));
        executor.endless.store(true, Ordering::SeqCst);
        let job = line.run_at_once(job("a", 1, 0., Priority::Normal)).err().expect("not brief");
        executor.endless.store(false, Ordering::SeqCst);
        assert!(job.stage.is_wanted(), "nobody asked it to end");
        assert!(line.run_at_once(job).is_err(), "it is brief no more");
        assert_eq!(line.lock().free, 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_came_meanwhile_runs_after_it() {
        let executor = Arc::new(Quick::default());
        let line = line(1, Duration::ZERO, &executor);
        let kind = job("a", 1, 0., Priority::Normal).kind();
        (0..SURE).for_each(|_| line.lock().learn(kind, BRIEF));
        executor.held.store(true, Ordering::SeqCst);
        let at_once = Arc::clone(&line);
        let running = tokio::task::spawn_blocking(move || {
            at_once.run_at_once(job("a", 1, 0., Priority::Normal)).is_ok()
        });
        let entered = tokio::task::spawn_blocking(move || {
            executor.gate.wait();
            let ticket = line.enter(job("b", 1, 1., Priority::Normal));
            executor.gate.wait();
            ticket
        });
        let ticket = entered.await.expect("no panic");
        assert!(running.await.expect("no panic"), "it is brief");
        let ran = tokio::time::timeout(Duration::from_secs(10), ticket.ran).await;
        assert!(ran.expect("it does not wait for another").expect("it runs").result.is_ok());
    }
}
