//! Path parameters and bodies, refused in the API family's own shape where they cannot be used.

use crate::fault::Fault;
use crate::state::ServerState;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::time::Duration;

/// The decoded parameters of a path.
#[derive(Debug)]
pub(crate) struct Params(HashMap<String, String>);

impl Params {
    /// A parameter that the route is known to have.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.find(key).unwrap_or_default()
    }

    /// A parameter that only some routes of a handler have.
    pub(crate) fn find(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Path::<HashMap<String, String>>::from_request_parts(parts, state).await {
            Ok(Path(params)) => Ok(Self(params)),
            Err(rejection) => Err(Fault::bad_input(format!("bad path: {}", rejection.body_text()))
                .for_path(parts.uri.path())),
        }
    }
}

/// A whole body within the configured size and time.
#[derive(Debug)]
pub(crate) struct Whole(pub(crate) Bytes);

impl FromRequest<ServerState> for Whole {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        refuse_encoded(&request).map_err(|fault| fault.for_path(&path))?;
        let config = state.config();
        read(request.into_body(), config.body_bytes_max, config.body_timeout())
            .await
            .map(Self)
            .map_err(|fault| fault.for_path(&path))
    }
}

impl Whole {
    /// The body as JSON; an empty one reads as `{}`.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let bytes: &[u8] = if self.0.is_empty() { b"{}" } else { &self.0 };
        serde_json::from_slice(bytes)
            .map_err(|e| Fault::bad_input(format!("the request body is not valid: {e}")))
    }
}

/// Compressed bodies would be read as if they were JSON, with a puzzling error.
pub(crate) fn refuse_encoded(request: &Request) -> Result<(), Fault> {
    match request.headers().get(header::CONTENT_ENCODING) {
        Some(encoding) if encoding.as_bytes() != b"identity" => Err(Fault::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "encoding",
            format!("content encoding {encoding:?} is not offered, expected none"),
        )),
        _ => Ok(()),
    }
}

/// 413 with the limit in its message.
pub(crate) fn too_large(limit: impl std::fmt::Display) -> Fault {
    Fault::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("the request body is larger than {limit} bytes, the most that is taken"),
    )
}

/// 408 for a body that does not arrive.
pub(crate) fn too_slow(limit: Duration) -> Fault {
    Fault::new(
        StatusCode::REQUEST_TIMEOUT,
        "too_slow",
        format!("the request body did not arrive within {} ms", limit.as_millis()),
    )
}

async fn read(mut body: Body, limit: usize, time: Duration) -> Result<Bytes, Fault> {
    let whole = async {
        match Limited::new(&mut body, limit).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                discard(&mut body, limit).await;
                Err(too_large(limit))
            }
            Err(error) => Err(Fault::bad_input(format!("the request body broke off: {error}"))),
        }
    };
    tokio::time::timeout(time, whole).await.unwrap_or_else(|_| Err(too_slow(time)))
}

/// Takes in up to `limit` bytes that nobody wants: most clients read the answer only after they
/// have sent everything, and see a broken pipe instead when the connection closes before that.
async fn discard(body: &mut Body, limit: usize) {
    let mut rest = Limited::new(body, limit);
    while let Some(Ok(_)) = rest.frame().await {}
}
