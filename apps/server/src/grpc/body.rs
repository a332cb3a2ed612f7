//! Room for the messages of calls: they share the budget of all request bodies, and have to keep
//! coming as those do.

use crate::bodies::Room;
use crate::extract::{Pace, make_room};
use crate::fault::Fault;
use crate::state::ServerState;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tonic::Status;

/// What the messages of one call hold of the room for bodies.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<Room>>);

impl Held {
    /// The room of the messages that came since this was asked last, to be kept until nothing of them
    /// is held any more.
    pub(super) fn take(&self) -> Room {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, room: Room) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = room;
    }
}

/// Calls whose messages have no end.
const STREAM: &str = "/ModelStreamInfer";

/// Middleware that lets the bytes of a call in once there is room for them, and gives it back when
/// the call has ended.
pub(super) async fn bounded(
    State(state): State<ServerState>,
    request: Request,
    next: Next,
) -> Response {
    let is_stream = request.uri().path().ends_with(STREAM);
    let held = Held::default();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(held.clone());
    let incoming =
        Incoming { body, pace: Pace::new(state.config()), state, held, got: 0, is_stream };
    let frames = stream::unfold(Some(incoming), |incoming| async {
        let mut incoming = incoming?;
        match incoming.next().await? {
            Ok(frame) => Some((Ok(frame), Some(incoming))),
            Err(fault) => Some((Err(Status::from(fault)), None)),
        }
    });
    next.run(Request::from_parts(parts, Body::new(StreamBody::new(Box::pin(frames))))).await
}

struct Incoming {
    body: Body,
    pace: Pace,
    state: ServerState,
    held: Held,
    got: usize,
    is_stream: bool,
}

impl Incoming {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, Fault>> {
        let frame = match self.is_stream {
            // A client may keep a stream open without a word; its connection is watched over by pings.
            true => self.body.frame().await?,
            false => match self.pace.next(self.got, self.body.frame()).await {
                Ok(frame) => frame?,
                Err(fault) => return Some(Err(fault)),
            },
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let message = format!("the call broke off: {error}");
                return Some(Err(Fault::bad_input(message)));
            }
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        self.got = self.got.saturating_add(bytes);
        let mut room = self.held.take();
        let wanted = room.bytes().saturating_add(bytes);
        let waits = Instant::now();
        let made = make_room(&self.state, &mut room, wanted).await;
        self.pace.waited(waits.elapsed());
        self.held.put(room);
        Some(made.map(|()| frame))
    }
}
