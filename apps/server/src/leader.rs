//! Restricts changes of shared state to the leader, if there are several coordinators: models,
//! keys, tokens and members belong to the whole cluster.

use crate::fault::Fault;
use crate::state::ServerState;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

/// Path prefixes of state that the whole cluster shares.
const SHARED: [&str; 5] = [
    "/api/v1/cluster/models",
    "/api/v1/cluster/keys",
    "/api/v1/cluster/tokens",
    "/api/v1/cluster/members",
    "/v2/repository/models",
];

/// Middleware that refuses changes of shared state unless this coordinator is the leader.
pub(crate) async fn only(
    State(state): State<ServerState>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let changes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    if changes
        && SHARED.iter().any(|shared| path.starts_with(shared))
        && let Err(fault) = check(&state)
    {
        return fault.for_path(path);
    }
    next.run(request).await
}

/// # Errors
/// 503 if another coordinator is the leader, with its address.
pub(crate) fn check(state: &ServerState) -> Result<(), Fault> {
    let coordinator = state.coordinator();
    if coordinator.leads() {
        return Ok(());
    }
    let leader = coordinator.peers().into_iter().find(|peer| peer.leads);
    let place = leader.map(|leader| leader.url.unwrap_or(leader.quic));
    let fault = Fault::unavailable("not_leading", "only the coordinator that leads changes that");
    Err(match place {
        Some(place) => fault.hint(format!("ask {place}")),
        None => fault.hint("none leads at present: try again in a few seconds"),
    })
}
