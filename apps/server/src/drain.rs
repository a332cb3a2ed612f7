//! Takes in bodies that nobody reads.
//!
//! Where a body is still on its way when its request is answered, hyper closes the connection, and
//! a client that has read the answer and asks again on it finds the end instead of an answer.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Bodies that nobody reads are small; a connection with a larger one may close.
const BYTES_MAX: usize = 1 << 20;
/// They follow their headers at once.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Middleware that answers once the body is in.
pub(crate) async fn drained(request: Request, next: Next) -> Response {
    // Such a client sends its body only when it is asked to.
    if request.body().is_end_stream() || request.headers().contains_key(header::EXPECT) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let rest = Shared(Arc::new(Mutex::new(body)));
    let response = next.run(Request::from_parts(parts, Body::new(rest.clone()))).await;
    let mut rest = Limited::new(rest, BYTES_MAX);
    let all = async { while let Some(Ok(_)) = rest.frame().await {} };
    // What takes longer costs the connection, as it would have without the wait.
    let _ = tokio::time::timeout(TIME_MAX, all).await;
    response
}

/// A body of which somebody else reads what one leaves.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl Shared {
    fn body(&self) -> MutexGuard<'_, Body> {
        // A reader that panicked has left the body as it was before or after a frame.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.body()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body().size_hint()
    }
}
