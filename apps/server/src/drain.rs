//! Takes in bodies that nobody reads.
//!
//! Where a body is still on its way when its request is answered, hyper closes the connection, and
//! a client that has read the answer and asks again on it finds the end instead of an answer.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{StatusCode, header};
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
/// Of a body that was refused, whatever its size: most clients read the answer only after they have
/// sent everything, and see a broken pipe instead when the connection closes before that.
const REFUSED_BYTES_MAX: usize = 256 << 20;
const REFUSED_TIME_MAX: Duration = Duration::from_secs(30);

/// Middleware that answers once the body is in; at once where it was refused.
pub(crate) async fn drained(request: Request, next: Next) -> Response {
    // Such a client sends its body only when it is asked to.
    if request.body().is_end_stream() || request.headers().contains_key(header::EXPECT) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let rest = Shared(Arc::new(Mutex::new(body)));
    let response = next.run(Request::from_parts(parts, Body::new(rest.clone()))).await;
    let refused = [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::SERVICE_UNAVAILABLE];
    if refused.contains(&response.status()) {
        // The answer is on its way meanwhile.
        tokio::spawn(discard(rest, REFUSED_BYTES_MAX, REFUSED_TIME_MAX));
    } else {
        // What takes longer costs the connection, as it would have without the wait.
        discard(rest, BYTES_MAX, TIME_MAX).await;
    }
    response
}

/// Takes in what nobody wants, up to some bytes and for some time.
async fn discard(body: Shared, bytes_max: usize, time_max: Duration) {
    let mut rest = Limited::new(body, bytes_max);
    let all = async { while let Some(Ok(_)) = rest.frame().await {} };
    let _ = tokio::time::timeout(time_max, all).await;
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
