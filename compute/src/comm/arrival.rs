//! The future of a transfer: done when the bytes have arrived.

use super::jobs::Shared;
use super::schedule::Ticket;
use super::slot::Slot;
use crate::error::Result;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A transfer on its way. The future, like [`Arrival::wait`], answers when all bytes have arrived;
/// every queue of the target device may then read them.
///
/// Dropped before that, it cancels the chunks that have not been sent and waits for those on their
/// way. Nothing is written to the target afterwards, and the target's contents are undefined.
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
        self.slot.is_set()
    }
}

impl Future for Arrival {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.slot.poll(cx)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if !self.is_done() {
            self.link.cancel(self.ticket);
            // An outcome always comes: from the last chunk on its way, or from the end of the link.
            let _ = self.slot.wait();
        }
    }
}
