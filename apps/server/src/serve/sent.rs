//! Tracks a request and how its answer is taken. A client that takes nothing for long must not hold its answer
//! forever.

use super::activity::UnderWay;
use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Bytes of an answer that the connection gets at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Marks an endless answer, whose connection counts as idle while nothing of it is available.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endless;

/// The body of an answer, in pieces that report when they were taken.
pub(super) struct Sent<B> {
    body: B,
    /// The part of the body's last frame that the connection has not got yet.
    rest: Bytes,
    request: Arc<UnderWay>,
}

impl<B> Sent<B> {
    pub(super) fn new(body: B, request: Arc<UnderWay>, is_endless: bool) -> Self {
        request.gets_on(|answer| {
            answer.is_there = true;
            answer.keeps_busy = !is_endless;
        });
        Self { body, rest: Bytes::new(), request }
    }

    /// The next piece of the available bytes.
    fn piece(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        self.request.gets_on(|answer| {
            answer.pieces += 1;
            answer.is_there = true;
        });
        Frame::data(Bytes::from_owner(Piece { bytes, request: Arc::clone(&self.request) }))
    }
}

impl<B> Drop for Sent<B> {
    fn drop(&mut self) {
        self.request.gets_on(|answer| {
            answer.is_there = false;
            answer.is_whole = true;
        });
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Sent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let mut polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending() {
            let request = Arc::clone(&self.request);
            let waker = Waker::from(Arc::new(More { request, waker: cx.waker().clone() }));
            polled = Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(&waker));
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    Poll::Ready(Some(Ok(self.piece())))
                }
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
            },
            // Nothing more is available, for now or at all.
            none => {
                self.request.gets_on(|answer| answer.is_there = false);
                none
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

/// Bytes that the connection holds until it has written them.
struct Piece {
    bytes: Bytes,
    request: Arc<UnderWay>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.request.gets_on(|answer| answer.pieces = answer.pieces.saturating_sub(1));
    }
}

/// Notes that more of an answer is available, and wakes the connection to poll it.
struct More {
    request: Arc<UnderWay>,
    waker: Waker,
}

impl Wake for More {
    fn wake(self: Arc<Self>) {
        self.request.has_more();
        self.waker.wake_by_ref();
    }
}
