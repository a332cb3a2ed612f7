//! Runs whose results are awaited later: a future for any runtime.

use crate::error::{Error, Result};
use crate::run_options::RunOptions;
use crate::session::Session;
use lgp_compute::Stop;
use lgp_memory::NamedTensor;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A run on a thread of its own. It is a future for any runtime, and [`RunTask::wait`] blocks.
/// Dropping it asks the run to end.
#[derive(Debug)]
pub struct RunTask {
    shared: Arc<Shared>,
    stop: Stop,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug)]
enum State {
    /// The run goes on; the waker is called at its end.
    Running(Option<Waker>),
    Done(Result<Vec<NamedTensor>>),
    Taken,
}

impl Default for State {
    fn default() -> Self {
        Self::Running(None)
    }
}

impl State {
    /// The result, once the run has ended. It can be taken once.
    fn take(&mut self) -> Option<Result<Vec<NamedTensor>>> {
        match self {
            Self::Running(_) => None,
            _ => Some(match std::mem::replace(self, Self::Taken) {
                Self::Done(result) => result,
                _ => Err(Error::Task { message: "it was taken before" }),
            }),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the state is locked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Starts a run on a thread of its own and returns at once.
    ///
    /// # Errors
    /// [`Error::Threads`] if the system starts no thread. Errors of [`Session::run`] about the
    /// inputs come from the task.
    ///
    /// ```
    /// use lgp_inference::{GraphBuilder, Session, SessionOptions};
    /// use lgp_memory::{DType, NamedTensor, SymShape, Tensor, TensorType};
    ///
    /// let ty = TensorType { dtype: DType::F32, shape: None };
    /// let mut g = GraphBuilder::new("relu");
    /// let x = g.input("x", ty.clone());
    /// let y = g.node("Relu", &[x], []);
    /// g.output("y", y, ty);
    /// let options = SessionOptions::with_threads(1);
    /// let session = std::sync::Arc::new(Session::new(g.finish()?, options)?);
    ///
    /// let x = Tensor::from_slice([2], &[-1f32, 2.])?;
    /// let task = session.start(vec![NamedTensor::new("x", x)])?;
    /// // … something else …
    /// let outputs = task.wait()?; // or `task.await`
    /// assert_eq!(outputs[0].tensor.as_slice::<f32>()?, [0., 2.]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(self: &Arc<Self>, inputs: Vec<NamedTensor>) -> Result<RunTask> {
        let (session, stop, shared) = (Arc::clone(self), Stop::new(), Arc::<Shared>::default());
        let task = RunTask { shared: Arc::clone(&shared), stop: stop.clone() };
        let work = move || {
            let run = || {
                let views: Vec<_> =
                    inputs.iter().map(|x| (x.name.as_str(), x.tensor.view())).collect();
                session.run_with(&views, RunOptions::new().until(&stop))
            };
            // A panic must not leave a caller waiting for ever.
            let result = catch_unwind(AssertUnwindSafe(run))
                .unwrap_or_else(|_| Err(Error::Task { message: "the run panicked" }));
            // The memory of the run is free before a caller gets the result.
            drop((inputs, session));
            let before = std::mem::replace(&mut *shared.lock(), State::Done(result));
            shared.done.notify_all();
            if let State::Running(Some(waker)) = before {
                waker.wake();
            }
        };
        std::thread::Builder::new()
            .name("session-run".to_owned())
            .spawn(work)
            .map_err(|e| Error::Threads { threads: 1, message: e.to_string() })?;
        Ok(task)
    }
}

impl RunTask {
    /// Waits for the outputs.
    ///
    /// # Errors
    /// As [`Session::run`], [`Error::Stopped`], and [`Error::Task`] where the run panicked or the
    /// task was polled to its end before.
    pub fn wait(self) -> Result<Vec<NamedTensor>> {
        let mut state = self.shared.lock();
        loop {
            if let Some(result) = state.take() {
                return result;
            }
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Asks the run to end: its result is then [`Error::Stopped`].
    pub fn cancel(&self) {
        self.stop.stop();
    }
}

impl Future for RunTask {
    type Output = Result<Vec<NamedTensor>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock();
        match state.take() {
            Some(result) => Poll::Ready(result),
            None => {
                *state = State::Running(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for RunTask {
    fn drop(&mut self) {
        self.stop.stop();
    }
}
