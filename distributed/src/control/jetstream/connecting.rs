//! Connects to NATS servers, and explains failures.

use super::Trouble;
use crate::control::endpoints::Endpoints;
use crate::control::tls::{ENCRYPTED, is_of_tls, remedy, suspected};
use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions};
use std::time::Duration;

/// How long a connection to one server may take.
pub(super) const CONNECTING: Duration = Duration::from_secs(3);

/// How long to wait for an answer.
pub(super) const ANSWER: Duration = Duration::from_secs(3);

/// The connection options.
pub(super) fn options(servers: &Endpoints) -> ConnectOptions {
    let mut options = ConnectOptions::new()
        .name("radeon-cluster")
        // Only the given servers were checked, so others are ignored.
        .ignore_discovered_servers()
        .connection_timeout(CONNECTING)
        .request_timeout(Some(ANSWER))
        .ping_interval(Duration::from_secs(5))
        .max_reconnects(None)
        .reconnect_delay_callback(|tries| Duration::from_millis(if tries < 2 { 20 } else { 200 }));
    if let Some(tls) = &servers.tls {
        options = options.require_tls(true).tls_client_config(tls.config().as_ref().clone());
    }
    if let Some(account) = servers.account.clone() {
        options = options.user_and_password(account.user, account.password);
    }
    options
}

/// The reason why there is no connection, and what to do about it.
pub(super) fn unconnected(error: &ConnectError, servers: &Endpoints) -> Trouble {
    let remedy = match (error.kind(), &servers.account) {
        (ConnectErrorKind::AuthorizationViolation, Some(_)) => {
            Some("expected nats://USER:PASSWORD@HOST:PORT of a user that it has")
        }
        (ConnectErrorKind::AuthorizationViolation, None) => {
            Some("it wants a user: write nats://USER:PASSWORD@HOST:PORT")
        }
        _ if servers.tls.is_none() && is_of_tls(error) => Some(ENCRYPTED),
        _ => remedy(error),
    };
    let text = error.to_string();
    let suspected = servers.tls.as_ref().and_then(|_| suspected(&text));
    match (remedy, suspected) {
        (Some(remedy), _) => Trouble::Refused(format!("{text}: {remedy}")),
        (None, Some(suspected)) => Trouble::Away(format!("{text}: {suspected}")),
        (None, None) => Trouble::Away(text),
    }
}
