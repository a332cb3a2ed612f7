//! Room for bodies, waited for or not.

use crate::access::{Caller, NO_KEY};
use crate::bodies::Room;
use crate::fault::Fault;
use crate::state::ServerState;
use axum::extract::Request;
use std::time::{Duration, Instant};

/// Room for the body of a request, none of which is taken yet.
pub(crate) fn room_of(request: &Request, state: &ServerState) -> Room {
    let caller = request.extensions().get::<Caller>();
    state.bodies().room_of(caller.map_or(NO_KEY, Caller::id))
}

/// Has the room of a body grow; 503 where it is not there in time.
pub(crate) async fn make_room(
    state: &ServerState,
    room: &mut Room,
    bytes: usize,
) -> Result<(), Fault> {
    let wait = state.config().body_timeout();
    let growing = tokio::time::timeout(wait, state.bodies().grow(room, bytes));
    growing.await.map_err(|_| no_room(state))
}

/// The same for a body of which only a part was known before. One that has room for that part does not wait
/// for more, with others doing the same until none of them gets on.
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

/// The same for a request that holds some room already. It does not stand in the line, where it would keep
/// others from theirs while it keeps its own: it asks again until the time is over.
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
