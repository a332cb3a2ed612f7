//! The future of a transfer: done when the bytes have arrived.

use super::link::Shared;
use super::schedule::Ticket;
use crate::error::Result;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Where a transfer's outcome is left for whoever waits.
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
        // An outcome is there or not, so there is no broken state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the outcome; the first one counts.
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

    fn wait(&self) -> Result<()> {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            state = self.set.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A transfer on its way. As a future, and by [`Arrival::wait`], it answers when all bytes are
/// where they were sent, for every queue of that device to read.
///
/// Dropped before that, it takes back what has not been sent and waits for the chunk that is on
/// its way: nothing is written to the target afterwards, and what the target holds is undefined.
#[derive(Debug)]
#[must_use = "dropped, it takes the transfer back"]
pub struct Arrival {
    link: Arc<Shared>,
    ticket: Ticket,
    slot: Arc<Slot>,
}

impl Arrival {
    pub(super) fn new(link: Arc<Shared>, ticket: Ticket, slot: Arc<Slot>) -> Self {
        Self { link, ticket, slot }
    }

    /// Waits until the bytes have arrived.
    ///
    /// # Errors
    /// [`crate::Error::Transfer`] when a device failed; [`crate::Error::Stopped`] when the
    /// [`super::Transfers`] was dropped before.
    pub fn wait(self) -> Result<()> {
        self.slot.wait()
    }

    /// Whether the outcome is known; never waits.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.slot.lock().outcome.is_some()
    }
}

impl Future for Arrival {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.slot.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if !self.is_done() {
            self.link.cancel(self.ticket);
            // Somebody's outcome is always set: the chunk's, or that of the end of the link.
            let _ = self.slot.wait();
        }
    }
}
