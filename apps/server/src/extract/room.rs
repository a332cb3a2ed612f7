//! Takes room for bodies, with or without waiting.

use crate::access::{Caller, NO_KEY};
use crate::bodies::Room;
use crate::fault::Fault;
use crate::state::ServerState;
use axum::extract::Request;
use std::time::{Duration, Instant};

/// The room for the body of a request, still empty.
pub(crate) fn room_of(request: &Request, state: &ServerState) -> Room {
    let caller = request.extensions().get::<Caller>();
    state.bodies().room_of(caller.map_or(NO_KEY, Caller::id))
}

/// Grows a body's room; 503 if there is none in time.
pub(crate) async fn make_room(
    state: &ServerState,
    room: &mut Room,
    bytes: usize,
) -> Result<(), Fault> {
    let wait = state.config().body_timeout();
    let growing = tokio::time::timeout(wait, state.bodies().grow(room, bytes));
    growing.await.map_err(|_| no_room(state))
}

/// Like `make_room`, for a body whose length was only partly known. With room for that part, it fails instead of
/// waiting for more, so that several such bodies cannot block each other.
pub(crate) async fn grow_room(
    state: &ServerState,
    room: &mut Room,
    bytes: usize,
) -> Result<(), Fault> {
    if room.bytes() == 0 {
        return make_room(state, room, bytes).await;
    }
    if state.bodies().try_grow(room, bytes) {
        return Ok(());
    }
    let most = state.config().bodies_bytes_max;
    let message = format!(
        "request bodies of {most} bytes are held, the most that are (http.bodies_bytes_max sets that), and \
         there is no room for the rest of this one"
    );
    Err(Fault::unavailable("busy", message)
        .hint("a body that says its length first waits for room"))
}

/// Like `make_room`, for a request that already holds room. It retries until the time limit instead of waiting in
/// line, where it would block others while it keeps its own room.
pub(crate) async fn make_more_room(
    state: &ServerState,
    room: &mut Room,
    bytes: usize,
) -> Result<(), Fault> {
    const PAUSE: Duration = Duration::from_millis(20);
    let until = Instant::now() + state.config().body_timeout();
    let bytes = bytes.min(state.config().room_of_one());
    while !state.bodies().try_grow(room, bytes) {
        if Instant::now() >= until {
            return Err(no_room(state));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn no_room(state: &ServerState) -> Fault {
    let (most, ms) = (state.config().bodies_bytes_max, state.config().body_timeout_ms);
    let message = format!(
        "request bodies of {most} bytes are held, the most that are \
         (http.bodies_bytes_max sets that); no room came free within {ms} ms"
    );
    Fault::unavailable("busy", message)
}
