//! Events of the cluster as they happen, for whoever listens.

use crate::fault::{ClusterError, Fault};
use crate::state::ServerState;
use crate::stream::Stream;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use lgp_sdk::Events;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Between two signs of life on a quiet stream, so that a listener that is gone is noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Events that a listener may be behind by before it misses some.
const BEHIND: usize = 64;

/// `GET events`: server-sent events, each a JSON object with `at_ms` and `event`, until the
/// listener or the server ends.
///
/// ```text
/// curl -N localhost:8000/api/v1/cluster/events
/// ```
pub(crate) async fn listen(State(state): State<ServerState>) -> Result<Response, ClusterError> {
    let most = state.config().listeners_max;
    let place = Arc::clone(state.listeners()).try_acquire_owned().map_err(|_| {
        let what = format!("{most} listen to events, the most that may (http.listeners_max)");
        Fault::unavailable("busy", what)
    })?;
    let (sender, frames) = mpsc::channel(BEHIND);
    tokio::spawn(tell(state.coordinator().events(), state, sender, place));
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::new(Stream(frames))).into_response())
}

async fn tell(
    mut events: Events,
    state: ServerState,
    frames: mpsc::Sender<Result<Bytes, Infallible>>,
    _place: OwnedSemaphorePermit,
) {
    loop {
        let text = tokio::select! {
            event = events.next() => {
                let Some((at_ms, event)) = event else { return };
                let mut value = serde_json::to_value(&event).unwrap_or_default();
                if let Value::Object(object) = &mut value {
                    object.insert("at_ms".to_owned(), json!(at_ms));
                }
                format!("data: {value}\n\n")
            }
            () = tokio::time::sleep(SIGN_OF_LIFE) => ":\n\n".to_owned(),
            () = state.closing() => return,
            () = frames.closed() => return,
        };
        if frames.send(Ok(text.into())).await.is_err() {
            return;
        }
    }
}
