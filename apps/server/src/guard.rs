//! Refuses requests from other sites' pages, because browsers can reach the server.
//!
//! A page can send requests to 127.0.0.1 (then `Origin` is the page's), or make its own name
//! resolve to it (then `Host` is that name). Both are refused before the body is read, except for
//! origins that the settings allow.

use crate::fault::Fault;
use crate::peer::Peer;
use crate::state::ServerState;
use crate::tls::Tls;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;

/// Middleware that refuses foreign hosts and origins with 403.
pub(crate) async fn known_hosts_only(
    State(state): State<ServerState>,
    request: Request,
    next: Next,
) -> Response {
    let tls = Peer::of(&request).tls().cloned();
    match check(request.uri(), request.headers(), tls.as_ref(), &state.config().origins) {
        Ok(()) => next.run(request).await,
        Err(fault) => fault.for_path(request.uri().path()),
    }
}

fn check(
    uri: &Uri,
    headers: &HeaderMap,
    tls: Option<&Tls>,
    origins: &[String],
) -> Result<(), Fault> {
    let host = single(headers, header::HOST)?;
    let authority = match (uri.authority(), host) {
        (Some(authority), _) => Some(authority.clone()),
        (None, Some(text)) => text.parse::<Authority>().ok(),
        (None, None) => None,
    };
    let is_ours = |a: &Authority| tls.map_or_else(|| is_local(a.host()), |tls| tls.covers(a));
    let ours = authority.filter(is_ours).ok_or_else(|| {
        forbidden(
            "foreign_host",
            format!(
                "host '{}' is not this server's, expected {}",
                uri.authority().map(Authority::as_str).or(host).unwrap_or_default(),
                match tls {
                    Some(_) => "a name or an address of its certificate",
                    None => "localhost or a loopback address",
                }
            ),
        )
    })?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let own = format!("{scheme}://{ours}");
    match single(headers, header::ORIGIN)? {
        Some(origin) if origin != own && !origins.iter().any(|known| known == origin) => {
            Err(forbidden(
                "foreign_origin",
                format!(
                    "origin '{origin}' may not use this server, expected {own}, or one that \
                     http.origins names"
                ),
            ))
        }
        _ => Ok(()),
    }
}

fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Fault> {
    let mut values = headers.get_all(&name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => Err(forbidden("bad_header", format!("header {name} must be given once, in ASCII"))),
    }
}

fn is_local(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|a| a.is_loopback())
}

fn forbidden(code: &'static str, message: String) -> Fault {
    Fault::new(StatusCode::FORBIDDEN, code, message)
        .hint("reach the server by its own name or address, not through another site")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_local_hosts_and_their_own_origin_pass() {
        let cases: &[(Option<&str>, Option<&str>, &str)] = &[
            (Some("localhost:8000"), None, ""),
            (Some("LOCALHOST"), None, ""),
            (Some("127.0.0.1:8000"), None, ""),
            (Some("127.8.9.1"), None, ""),
            (Some("[::1]:8000"), None, ""),
            (Some("127.0.0.1:8000"), Some("http://127.0.0.1:8000"), ""),
            (None, None, "foreign_host"),
            (Some("evil.example"), None, "foreign_host"),
            (Some("localhost.evil.example"), None, "foreign_host"),
            (Some("127.0.0.1.evil.example:8000"), None, "foreign_host"),
            (Some("10.0.0.1:8000"), None, "foreign_host"),
            (Some("0.0.0.0:8000"), None, "foreign_host"),
            (Some("localhost:8000"), Some("http://evil.example"), "foreign_origin"),
            (Some("localhost:8000"), Some("null"), "foreign_origin"),
            (Some("localhost:8000"), Some("http://localhost:3000"), "foreign_origin"),
            (Some("localhost:8000"), Some("https://localhost:8000"), "foreign_origin"),
            (Some("localhost:8000"), Some("https://ours.example"), ""),
            (Some("localhost:8000"), Some("https://ours.example:1"), "foreign_origin"),
            (Some("ours.example"), Some("https://ours.example"), "foreign_host"),
        ];
        let origins = ["https://ours.example".to_owned()];
        for (host, origin, expected) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
                if let Some(text) = value {
                    headers.insert(name, HeaderValue::from_str(text).unwrap());
                }
            }
            let given = check(&Uri::from_static("/v2"), &headers, None, &origins);
            let given = given.map_or_else(|f| f.code, |()| "");
            assert_eq!(given, *expected, "{host:?} {origin:?}");
        }
    }

    #[test]
    fn an_absolute_target_and_a_second_host_are_checked_too() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        assert!(check(&Uri::from_static("http://evil.example/v2"), &headers, None, &[]).is_err());
        headers.append(header::HOST, HeaderValue::from_static("evil.example"));
        let error = check(&Uri::from_static("/v2"), &headers, None, &[]).unwrap_err();
        assert_eq!(error.code, "bad_header");
    }
}
