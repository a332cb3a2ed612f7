//! The API description in OpenAPI 3.1, generated from the routes that also make the router.

use crate::access::{KeyRole, Right};
use crate::route::{Content, Parameter, Route};
use serde_json::{Map, Value, json};

/// The schemas of bodies, by name.
const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// The meaning of each status of a refusal.
const REFUSALS: [(u16, &str); 14] = [
    (400, "What was sent cannot be used; the message names it"),
    (401, "A key is needed, or the one that was sent is not good"),
    (403, "The key does not reach so far"),
    (404, "There is nothing of this name"),
    (408, "The body came too slowly"),
    (409, "It does not fit what is there"),
    (410, "The result was let go, or had its time"),
    (413, "The body is too large"),
    (415, "Encoded bodies are not taken"),
    (429, "The key's limits are used up"),
    (500, "Something broke; the server's log has the cause"),
    (501, "It is not offered here"),
    (503, "It cannot be done now"),
    (507, "The disk is full"),
];
/// Statuses after which a client may retry, at a time in the response.
const LATER: [u16; 2] = [429, 503];
/// Statuses of every route that needs a key.
const OF_KEYS: [u16; 3] = [401, 403, 429];
/// Statuses of every route with a body.
const OF_BODIES: [u16; 5] = [400, 408, 413, 415, 503];

/// Path parameters: the segment before them, their names, schemas and descriptions.
const IN_PATHS: [(&str, &str, &str, &str); 9] = [
    ("tasks", "id", "TaskId", "The task, as its submission was answered"),
    ("workers", "id", "Name", "The worker"),
    ("keys", "id", "Name", "The public name of the key"),
    ("tokens", "id", "Name", "The public name of the token"),
    ("models", "model", "PlainModelName", "The model"),
    ("aliases", "alias", "PlainModelName", "The alias"),
    ("versions", "version", "ModelVersion", "Its version"),
    ("dashboard", "file", "Name", "The file"),
    ("region", "region", "Name", "The region"),
];

/// The description of these routes.
pub(crate) fn document(routes: &[Route]) -> Value {
    // A test checks that it parses.
    let mut schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    schemas["DeploymentPatch"] = patch_of(&schemas["Deployment"]);
    let mut paths = Map::new();
    for route in routes {
        let item = paths.entry(route.path.as_str()).or_insert_with(|| json!({}));
        item[route.method.as_str().to_ascii_lowercase()] = operation(route, &schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Legacy GPU AI Platform",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Inference by the Open Inference Protocol v2, and the cluster that does it. Every \
                            refusal names what was wrong and what was expected.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": Family::ALL.map(|family| json!({ "name": family.name(), "description": family.about() })),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses(),
            "securitySchemes": { "key": {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key, as radeon-cluster keys create makes them, or the one in local.key \
                                of the data folder. Its role is infer, submit or admin, of which each may do \
                                also what those before it may.",
            } },
        },
    })
}

/// The schema of a partial change: each field may also be null.
fn patch_of(schema: &Value) -> Value {
    let mut patch = schema.clone();
    for field in patch["properties"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(kind) = field["type"].as_str() {
            field["type"] = json!([kind, "null"]);
        }
    }
    patch["examples"] = json!([{
        "cache_bytes": 67_108_864, "batching": { "max": 32 }, "run_limit_ms": null, "variants": null,
    }]);
    patch
}

/// Routes whose refusals have the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Cluster,
    Protocol,
    Server,
}

impl Family {
    const ALL: [Self; 3] = [Self::Protocol, Self::Cluster, Self::Server];

    fn of(path: &str) -> Self {
        match path {
            path if path.starts_with("/api/") => Self::Cluster,
            path if path == "/v2" || path.starts_with("/v2/") => Self::Protocol,
            _ => Self::Server,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Protocol => "inference",
            Self::Server => "server",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Cluster => "Workers, tasks, models, members and settings",
            Self::Protocol => "The Open Inference Protocol v2, with Triton's extensions",
            Self::Server => "Probes, metrics and this description",
        }
    }

    /// The schema of the family's refusals.
    fn error(self) -> &'static str {
        match self {
            Self::Cluster => "ClusterError",
            Self::Protocol | Self::Server => "ProtocolError",
        }
    }
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

