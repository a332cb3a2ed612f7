//! The outcome of a transfer, for the caller that waits for it.

use crate::error::Result;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The outcome of one transfer, once there is one, and the waker of a task that waits for it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    set: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<()>>,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        // An outcome is set or not, so there is no broken state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the outcome; the first one counts.
    pub(super) fn set(&self, outcome: Result<()>) {
        let mut state = self.lock();
        state.outcome.get_or_insert(outcome);
        let waker = state.waker.take();
        drop(state);
        self.set.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn wait(&self) -> Result<()> {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            state = self.set.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the outcome is there; never waits.
    pub(super) fn is_set(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// The outcome, or `Pending`: [`Slot::set`] then wakes the task of `cx`.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Result<()>> {
        let mut state = self.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
