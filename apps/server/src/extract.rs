//! Path parameters and bodies, refused in the API family's own shape where they cannot be used.

mod objects;

use crate::bodies::Room;
use crate::config::ServerConfig;
use crate::fault::Fault;
use crate::oip::HEADER_LENGTH;
use crate::state::ServerState;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use objects::Objects;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::time::{Duration, Instant};

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
        let (bytes, room) = take(request.into_body(), state).await?;
        Ok(Self { bytes, _room: room })
    }

    /// The body as JSON; an empty one reads as `{}`.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let bytes: &[u8] = if self.bytes.is_empty() { b"{}" } else { &self.bytes };
        parse(bytes)
    }
}

/// JSON of a body.
///
/// # Errors
/// 400 that names the place in it that cannot be used.
pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Fault> {
    let mut text = serde_json::Deserializer::from_slice(json);
    let read = T::deserialize(Objects(&mut text)).and_then(|value| text.end().map(|()| value));
    read.map_err(|_| {
        // Read once more, slower: where it is wrong is not known else.
        let mut text = serde_json::Deserializer::from_slice(json);
        let again: Result<T, _> = serde_path_to_error::deserialize(Objects(&mut text));
        let why = match again {
            Err(error) => match error.path().to_string().as_str() {
                // Nowhere, or where there is no name yet.
                "." | "?" => error.inner().to_string(),
                path => format!("{path}: {}", error.inner()),
            },
            // Something follows what is right.
            Ok(_) => "expected one JSON value".to_owned(),
        };
        Fault::bad_input(format!("the request body is not valid: {why}"))
    })
}

/// A whole body of JSON that tensors may follow as binary data; with those it may be larger.
#[derive(Debug)]
pub(crate) struct WithTensors {
    pub(crate) bytes: Vec<u8>,
    /// Where JSON ends and raw tensors begin, if the request says so.
    pub(crate) json_bytes: Option<usize>,
    /// Its share of the room for bodies. To be kept until nothing of the body is held for the
    /// request any more.
    pub(crate) room: Room,
}

impl FromRequest<ServerState> for WithTensors {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Response> {
        let path = request.uri().path().to_owned();
        Self::read(request, state).await.map_err(|fault| fault.for_path(&path))
    }
}

/// A whole body of any kind, which may be as large as tensors may.
pub(crate) async fn whole(body: Body, state: &ServerState) -> Result<(Vec<u8>, Room), Fault> {
    read(body, state, (state.config().binary_bytes_max, BINARY_HINT)).await
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
        // What says how long it is is not taken in for nothing.
        let body = request.into_body();
        body.size_hint().exact().map_or(Ok(()), &check)?;
        let (bytes, room) = read(body, state, limit).await?;
        check(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        Ok(Self { bytes, json_bytes, room })
    }
}

/// 400 for JSON that would end behind its body.
pub(crate) fn beyond_body(json_bytes: usize, body_bytes: impl std::fmt::Display) -> Fault {
    Fault::bad_input(format!(
        "header Inference-Header-Content-Length is '{json_bytes}', expected 0 to {body_bytes}, the \
         length of the body"
    ))
}

/// Whether a body is a form with parts. Media types have no case.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    let is_form = |kind: &[u8]| {
        let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"multipart/form-data")
    };
    kind.is_some_and(is_form)
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

/// 408 for a body that stands still.
fn too_slow(limit: Duration) -> Fault {
    Fault::new(
        StatusCode::REQUEST_TIMEOUT,
        "too_slow",
        format!("nothing of the request body arrived for {} ms", limit.as_millis()),
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

/// A large body may take long, but it must not stall.
async fn in_time<T>(stall: Duration, step: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(stall, step).await.map_err(|_| too_slow(stall))
}

/// How a body comes in: something of it again and again, and all of it not too slowly.
pub(crate) struct Pace {
    began: Instant,
    stall: Duration,
    grace: Duration,
    bytes_per_s_min: usize,
}

impl Pace {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self {
            began: Instant::now(),
            stall: config.body_timeout(),
            grace: Duration::from_millis(config.body_grace_ms),
            bytes_per_s_min: config.body_bytes_per_s_min.max(1),
        }
    }

    /// Waits for the next piece of a body of which so many bytes are there.
    pub(crate) async fn next<T>(
        &self,
        got: usize,
        piece: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        let rate = u32::try_from(self.bytes_per_s_min).unwrap_or(u32::MAX);
        let allowed = self.grace + Duration::from_secs_f64(got as f64 / f64::from(rate));
        let left = allowed.saturating_sub(self.began.elapsed());
        if left >= self.stall {
            return in_time(self.stall, piece).await;
        }
        tokio::time::timeout(left, piece).await.map_err(|_| {
            let (ms, least) = (self.began.elapsed().as_millis(), self.bytes_per_s_min);
            let message = format!(
                "{got} bytes of the request body arrived in {ms} ms, expected {least} a second"
            );
            Fault::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
        })
    }

    /// Time that the server took for itself does not count.
    pub(crate) fn waited(&mut self, time: Duration) {
        self.began += time;
    }
}

/// Takes a body in that is no larger than the setting allows.
pub(crate) async fn take(body: Body, state: &ServerState) -> Result<(Vec<u8>, Room), Fault> {
    read(body, state, (state.config().body_bytes_max, PLAIN_HINT)).await
}

/// Takes a body of at most `limit` bytes in, each byte once there is room for it.
async fn read(
    body: Body,
    state: &ServerState,
    (limit, hint): (usize, &str),
) -> Result<(Vec<u8>, Room), Fault> {
    let config = state.config();
    let stated = body.size_hint();
    let least = usize::try_from(stated.lower()).unwrap_or(usize::MAX);
    if least > limit {
        return Err(beyond(limit, hint));
    }
    let mut room = Room::default();
    // What says how long it is waits before it is taken in at all.
    make_room(state, &mut room, least).await?;
    let mut bytes = Vec::new();
    // Where the system has not so much now, it may have once all is there.
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
            make_room(state, &mut room, all).await?;
            pace.waited(waits.elapsed());
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, room))
}

/// Has the room of a body grow; 503 where it is not there in time.
pub(crate) async fn make_room(
    state: &ServerState,
    room: &mut Room,
    bytes: usize,
) -> Result<(), Fault> {
    let wait = state.config().body_timeout();
    let growing = tokio::time::timeout(wait, state.bodies().grow(room, bytes));
    growing.await.map_err(|_| no_room(state))
}

/// The same for a request that holds some room already. It does not stand in the line, where it would keep
/// others from theirs while it keeps its own: it asks again until the time is over.
pub(crate) async fn make_more_room(
    state: &ServerState,
    room: &mut Room,
    bytes: usize,
) -> Result<(), Fault> {
    const PAUSE: Duration = Duration::from_millis(20);
    let until = Instant::now() + state.config().body_timeout();
    let bytes = bytes.min(state.config().room_of_one());
    while !state.bodies().try_grow(room, bytes) {
        if Instant::now() >= until {
            return Err(no_room(state));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

fn no_room(state: &ServerState) -> Fault {
    let (most, ms) = (state.config().bodies_bytes_max, state.config().body_timeout_ms);
    let message = format!(
        "request bodies of {most} bytes are held, the most that are \
         (http.bodies_bytes_max sets that); no room came free within {ms} ms"
    );
    Fault::unavailable("busy", message)
}
