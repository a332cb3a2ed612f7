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

/// A whole body within the configured size and time.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Vec<u8>,
    /// Where JSON ends and raw tensors begin, if the request says so.
    pub(crate) json_bytes: Option<usize>,
    /// One of the places for bodies that are larger than others may be.
    _place: Option<OwnedSemaphorePermit>,
}

impl FromRequest<ServerState> for Whole {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        refuse_encoded(&request).map_err(|fault| fault.for_path(&path))?;
        read(request, state).await.map_err(|fault| fault.for_path(&path))
    }
}

impl Whole {
    /// The body as JSON; an empty one reads as `{}`.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let bytes: &[u8] = if self.bytes.is_empty() { b"{}" } else { &self.bytes };
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

/// What may be done about a body that is too large.
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

/// 408 for a body that does not arrive.
pub(crate) fn too_slow(limit: Duration) -> Fault {
    Fault::new(
        StatusCode::REQUEST_TIMEOUT,
        "too_slow",
        format!("the request body did not arrive within {} ms", limit.as_millis()),
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

async fn read(request: Request, state: &ServerState) -> Result<Whole, Fault> {
    let config = state.config();
    let json_bytes = json_bytes(request.headers(), config.body_bytes_max)?;
    let (limit, hint) = match json_bytes {
        Some(_) => (config.binary_bytes_max, BINARY_HINT),
        None => (config.body_bytes_max, JSON_HINT),
    };
    let time = config.body_timeout();
    let mut body = request.into_body();
    let whole = async {
        let (mut bytes, mut place) = (Vec::new(), None);
        let mut limited = Limited::new(&mut body, limit);
        while let Some(frame) = limited.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) if error.is::<LengthLimitError>() => {
                    drop(bytes);
                    discard(&mut body, limit).await;
                    return Err(beyond(limit, hint));
                }
                Err(error) => {
                    let what = format!("the request body broke off: {error}");
                    return Err(Fault::bad_input(what));
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > config.body_bytes_max && place.is_none() {
                place = state.large_body().await;
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Whole { bytes, json_bytes, _place: place })
    };
    tokio::time::timeout(time, whole).await.unwrap_or_else(|_| Err(too_slow(time)))
}

/// Takes in up to `limit` bytes that nobody wants: most clients read the answer only after they
/// have sent everything, and see a broken pipe instead when the connection closes before that.
async fn discard(body: &mut Body, limit: usize) {
    let mut rest = Limited::new(body, limit);
    while let Some(Ok(_)) = rest.frame().await {}
}
