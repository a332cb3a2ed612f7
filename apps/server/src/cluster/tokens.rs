//! Routes for join tokens, which admit machines to the cluster, and for revoking the certificates of its members.

use crate::extract::{Params, Whole};
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lgp_distributed::{Revocation, TokenInfo, WorkerId};
use lgp_sdk::cluster::{Error, Role, Tokens};
use qrcode::render::svg;
use qrcode::{EcLevel, QrCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    #[serde(default = "once")]
    uses: u32,
    #[serde(default = "an_hour")]
    ttl_s: u64,
    #[serde(default = "worker")]
    role: Role,
}

fn once() -> u32 {
    1
}

fn an_hour() -> u64 {
    3600
}

fn worker() -> Role {
    Role::Worker
}

/// `POST tokens {"uses":N,"ttl_s":S,"role":R}`: 201 with the token, which is never shown again.
pub(crate) async fn create(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let Create { uses, ttl_s, role } = body.json()?;
    let ttl = Duration::from_secs(ttl_s);
    let (info, token) = change(&state, move |tokens| tokens.create_for(role, uses, ttl)).await?;
    tracing::info!(by = "REST", token = %info.id, %role, "a join token was made");
    let mut value = describe(&info);
    value["token"] = json!(token.to_string());
    let quic = state.coordinator().quic_addr();
    let addresses = addresses(quic);
    value["quic"] = json!(quic.to_string());
    if let (Role::Worker, Some(first)) = (role, addresses.first()) {
        value["qr_svg"] = json!(picture(&format!("radeon-cluster join {first} {token}")));
    }
    value["addresses"] = json!(addresses);
    Ok((StatusCode::CREATED, Json(value)))
}

/// The addresses at which this machine is reachable: `listens`, or all of its own if unspecified.
fn addresses(listens: SocketAddr) -> Vec<String> {
    if !listens.ip().is_unspecified() {
        return vec![listens.to_string()];
    }
    let own = own_addresses().into_iter();
    own.map(|ip| SocketAddr::new(ip, listens.port()).to_string()).collect()
}

/// The addresses at which others may reach this machine.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let found = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
    let mut found: Vec<IpAddr> = found.filter(|it| !it.is_loopback()).map(|it| it.ip()).collect();
    // Link-local addresses only work together with a link's name.
    found.retain(|ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// A text as a QR code; `None` if it is too long.
pub(super) fn picture(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    Some(code.render::<svg::Color<'_>>().min_dimensions(240, 240).build())
}

/// `GET tokens`: a bare array, oldest first, including expired and used-up tokens.
pub(crate) async fn list(State(state): State<ServerState>) -> Result<Json<Value>, ClusterError> {
    let tokens = change(&state, |tokens| Ok(tokens.list())).await?;
    Ok(Json(tokens.iter().map(describe).collect()))
}

/// `DELETE tokens/{id}`: machines that joined with the token stay.
pub(crate) async fn revoke(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let id = params.get("id").to_owned();
    let revoked = id.clone();
    change(&state, move |tokens| tokens.revoke(&revoked)).await?;
    tracing::info!(by = "REST", token = %id, "a join token was taken back");
    Ok(Json(json!({ "id": id, "revoked": true })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Revoke {
    name: String,
    #[serde(default = "worker")]
    role: Role,
}

/// `POST revocations {"name":N,"role":R}`: 201. The member's certificates are refused from now on, and its
/// connections, whose number is returned, are closed. 409 if too many members are revoked; nothing changes then. If
/// the revocation cannot be stored, 507 for a full disk and 500 otherwise; it then holds until the coordinator
/// restarts.
pub(crate) async fn revoke_member(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let Revoke { name, role } = body.json()?;
    let name: WorkerId = name.parse().map_err(|e: Error| Fault::bad_input(e.to_string()))?;
    tracing::warn!(by = "REST", %role, %name, "an administrator revokes");
    let revoked = state.coordinator().revoke(role, name).await;
    let (revocation, closed) = revoked.map_err(faults::revocation)?;
    let mut value = json!(revocation);
    value["connections_closed"] = json!(closed);
    Ok((StatusCode::CREATED, Json(value)))
}

/// `GET revocations`: a bare array, oldest first, of members whose certificates may still be valid.
pub(crate) async fn revoked_members(State(state): State<ServerState>) -> Json<Vec<Revocation>> {
    Json(state.coordinator().pki().revoked())
}

/// Changes tokens off the threads that serve connections, because it blocks on the disk.
async fn change<T: Send + 'static>(
    state: &ServerState,
    work: impl FnOnce(&Tokens) -> Result<T, Error> + Send + 'static,
) -> Result<T, Fault> {
    let tokens = state.coordinator().tokens().cloned().ok_or_else(|| {
        Fault::unsupported("this coordinator was started without join tokens")
            .hint("start one with: radeon-cluster start")
    })?;
    let done = tokio::task::spawn_blocking(move || work(&tokens)).await;
    done.map_err(Fault::internal)?.map_err(faults::cluster)
}

fn describe(info: &TokenInfo) -> Value {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let state = match info {
        TokenInfo { uses_left: 0, .. } => "used_up",
        TokenInfo { expires_s, .. } if *expires_s <= now_s => "expired",
        _ => "open",
    };
    json!({
        "id": info.id,
        "role": info.role,
        "state": state,
        "uses": info.uses,
        "uses_left": info.uses_left,
        "created_s": info.created_s,
        "expires_s": info.expires_s,
        "expires_in_s": info.expires_s.saturating_sub(now_s),
        "made_by": info.made_by.as_ref().map(|(role, name)| json!({ "role": role, "name": name })),
    })
}
