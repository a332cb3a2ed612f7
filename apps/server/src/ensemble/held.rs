//! The room for bodies that values of one request hold, until the last step that reads them has ended.

use crate::bodies::Room;
use crate::extract::make_more_room;
use crate::fault::Fault;
use crate::state::ServerState;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that all values of a request hold together.
pub(super) type Total = Arc<AtomicUsize>;

/// Room of the values that one step makes, given back with the last clone of its owner.
pub(super) struct Held {
    room: Room,
    /// Whose room it is.
    caller: Arc<str>,
    bytes: usize,
    total: Total,
}

impl Held {
    /// Room for so many bytes. All values of a request together are given what one request is: it
    /// never waits for what it holds itself, and leaves others the rest.
    pub(super) async fn take(
        (state, caller): (&ServerState, &Arc<str>),
        total: &Total,
        wanted: usize,
    ) -> Result<Self, Fault> {
        let most = state.config().room_of_one();
        let given = |held: usize| wanted.min(most.saturating_sub(held));
        let add = |held: usize| Some(held.saturating_add(given(held)));
        let before = match total.fetch_update(Relaxed, Relaxed, add) {
            Ok(before) | Err(before) => before,
        };
        let (room, caller) = (state.bodies().room_of(caller), Arc::clone(caller));
        let mut held = Self { room, caller, bytes: given(before), total: Arc::clone(total) };
        make_more_room(state, &mut held.room, held.bytes).await?;
        Ok(held)
    }

    /// Gives back what the values do not take that were made. Where there is no room for a moment to hold
    /// both, all of it stays.
    pub(super) fn shrink(&mut self, state: &ServerState, bytes: usize) {
        let mut room = state.bodies().room_of(&self.caller);
        if bytes < self.bytes && state.bodies().try_grow(&mut room, bytes) {
            self.room = room;
            self.total.fetch_sub(self.bytes.saturating_sub(bytes), Relaxed);
            self.bytes = bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Relaxed);
    }
}
