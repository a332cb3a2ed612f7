//! Answers that are sent while they are written: the events of a listener, and JSON that would be many times as
//! large as its tensors.

mod writers;

pub(crate) use writers::Writers;

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
use tokio::sync::mpsc;
use writers::WRITING_MAX;

/// Bytes of one piece of JSON.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are buffered before the writer waits for the reader.
const PIECES: usize = 4;
/// The frames of a body, as they arrive.
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

/// Sends JSON piece by piece, as its reader takes it. `held` is dropped after the last piece. A reader that takes
/// nothing for the stall limit loses the rest.
///
/// # Errors
/// 503 if the limit of such answers is reached and none of them ends in time.
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
            // Dropping the writer would send its buffered rest as if there had been no error.
            let (Pieces { sender, .. }, _) = pieces.into_parts();
            let _ = sender.try_send(Err(error));
        }
    });
    let mut response = Response::new(Body::new(Stream(pieces)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// The receiver of one answer's pieces.
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
