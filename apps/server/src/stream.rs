//! Answers that are sent while they are written: the events of a listener, and JSON that would be many
//! times as large as the tensors that it is written from.

use crate::fault::Fault;
use crate::state::ServerState;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

/// Bytes of a piece of JSON.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that a reader may be behind by before the writer waits.
const PIECES: usize = 4;
/// Answers that are written at a time: each has a thread, also while its reader is slow.
const WRITING_MAX: usize = 32;

/// The frames of a body, as they come.
pub(crate) struct Stream<E>(pub(crate) mpsc::Receiver<Result<Bytes, E>>);

impl<E> HttpBody for Stream<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| bytes.map(Frame::data)))
    }
}

/// The threads that write answers.
#[derive(Debug, Clone)]
pub(crate) struct Writers(Arc<Semaphore>);

impl Default for Writers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(WRITING_MAX)))
    }
}

/// Answers JSON piece by piece, as its reader takes it. `held` goes with the last piece. A reader that
/// takes nothing for as long as a body may stand still loses the rest.
///
/// # Errors
/// 503 where as many answers are written as may be, and none of them ends for a while.
pub(crate) async fn json<T: Serialize + Send + 'static>(
    state: &ServerState,
    value: T,
    held: impl Send + 'static,
) -> Result<Response, Fault> {
    let stall = state.config().body_timeout();
    let place = Arc::clone(&state.writers().0).acquire_owned();
    let Ok(Ok(place)) = tokio::time::timeout(stall, place).await else {
        let what = format!("{WRITING_MAX} large answers are being read, the most that are");
        return Err(Fault::unavailable("busy", what));
    };
    let (sender, pieces) = mpsc::channel(PIECES);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _held = (held, place);
        let mut pieces = BufWriter::with_capacity(PIECE_BYTES, Pieces { runtime, stall, sender });
        let written = serde_json::to_writer(&mut pieces, &value).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| pieces.flush()) {
            tracing::debug!(%error, "a large answer broke off");
            // What is left in it would be sent as if nothing had been.
            let (Pieces { sender, .. }, _) = pieces.into_parts();
            let _ = sender.try_send(Err(error));
        }
    });
    let mut response = Response::new(Body::new(Stream(pieces)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// Where the pieces of one answer go.
struct Pieces {
    runtime: Handle,
    stall: Duration,
    sender: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Pieces {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let sent = self.sender.send(Ok(Bytes::copy_from_slice(piece)));
        let sent = self.runtime.block_on(async { tokio::time::timeout(self.stall, sent).await });
        match sent {
            Ok(Ok(())) => Ok(piece.len()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
