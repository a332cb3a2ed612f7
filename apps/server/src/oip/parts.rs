//! Inference requests as `multipart/form-data`: each part is an element of the input with its name, and the part
//! `request` has everything else as JSON.
//!
//! ```text
//! curl -F image=@cat.jpg localhost:8000/v2/models/cats/infer
//! ```

use super::blobs::Data;
use super::{InferRequest, LARGE_BYTES, request, signature};
use crate::bodies::Room;
use crate::catalog::ModelEntry;
use crate::extract::{WithTensors, is_form, refuse_encoded, room_of, whole};
use crate::fault::Fault;
use crate::shared_memory::Shared;
use crate::state::ServerState;
use axum::body::Bytes;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::http::StatusCode;
use axum::response::Response;
use lgp_sdk::tensor::DType;
use tokio::runtime::Handle;

/// The part with JSON.
const JSON: &str = "request";
/// The most parts of a request.
const PARTS_MAX: usize = 256;

/// The body of a request, in either form.
pub(crate) enum Body {
    Tensors(WithTensors),
    Parts(Parts),
}

impl FromRequest<ServerState> for Body {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ServerState) -> Result<Self, Response> {
        if !is_form(request.headers()) {
            return WithTensors::from_request(request, state).await.map(Self::Tensors);
        }
        let path = request.uri().path().to_owned();
        let parts = Parts::read(request, state).await.map(Self::Parts);
        parts.map_err(|fault| fault.for_path(&path))
    }
}

/// The parts of a request.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Names and contents, in the order of the request.
    files: Vec<(String, Bytes)>,
    json: Bytes,
    /// Length of the body in bytes.
    pub(super) bytes: usize,
    /// The body's room.
    pub(super) room: Room,
}

/// The content type of a form, taken from the boundary at its start.
#[cfg(feature = "planted")]
pub(crate) fn form_kind(form: &[u8]) -> String {
    let line = form.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let boundary = String::from_utf8_lossy(line.get(2..).unwrap_or_default());
    format!("multipart/form-data; boundary={boundary}")
}

/// Whether a body that begins with its boundary is a valid form.
#[cfg(feature = "planted")]
pub(crate) fn can_take_form(body: &[u8]) -> bool {
    use futures_util::FutureExt;
    let request = Request::builder().header(axum::http::header::CONTENT_TYPE, form_kind(body));
    let Ok(request) = request.body(axum::body::Body::from(body.to_vec())) else { return false };
    // All bytes are available, so parsing never waits.
    Parts::take(request, body.len()).now_or_never().is_some_and(|taken| taken.is_ok())
}

impl Parts {
    /// Reads the body like any other, then splits it into parts.
    async fn read(request: Request, state: &ServerState) -> Result<Self, Fault> {
        refuse_encoded(&request)?;
        let room = room_of(&request, state);
        let (parts, body) = request.into_parts();
        let (body, room) = whole(body, (state, room)).await?;
        let bytes = body.len();
        let mut request = Request::from_parts(parts, body.into());
        // `whole` has applied the limit already.
        DefaultBodyLimit::disable().apply(&mut request);
        let most = state.config().body_bytes_max;
        let taken = match bytes < LARGE_BYTES {
            true => Self::take(request, most).await,
            false => {
                let runtime = Handle::current();
                let taking = move || runtime.block_on(Self::take(request, most));
                tokio::task::spawn_blocking(taking).await.map_err(Fault::internal)?
            }
        };
        Ok(Self { bytes, room, ..taken? })
    }

    /// The parts of a complete body, with at most `json_bytes_max` bytes of JSON.
    async fn take(request: Request, json_bytes_max: usize) -> Result<Self, Fault> {
        let parts = Multipart::from_request(request, &()).await;
        let mut parts = parts.map_err(|error| Fault::bad_input(error.body_text()))?;
        let mut all = Self::default();
        let mut json = None;
        let mut count = 0;
        while let Some(part) = parts.next_field().await.map_err(broken)? {
            count += 1;
            if count > PARTS_MAX {
                let what = format!("more than {PARTS_MAX} parts, expected at most so many");
                return Err(Fault::bad_input(what));
            }
            let Some(name) = part.name().map(str::to_owned) else {
                return Err(Fault::bad_input("a part has no name, expected that of an input"));
            };
            let data = part.bytes().await.map_err(broken)?;
            if name != JSON {
                all.files.push((name, data));
            } else if data.len() > json_bytes_max {
                let what = format!("the part '{JSON}' has {} bytes", data.len());
                let fault = format!("{what}, expected at most {json_bytes_max}");
                return Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", fault)
                    .hint("http.body_bytes_max sets the limit"));
            } else if json.replace(data).is_some() {
                return Err(Fault::bad_input(format!("there are two parts '{JSON}'")));
            }
        }
        Ok(Self { json: json.unwrap_or_default(), ..all })
    }

    /// The JSON, which may name shared memory.
    pub(super) fn json(&self) -> &[u8] {
        &self.json
    }

    /// Decodes the parts as a request.
    pub(super) fn decode(self, shared: &Shared, entry: &ModelEntry) -> Result<InferRequest, Fault> {
        let mut inputs: Vec<(String, Vec<Bytes>)> = Vec::new();
        for (name, data) in self.files {
            match inputs.iter_mut().find(|(known, _)| *known == name) {
                Some((_, elements)) => elements.push(data),
                None => inputs.push((name, vec![data])),
            }
        }
        let read = |(name, elements): (String, Vec<Bytes>)| {
            let spec = entry.inputs().iter().find(|spec| spec.name == name);
            let spec = spec.ok_or_else(|| {
                let known = signature::names(entry.inputs());
                Fault::bad_input(format!("part '{name}' is no input, the model has {known}"))
            })?;
            if spec.ty.dtype != DType::Str {
                return Err(Fault::bad_input(format!(
                    "part '{name}' is an input of {}, expected one of BYTES; those of other datatypes \
                     go into the part '{JSON}'",
                    super::datatype_name(spec.ty.dtype)
                )));
            }
            // Elements are stacked along the first dimension.
            let rank = spec.ty.shape.as_ref().map_or(1, |shape| shape.rank());
            let ones = std::iter::repeat_n(1, rank.saturating_sub(1));
            let shape: Vec<usize> =
                std::iter::once(elements.len()).take(rank).chain(ones).collect();
            Data::of(&name, &shape, elements)
        };
        let inputs = inputs.into_iter().map(read).collect::<Result<_, _>>()?;
        request::decode_with(inputs, &self.json, Some(shared), entry)
    }
}

fn broken(error: MultipartError) -> Fault {
    Fault::bad_input(format!("the parts of the body are not valid: {}", error.body_text()))
}
