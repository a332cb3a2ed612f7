//! Path parameters and bodies, refused in the API family's own shape where they cannot be used.

use crate::fault::Fault;
use crate::oip::HEADER_LENGTH;
use crate::state::ServerState;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

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

/// A whole body of JSON within the configured size and time.
#[derive(Debug)]
pub(crate) struct Whole(Vec<u8>);

impl FromRequest<ServerState> for Whole {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        Self::read(request, state).await.map_err(|fault| fault.for_path(&path))
    }
}

impl Whole {
    async fn read(request: Request, state: &ServerState) -> Result<Self, Fault> {
        refuse_encoded(&request)?;
        let limit = (state.config().body_bytes_max, PLAIN_HINT);
        let (bytes, _) = read(request.into_body(), state, limit).await?;
        Ok(Self(bytes))
    }

    /// The body as JSON; an empty one reads as `{}`.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let bytes: &[u8] = if self.0.is_empty() { b"{}" } else { &self.0 };
        serde_json::from_slice(bytes)
            .map_err(|e| Fault::bad_input(format!("the request body is not valid: {e}")))
    }
}

/// A whole body of JSON that tensors may follow as binary data; with those it may be larger.
#[derive(Debug)]
pub(crate) struct WithTensors {
    pub(crate) bytes: Vec<u8>,
    /// Where JSON ends and raw tensors begin, if the request says so.
    pub(crate) json_bytes: Option<usize>,
    /// One of the places for bodies that are larger than others may be. To be kept until nothing
    /// of the body is held for the request any more.
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

impl FromRequest<ServerState> for WithTensors {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        Self::read(request, state).await.map_err(|fault| fault.for_path(&path))
    }
}

impl WithTensors {
    async fn read(request: Request, state: &ServerState) -> Result<Self, Fault> {
        refuse_encoded(&request)?;
        let config = state.config();
        let json_bytes = json_bytes(request.headers(), config.body_bytes_max)?;
        let limit = match json_bytes {
            Some(_) => (config.binary_bytes_max, BINARY_HINT),
            None => (config.body_bytes_max, JSON_HINT),
        };
        let (bytes, place) = read(request.into_body(), state, limit).await?;
        Ok(Self { bytes, json_bytes, place })
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

/// What may be done about a body that is too large.
const PLAIN_HINT: &str = "http.body_bytes_max sets that";
const JSON_HINT: &str = "http.body_bytes_max sets that; tensors as binary data, with the header \
                         Inference-Header-Content-Length, may be larger";
const BINARY_HINT: &str = "input_bytes_max sets that";

/// 413 that names the setting.
fn beyond(limit: usize, hint: &str) -> Fault {
    let mut fault = too_large(limit);
    fault.message = format!("{} ({hint})", fault.message);
    fault
}

/// 413 with the limit in its message.
pub(crate) fn too_large(limit: impl std::fmt::Display) -> Fault {
    Fault::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("the request body is larger than {limit} bytes, the most that is taken"),
    )
}

/// 408 for a body that stands still.
fn too_slow(limit: Duration) -> Fault {
    Fault::new(
        StatusCode::REQUEST_TIMEOUT,
        "too_slow",
        format!("nothing of the request body arrived for {} ms", limit.as_millis()),
    )
}

/// The value of [`HEADER_LENGTH`].
fn json_bytes(headers: &HeaderMap, limit: usize) -> Result<Option<usize>, Fault> {
    let Some(value) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let bytes = text.parse::<usize>().map_err(|_| {
        Fault::bad_input(format!(
            "header Inference-Header-Content-Length is '{text}', expected 0 to the length of the \
             body"
        ))
    })?;
    match bytes <= limit {
        true => Ok(Some(bytes)),
        false => Err(beyond(limit, JSON_HINT)),
    }
}

/// A large body may take long, but it must not stall.
pub(crate) async fn in_time<T>(stall: Duration, step: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(stall, step).await.map_err(|_| too_slow(stall))
}

/// Takes a body of at most `limit` bytes in, and a place for it where it is a large one.
async fn read(
    mut body: Body,
    state: &ServerState,
    (limit, hint): (usize, &str),
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Fault> {
    let config = state.config();
    let stall = config.body_timeout();
    let (mut bytes, mut place) = (Vec::new(), None);
    let mut limited = Limited::new(&mut body, limit);
    let refusal = loop {
        let Some(frame) = in_time(stall, limited.frame()).await? else {
            return Ok((bytes, place));
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) if error.is::<LengthLimitError>() => break beyond(limit, hint),
            Err(error) => {
                return Err(Fault::bad_input(format!("the request body broke off: {error}")));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > config.body_bytes_max && place.is_none() {
            place = state.large_body(stall).await;
            if place.is_none() {
                break no_place(stall);
            }
        }
        bytes.extend_from_slice(&data);
    };
    drop((bytes, place));
    // The answer waits no longer for what is not wanted.
    let _ = tokio::time::timeout(stall, discard(&mut body, limit)).await;
    Err(refusal)
}

/// 503 where no place for a large body came free.
fn no_place(waited: Duration) -> Fault {
    let what = "as many large request bodies as there is room for are held";
    Fault::unavailable("busy", format!("{what}; none was done within {} ms", waited.as_millis()))
}

/// Takes in up to `limit` bytes that nobody wants: most clients read the answer only after they
/// have sent everything, and see a broken pipe instead when the connection closes before that.
async fn discard(body: &mut Body, limit: usize) {
    let mut rest = Limited::new(body, limit);
    while let Some(Ok(_)) = rest.frame().await {}
}
