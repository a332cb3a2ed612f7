//! Reads the rest of request bodies that handlers did not read.
//!
//! If the response comes before the whole body, hyper closes the connection, and a client that
//! reuses it after the response gets an error.

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

/// Unread bodies are usually small; a connection with a larger one may close.
const BYTES_MAX: usize = 1 << 20;
/// The time limit; small bodies follow their headers at once.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Limits after a refused body of any size: most clients read the response only after sending
/// everything, and see a broken pipe if the connection closes before that.
const REFUSED_BYTES_MAX: usize = 256 << 20;
const REFUSED_TIME_MAX: Duration = Duration::from_secs(30);

/// Middleware that answers after the whole body is read; at once if it was refused.
pub(crate) async fn drained(request: Request, next: Next) -> Response {
    // With `Expect`, the client sends its body only on request.
    if request.body().is_end_stream() || request.headers().contains_key(header::EXPECT) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let rest = Shared(Arc::new(Mutex::new(body)));
    let response = next.run(Request::from_parts(parts, Body::new(rest.clone()))).await;
    let refused = [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::SERVICE_UNAVAILABLE];
    if refused.contains(&response.status()) {
        // The response is sent meanwhile.
        tokio::spawn(discard(rest, REFUSED_BYTES_MAX, REFUSED_TIME_MAX));
    } else {
        // A slower body loses the connection, as without the wait.
        discard(rest, BYTES_MAX, TIME_MAX).await;
    }
    response
}

/// Discards a body, up to a size and a time.
async fn discard(body: Shared, bytes_max: usize, time_max: Duration) {
    let mut rest = Limited::new(body, bytes_max);
    let all = async { while let Some(Ok(_)) = rest.frame().await {} };
    let _ = tokio::time::timeout(time_max, all).await;
}

/// A body shared by the handler and, after it, the drain.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl Shared {
    fn body(&self) -> MutexGuard<'_, Body> {
        // A panic leaves the body between two frames, so it stays usable.
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