fn operation(route: &Route, schemas: &Value) -> Value {
    let family = Family::of(&route.path);
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.about,
        "tags": [family.name()],
        "security": security(route.right),
        "responses": answers(route, family),
    });
    let in_path = in_path(&route.path).into_iter();
    let parameters: Vec<Value> = in_path.chain(route.parameters.iter().map(parameter)).collect();
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if !route.takes.is_empty() {
        operation["requestBody"] = json!({
            "required": needs_body(&route.takes, schemas),
            "content": contents(&route.takes),
        });
    }
    operation
}

/// Whether the body is required: an empty one is read as JSON without members.
fn needs_body(takes: &[Content], schemas: &Value) -> bool {
    let may_be_empty = |content: &Content| match content {
        Content::Json(schema) => schemas[*schema]["required"].is_null(),
        Content::Text(..) | Content::Bytes(_) => false,
    };
    !takes.iter().any(may_be_empty)
}

/// A name for generated clients.
fn operation_id(route: &Route) -> String {
    let path: String = route.path.chars().filter(|c| !matches!(c, '{' | '}')).collect();
    let words = path.replace(['/', '.', '-'], "_");
    format!("{}{words}", route.method.as_str().to_ascii_lowercase())
}

/// Inference needs no key on the server's own machine, unless `http.open` is off.
fn security(right: Right) -> Value {
    match right {
        Right::Anybody => json!([]),
        Right::Role(role @ KeyRole::Infer) => json!([{ "key": [role.name()] }, {}]),
        Right::Role(role) => json!([{ "key": [role.name()] }]),
    }
}

fn in_path(path: &str) -> Vec<Value> {
    let segments: Vec<&str> = path.split('/').collect();
    let named = segments.windows(2).filter_map(|pair| {
        let name = pair[1].strip_prefix('{')?.strip_suffix('}')?;
        let known =
            IN_PATHS.iter().find(|(before, known, _, _)| (*before, *known) == (pair[0], name));
        let (schema, about) = known.map_or(("Name", ""), |(_, _, schema, about)| (*schema, *about));
        Some(json!({
            "name": name, "in": "path", "required": true, "description": about,
            "schema": reference("schemas", schema),
        }))
    });
    named.collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let Parameter { place, name, schema, about } = parameter;
    json!({ "name": name, "in": place, "description": about, "schema": reference("schemas", schema) })
}

fn contents(all: &[Content]) -> Value {
    all.iter().map(|content| content_of(*content)).collect::<Map<_, _>>().into()
}

fn content_of(content: Content) -> (String, Value) {
    match content {
        Content::Json(schema) => {
            ("application/json".to_owned(), json!({ "schema": reference("schemas", schema) }))
        }
        Content::Text(kind, schema) => {
            (kind.to_owned(), json!({ "schema": reference("schemas", schema) }))
        }
        // Any content.
        Content::Bytes(kind) => (kind.to_owned(), json!({})),
    }
}

fn answers(route: &Route, family: Family) -> Value {
    let mut answers = Map::new();
    for (status, content) in &route.answers {
        let (kind, body) = content_of(*content);
        let about = if *status < 300 { "Done" } else { "Not now" };
        let answer = answers
            .entry(status.to_string())
            .or_insert_with(|| json!({ "description": about, "content": {} }));
        answer["content"][kind] = body;
    }
    let asks_for_a_key = route.right != Right::Anybody;
    let takes_a_body = !route.takes.is_empty();
    let of_keys = OF_KEYS.iter().filter(|_| asks_for_a_key);
    let of_bodies = OF_BODIES.iter().filter(|_| takes_a_body);
    for status in of_keys.chain(of_bodies).chain(route.refusals) {
        let refusal = reference("responses", &refusal_name(family, *status));
        answers.entry(status.to_string()).or_insert(refusal);
    }
    answers.into()
}

fn refusal_name(family: Family, status: u16) -> String {
    format!("{}{status}", family.error())
}

/// Every refusal of every family.
fn responses() -> Value {
    let mut all = Map::new();
    for family in Family::ALL {
        let content =
            json!({ "application/json": { "schema": reference("schemas", family.error()) } });
        for (status, about) in REFUSALS {
            let mut response = json!({ "description": about, "content": content });
            if LATER.contains(&status) {
                response["headers"] = json!({ "Retry-After": {
                    "description": "Seconds after which it may be tried again",
                    "schema": { "type": "integer", "minimum": 1 },
                } });
            }
            all.insert(refusal_name(family, status), response);
        }
    }
    all.into()
}
