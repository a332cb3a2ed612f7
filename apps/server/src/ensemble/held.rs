//! The room for bodies that values of one request hold, until the last step that reads them has ended.

use crate::bodies::Room;
use crate::extract::make_more_room;
use crate::fault::Fault;
use crate::state::ServerState;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that all values of a request hold.
pub(super) type Total = Arc<AtomicUsize>;

/// The room of one step's values; the last clone of its owner frees it.
pub(super) struct Held {
    room: Room,
    /// The caller that the room is charged to.
    caller: Arc<str>,
    bytes: usize,
    total: Total,
}

impl Held {
    /// Takes room for `wanted` bytes. All values of a request share the limit of one request, so that it never
    /// waits for room that it holds itself, and others keep the rest.
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

    /// Frees the room that the values do not need. If there is no room to hold both for a moment, all of it is
    /// kept.
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
