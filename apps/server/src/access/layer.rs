//! The access layer: identifies the caller by its key, checks its right to the route, enforces its limits, and logs
//! administrators' calls.

use super::audit::{Call, Made, is_refusal};
use super::caller::Caller;
use super::keys::KeyRole;
use super::rights::{Right, Rights};
use crate::fault::Fault;
use crate::grpc;
use crate::peer::Peer;
use crate::state::ServerState;
use axum::RequestExt;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use tracing::{Instrument, Span};

/// The scheme of the header `Authorization`.
const SCHEME: &str = "Bearer";

/// The part of a route's pattern that names a model.
const MODEL: &str = "model";

/// The state of the layer: what the router behind it needs of callers.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    state: ServerState,
    rights: Arc<Rights>,
}

impl Gate {
    /// A layer before routes with these rights.
    pub(crate) fn new(state: ServerState, rights: Rights) -> Self {
        Self { state, rights: Arc::new(rights) }
    }
}

/// Middleware that answers 401 to callers without a valid key where one is needed, 403 to those whose key lacks the
/// right, and 429 beyond a key's limits.
pub(crate) async fn authenticate(
    State(Gate { state, rights }): State<Gate>,
    mut request: Request,
    next: Next,
) -> Response {
    // The fallback for unknown paths reveals nothing, so it needs no key.
    let Some(route) = request.extensions().get::<MatchedPath>() else {
        return next.run(request).await;
    };
    let needed = rights.right(request.method(), route.as_str());
    if needed == Right::Anybody {
        return next.run(request).await;
    }
    let path = request.uri().path().to_owned();
    let (method, peer) = (request.method().clone(), Peer::of(&request));
    let found = identify(&state, request.headers(), &peer);
    let id = found.as_ref().map_or("-", |caller| caller.id()).to_owned();
    let found = match found {
        Ok(caller) => check_models(&caller, &mut request).await.map(|()| caller),
        refused => refused,
    };
    let admitted = found.and_then(|caller| admit(&state, caller, needed));
    let refused = admitted.as_ref().err().map(|fault| fault.status);
    let is_order = needed == Right::Role(KeyRole::Admin) && method != Method::GET;
    let asked = path.clone();
    let answering = async move {
        let response = match admitted {
            Ok(caller) => {
                // The caller's place is freed when the last part of the request is dropped.
                request.extensions_mut().insert(caller.clone());
                if let Some(call) = request.extensions_mut().get_mut::<crate::call::Call>() {
                    call.comes_from(caller.id());
                }
                next.run(request).await
            }
            Err(fault) => challenge(fault.for_path(&path)),
        };
        let status = refused.unwrap_or_else(|| grpc::status_of(&response));
        let status = status.as_u16();
        if let (true, Some(audit)) = (is_order || is_refusal(status), &state.access().audit) {
            let (method, peer) = (method.as_str(), peer.to_string());
            let made = response.extensions().get::<Made>();
            audit.add(Call { key: &id, peer: &peer, method, path: &path, status, made });
        }
        response
    };
    if !is_order {
        return answering.await;
    }
    // An administrator's call is completed and logged even if the client disconnects.
    let done = tokio::spawn(answering.instrument(Span::current())).await;
    done.unwrap_or_else(|error| Fault::internal(error).for_path(&asked))
}

/// The caller of a request with these headers.
fn identify(state: &ServerState, headers: &HeaderMap, peer: &Peer) -> Result<Caller, Fault> {
    match bearer(headers)? {
        Some(key) => state.access().find(key).ok_or_else(key_is_gone),
        None if peer.is_local() && state.config().open => Ok(Caller::anonymous()),
        None => Err(unauthorized("a key is needed here")),
    }
}

/// The key in a request's headers, if there is one.
///
/// # Errors
/// 401 if the header is not `Bearer KEY`, or there are several.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| given.next().is_none());
    let parts = text.and_then(|text| text.split_once(' '));
    let parts = parts.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
    parts.map(|(_, key)| Some(key.trim())).ok_or_else(|| {
        unauthorized(
            "the header Authorization is not understood, expected it once, as 'Bearer KEY'",
        )
    })
}

/// The refusal of an invalid key.
pub(crate) fn key_is_gone() -> Fault {
    unauthorized("the key is unknown, expired or revoked")
}

/// Checks the caller's role and limits for a route.
fn admit(state: &ServerState, caller: Caller, needed: Right) -> Result<Caller, Fault> {
    if let Right::Role(needed) = needed
        && caller.role() < needed
    {
        if caller.is_anonymous() {
            return Err(unauthorized("a key is needed here"));
        }
        let (id, role) = (caller.id(), caller.role());
        let message = format!("key {id} has the role {role}, expected {needed}");
        return Err(Fault::new(StatusCode::FORBIDDEN, "forbidden", message).hint(format!(
            "radeon-cluster keys create --role {needed} makes one that reaches so far"
        )));
    }
    caller.placed(&state.access().limits)
}

/// Refuses a route whose path names a model that the caller's key does not cover.
async fn check_models(caller: &Caller, request: &mut Request) -> Result<(), Fault> {
    if !caller.is_limited() {
        return Ok(());
    }
    let Ok(params) = request.extract_parts::<RawPathParams>().await else { return Ok(()) };
    let mut named = params.iter().filter(|(name, _)| *name == MODEL).map(|(_, model)| model);
    named.try_for_each(|model| caller.check_model(model))
}

fn unauthorized(message: &str) -> Fault {
    Fault::new(StatusCode::UNAUTHORIZED, "unauthorized", message).hint(
        "send Authorization: Bearer KEY, with the key in local.key of the data folder, or one that \
         radeon-cluster keys create has made",
    )
}

/// Adds to a 401 response which credential is needed.
fn challenge(mut response: Response) -> Response {
    if response.status() == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static(SCHEME);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}
