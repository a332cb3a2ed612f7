//! Streams the cluster's events to listeners.

use super::references::may_see;
use crate::access::Caller;
use crate::fault::{ClusterError, Fault};
use crate::feed::{EventId, Listener, Sees};
use crate::places::Place;
use crate::query;
use crate::state::ServerState;
use crate::stream::Stream;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use lgp_sdk::cluster::ModelRef;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;

/// The header in which a listener that reconnects sends the id of its last event.
pub(crate) const LAST_EVENT_ID: &str = "last-event-id";

/// Pause between keep-alives on a quiet stream, which reveal a listener that is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Pieces of the stream that are buffered ahead of the listener.
const AHEAD: usize = 4;
/// Milliseconds after which a listener reconnects.
const RETRY_MS: u64 = 1_000;

/// `GET events?after=ID`: server-sent events, each an id and a JSON object with `at_ms` and `event`, until the
/// listener or the server ends. With the header `Last-Event-ID`, or with `after`, the events since that one come
/// first. The event `gap` reports events that are no longer kept.
///
/// ```text
/// curl -N localhost:8000/api/v1/cluster/events
/// ```
pub(crate) async fn listen(
    State(state): State<ServerState>,
    caller: Caller,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ClusterError> {
    let after = after(&query.unwrap_or_default(), &headers)?;
    let most = state.config().listeners_max;
    let place = state.listeners().take(caller.id()).ok_or_else(|| {
        let what =
            format!("{most} may listen to events, the last eighth of them callers that have few");
        Fault::unavailable("busy", what)
    })?;
    let (sender, frames) = mpsc::channel(AHEAD);
    let listener = state.feed().listen(after);
    tokio::spawn(tell((listener, caller), state, sender, place));
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::new(Stream(frames))).into_response())
}

/// The last event that the listener had, if it sends one. The header overrides the query, because a browser that
/// reconnects sends its first query again.
fn after(query: &str, headers: &HeaderMap) -> Result<Option<EventId>, Fault> {
    let mut after = None;
    for part in query::parts(query) {
        let (key, value) = part?;
        match key {
            "after" => after = Some(id("after", &value)?),
            other => return Err(query::unknown(other, "after")),
        }
    }
    match headers.get(LAST_EVENT_ID) {
        Some(value) if !value.is_empty() => {
            Ok(Some(id("header Last-Event-ID", &String::from_utf8_lossy(value.as_bytes()))?))
        }
        _ => Ok(after),
    }
}

fn id(place: &str, text: &str) -> Result<EventId, Fault> {
    text.parse().map_err(|()| {
        let given = query::shown(text);
        Fault::bad_input(format!("{place} is '{given}', expected the id of an event, EPOCH-NUMBER"))
            .hint("leave it out to hear what happens from now on")
    })
}

async fn tell(
    // Holds the caller's place in its key's limits for as long as it listens.
    (mut listener, caller): (Listener, Caller),
    state: ServerState,
    frames: mpsc::Sender<Result<Bytes, Infallible>>,
    _place: Place,
) {
    // A listener that disconnects before any event also gets an id to continue from.
    let mut text: Bytes = format!("retry: {RETRY_MS}\nid: {}\n\n", listener.after()).into();
    let sees = |model: &ModelRef| may_see(&state, &caller, (&model.name, model.version));
    let sees: Sees<'_> = if caller.is_limited() { Some(&sees) } else { None };
    loop {
        tokio::select! {
            sent = frames.send(Ok(text)) => if sent.is_err() { return },
            () = state.closing() => return,
            () = state.access().gone(Some(&caller)) => return,
        }
        text = tokio::select! {
            events = listener.next(sees) => match events {
                Some(events) => events,
                None => return,
            },
            () = tokio::time::sleep(SIGN_OF_LIFE) => ":\n\n".into(),
            () = state.closing() => return,
            () = state.access().gone(Some(&caller)) => return,
            () = frames.closed() => return,
        };
    }
}
