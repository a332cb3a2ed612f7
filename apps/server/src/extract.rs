//! Extracts path parameters and bodies. Errors have the form of each API family.

mod objects;
mod pace;
mod room;

pub(crate) use pace::Pace;
pub(crate) use room::{grow_room, make_more_room, make_room, room_of};

use crate::bodies::Room;
use crate::fault::Fault;
use crate::state::ServerState;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use lgp_common::plainly;
use objects::Objects;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::time::Instant;

/// The header with the length of the JSON; raw tensors follow the JSON.
pub(crate) const HEADER_LENGTH: &str = "inference-header-content-length";

/// The decoded parameters of a path.
#[derive(Debug)]
pub(crate) struct Params(HashMap<String, String>);

impl Params {
    /// A parameter that the route certainly has.
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

/// A whole JSON body within the configured size and time.
#[derive(Debug)]
pub(crate) struct Whole {
    bytes: Vec<u8>,
    _room: Room,
}

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
        let room = room_of(&request, state);
        let (bytes, room) = take(request.into_body(), (state, room)).await?;
        Ok(Self { bytes, _room: room })
    }

    /// The body as JSON; an empty one reads as `{}`.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let bytes: &[u8] = if self.bytes.is_empty() { b"{}" } else { &self.bytes };
        parse(bytes)
    }
}

/// Parses the JSON of a body.
///
/// # Errors
/// 400 that names the invalid place in the JSON.
pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Fault> {
    let mut text = serde_json::Deserializer::from_slice(json);
    let read = T::deserialize(Objects(&mut text)).and_then(|value| text.end().map(|()| value));
    read.map_err(|_| {
        // Parses again with a slower deserializer that records where the error is.
        let mut text = serde_json::Deserializer::from_slice(json);
        let again: Result<T, _> = serde_path_to_error::deserialize(Objects(&mut text));
        let why = match again {
            Err(error) => match error.path().to_string().as_str() {
                // No path, or one without a name yet.
                "." | "?" => plainly(&error.inner().to_string()),
                path => format!("{path}: {}", plainly(&error.inner().to_string())),
            },
            // Text follows the valid JSON.
            Ok(_) => "expected one JSON value".to_owned(),
        };
        Fault::bad_input(format!("the request body is not valid: {why}"))
    })
}

/// A whole JSON body, optionally followed by binary tensors, with which it may be larger.
#[derive(Debug)]
pub(crate) struct WithTensors {
    pub(crate) bytes: Vec<u8>,
    /// The length of the JSON before the raw tensors, if the request states it.
    pub(crate) json_bytes: Option<usize>,
    /// The body's room, to be kept until the request holds nothing of the body any more.
    pub(crate) room: Room,
}

impl FromRequest<ServerState> for WithTensors {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        Self::read(request, state).await.map_err(|fault| fault.for_path(&path))
    }
}

/// Reads a whole body of any kind, as large as bodies with tensors may be.
pub(crate) async fn whole(
    body: Body,
    (state, room): (&ServerState, Room),
) -> Result<(Vec<u8>, Room), Fault> {
    read(body, (state, room), (state.config().binary_bytes_max, BINARY_HINT)).await
}

impl WithTensors {
    async fn read(request: Request, state: &ServerState) -> Result<Self, Fault> {
        refuse_encoded(&request)?;
        let config = state.config();
        let json_bytes = json_bytes(request.headers())?;
        let limit = match json_bytes {
            Some(_) => (config.binary_bytes_max, BINARY_HINT),
            None => (config.body_bytes_max, JSON_HINT),
        };
        let check = |body_bytes: u64| match json_bytes {
            Some(json) if u64::try_from(json).is_ok_and(|json| json > body_bytes) => {
                Err(beyond_body(json, body_bytes))
            }
            Some(json) if json > config.body_bytes_max => {
                Err(beyond(config.body_bytes_max, JSON_HINT))
            }
            _ => Ok(()),
        };
        // A stated length is checked before the body is read.
        let room = room_of(&request, state);
        let body = request.into_body();
        body.size_hint().exact().map_or(Ok(()), &check)?;
        let (bytes, room) = read(body, (state, room), limit).await?;
        check(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        Ok(Self { bytes, json_bytes, room })
    }
}

/// 400 for a stated JSON length beyond the body's end.
pub(crate) fn beyond_body(json_bytes: usize, body_bytes: impl std::fmt::Display) -> Fault {
    Fault::bad_input(format!(
        "header Inference-Header-Content-Length is '{json_bytes}', expected 0 to {body_bytes}, the \
         length of the body"
    ))
}

/// Whether a body is a multipart form. Media types are case-insensitive.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    let is_form = |kind: &[u8]| {
        let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"multipart/form-data")
    };
    kind.is_some_and(is_form)
}

/// Refuses compressed bodies, which would otherwise fail to parse as JSON with a confusing error.
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

/// What a client can do about a body that is too large.
const PLAIN_HINT: &str = "http.body_bytes_max sets that";
const JSON_HINT: &str = "http.body_bytes_max sets that; tensors as binary data, with the header \
                         Inference-Header-Content-Length, may be larger";
const BINARY_HINT: &str = "input_bytes_max and http.bodies_bytes_max set that";

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

/// The value of [`HEADER_LENGTH`].
fn json_bytes(headers: &HeaderMap) -> Result<Option<usize>, Fault> {
    let Some(value) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    text.parse().map(Some).map_err(|_| {
        Fault::bad_input(format!(
            "header Inference-Header-Content-Length is '{text}', expected 0 to the length of the \
             body"
        ))
    })
}

/// Reads a body no larger than the setting allows.
pub(crate) async fn take(
    body: Body,
    (state, room): (&ServerState, Room),
) -> Result<(Vec<u8>, Room), Fault> {
    read(body, (state, room), (state.config().body_bytes_max, PLAIN_HINT)).await
}

/// Reads a body of at most `limit` bytes, each byte once there is room for it.
async fn read(
    body: Body,
    (state, mut room): (&ServerState, Room),
    (limit, hint): (usize, &str),
) -> Result<(Vec<u8>, Room), Fault> {
    let config = state.config();
    let stated = body.size_hint();
    let least = usize::try_from(stated.lower()).unwrap_or(usize::MAX);
    if least > limit {
        return Err(beyond(limit, hint));
    }
    // A body of stated length waits for room before any of it is read.
    make_room(state, &mut room, least).await?;
    let mut bytes = Vec::new();
    // If the allocation fails now, it may succeed later, when the body is complete.
    let _ = bytes.try_reserve_exact(least);
    let mut pace = Pace::new(config);
    let mut limited = Limited::new(body, limit);
    while let Some(frame) = pace.next(bytes.len(), limited.frame()).await? {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) if error.is::<LengthLimitError>() => return Err(beyond(limit, hint)),
            Err(error) => {
                return Err(Fault::bad_input(format!("the request body broke off: {error}")));
            }
        };
        let Ok(data) = frame.into_data() else { continue };
        let all = bytes.len() + data.len();
        if all > least {
            let waits = Instant::now();
            grow_room(state, &mut room, all).await?;
            pace.waited(waits.elapsed());
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, room))
}
