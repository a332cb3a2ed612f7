//! Events of the cluster as they happen, for whoever listens.

use crate::state::ServerState;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use lgp_sdk::Events;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

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
pub(crate) async fn listen(State(state): State<ServerState>) -> Response {
    let (sender, frames) = mpsc::channel(BEHIND);
    tokio::spawn(tell(state.coordinator().events(), state, sender));
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (kind, Body::new(Stream(frames))).into_response()
}

async fn tell(mut events: Events, state: ServerState, frames: mpsc::Sender<Bytes>) {
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
        if frames.send(text.into()).await.is_err() {
            return;
        }
    }
}

/// The frames of a stream, as they come.
struct Stream(mpsc::Receiver<Bytes>);

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
