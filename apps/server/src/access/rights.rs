//! What each route asks of its caller. A route that is not listed is for administrators.

use super::keys::KeyRole::{self, Infer, Submit};
use axum::http::Method;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// Anybody who reaches the port.
    Anybody,
    /// Whoever has at least this role.
    Role(KeyRole),
}

/// Whether the server lives and whether it is ready: one bit each, for whatever watches over it.
const PROBES: [&str; 4] = [
    "/v2/health/live",
    "/v2/health/ready",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];

/// Routes below these are the Open Inference Protocol's.
const PROTOCOL: [&str; 2] = ["/v2", "/inference.GRPCInferenceService"];

/// Routes of the protocol that change what is served.
const CONTROL: [&str; 4] = [
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/inference.GRPCInferenceService/RepositoryModelUnload",
];

/// Other routes that are not for administrators alone.
const RIGHTS: [(&str, &str, KeyRole); 18] = [
    ("GET", "/api/v1/cluster/health", Infer),
    ("GET", "/metrics", Submit),
    ("POST", "/api/v1/cluster/coordinator/start", Submit),
    ("GET", "/api/v1/cluster/stats", Submit),
    ("GET", "/api/v1/cluster/workers", Submit),
    ("GET", "/api/v1/cluster/workers/{id}", Submit),
    ("GET", "/api/v1/cluster/workers/{id}/metrics", Submit),
    ("GET", "/api/v1/cluster/models", Submit),
    ("GET", "/api/v1/cluster/models/{model}", Submit),
    ("GET", "/api/v1/cluster/tasks", Submit),
    ("POST", "/api/v1/cluster/tasks", Submit),
    ("POST", "/api/v1/cluster/tasks/batch", Submit),
    ("GET", "/api/v1/cluster/tasks/{id}", Submit),
    ("DELETE", "/api/v1/cluster/tasks/{id}", Submit),
    ("DELETE", "/api/v1/cluster/tasks/{id}/result", Submit),
    ("GET", "/api/v1/cluster/tasks/{id}/why", Submit),
    ("GET", "/api/v1/cluster/config", Submit),
    ("GET", "/api/v1/cluster/events", Submit),
];

/// What a route, by its pattern, asks of its caller.
pub(super) fn right(method: &Method, route: &str) -> Right {
    if PROBES.contains(&route) {
        return Right::Anybody;
    }
    let is_below = |prefix: &str| {
        route.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if PROTOCOL.into_iter().any(is_below) && !CONTROL.contains(&route) {
        return Right::Role(Infer);
    }
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let listed = RIGHTS.iter().find(|(m, r, _)| *m == method && *r == route);
    Right::Role(listed.map_or(KeyRole::Admin, |(_, _, role)| *role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_is_for_administrators() {
        let admin = Right::Role(KeyRole::Admin);
        for (method, route, expected) in [
            (Method::GET, "/v2/health/live", Right::Anybody),
            (Method::GET, "/v2", Right::Role(Infer)),
            (Method::POST, "/v2/models/{model}/infer", Right::Role(Infer)),
            (Method::POST, "/v2/repository/models/{model}/load", admin),
            (Method::POST, "/inference.GRPCInferenceService/ServerLive", Right::Anybody),
            (Method::POST, "/inference.GRPCInferenceService/ModelInfer", Right::Role(Infer)),
            (Method::POST, "/inference.GRPCInferenceService/RepositoryModelLoad", admin),
            (Method::GET, "/v2x", admin),
            (Method::GET, "/api/v1/cluster/tasks", Right::Role(Submit)),
            (Method::HEAD, "/api/v1/cluster/tasks", Right::Role(Submit)),
            (Method::DELETE, "/api/v1/cluster/tasks", admin),
            (Method::POST, "/api/v1/cluster/models/{model}", admin),
            (Method::GET, "/api/v1/cluster/tokens", admin),
            (Method::GET, "/api/v1/cluster/made-up", admin),
        ] {
            assert_eq!(right(&method, route), expected, "{method} {route}");
        }
    }
}
