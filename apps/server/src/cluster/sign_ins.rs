//! Routes for browser sign-ins, and for the caller's identity.

use super::tokens::{own_addresses, picture};
use crate::access::{Caller, bearer};
use crate::extract::Whole;
use crate::fault::{ClusterError, Fault};
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Longest page address in a request for a link, in bytes.
const PAGE_BYTES_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    page: Option<String>,
}

/// `POST sign-ins {"page":URL}`: 201 with a code to be exchanged once within two minutes. With a page, also the
/// whole link, as text and as a QR code. A loopback address, which other machines cannot reach, is replaced by an
/// address of this machine.
pub(crate) async fn link(
    State(state): State<ServerState>,
    caller: Caller,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let Wanted { page } = body.json()?;
    let page = page.map(|page| reachable(&page)).transpose()?;
    let made = state.access().sign_ins().link(caller.id()).map_err(Fault::internal)?;
    let (code, expires_s) = made.ok_or_else(|| {
        Fault::unavailable("busy", "too many links wait to be opened")
            .hint("each works for two minutes: try again then")
    })?;
    let link = page.map(|page| format!("{page}#link={code}"));
    let qr_svg = link.as_deref().and_then(picture);
    let made = json!({ "code": code, "expires_s": expires_s, "link": link, "qr_svg": qr_svg });
    Ok((StatusCode::CREATED, Json(made)))
}

/// A page's address for other machines.
fn reachable(page: &str) -> Result<String, Fault> {
    let wrong = || {
        let shown: String = page.chars().take(64).collect();
        let message =
            format!("page {shown:?} is not valid, expected http://HOST/… or https://HOST/…");
        Fault::bad_input(message)
    };
    let uri: Uri = page.parse().map_err(|_| wrong())?;
    let scheme = uri.scheme_str().filter(|it| ["http", "https"].contains(it));
    let fits = page.len() <= PAGE_BYTES_MAX && uri.query().is_none() && !page.contains('#');
    let (Some(scheme), Some(authority), true) = (scheme, uri.authority(), fits) else {
        return Err(wrong());
    };
    let host = authority.host();
    let is_loopback = host == "localhost" || host.starts_with("127.") || host == "[::1]";
    let own = is_loopback.then(|| own_addresses().into_iter().next()).flatten();
    let host = match own {
        Some(ip @ IpAddr::V6(_)) => format!("[{ip}]"),
        Some(ip) => ip.to_string(),
        None => host.to_owned(),
    };
    let port = authority.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("{scheme}://{host}{port}{}", uri.path()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    code: String,
}

/// `POST session {"code":C}`: 201 with a key that is valid for half a day, or until the server restarts.
pub(crate) async fn begin(
    State(state): State<ServerState>,
    body: Whole,
) -> Result<(StatusCode, Json<Value>), ClusterError> {
    let Exchange { code } = body.json()?;
    let exchanged = state.access().sign_ins().exchange(&code).map_err(Fault::internal)?;
    let (key, expires_s) = exchanged.ok_or_else(|| {
        Fault::new(StatusCode::UNAUTHORIZED, "unauthorized", "the link was used before, or is over")
            .hint("radeon-cluster dashboard makes another")
    })?;
    Ok((StatusCode::CREATED, Json(json!({ "key": key, "expires_s": expires_s }))))
}

/// `GET session`: the caller's id and rights.
pub(crate) async fn show(caller: Caller) -> Json<Value> {
    Json(json!({ "id": caller.id(), "role": caller.role(), "models": caller.models() }))
}

/// `DELETE session`: ends the sign-in of the key in the request; other keys stay valid.
pub(crate) async fn end(State(state): State<ServerState>, headers: HeaderMap) -> Json<Value> {
    let ended = bearer(&headers).is_ok_and(|key| key.is_some_and(|key| state.access().end(key)));
    Json(json!({ "ended": ended }))
}
