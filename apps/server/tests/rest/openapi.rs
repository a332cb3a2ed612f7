//! Compares the API description with the router and its answers.

use crate::rig::{Answer, Options, Rig, onnx, request};
use crate::schema::{differs, resolved};
use axum::body::Body;
use lgp_server::{BoxFuture, Driver, DriverError, Restarted};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];
const ROLES: [&str; 3] = ["infer", "submit", "admin"];

/// A method and the pattern of a path.
pub(crate) type Operations = BTreeSet<(String, String)>;

pub(crate) async fn description(rig: &Rig) -> Value {
    let answer =
        rig.without_key(request("GET", "/openapi.json").body(Body::empty()).unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    answer.json()
}

pub(crate) fn operations(api: &Value) -> Operations {
    let paths = api["paths"].as_object().unwrap();
    let of = |(path, item): (&String, &Value)| -> Vec<_> {
        let methods = item.as_object().unwrap().keys();
        methods.map(|method| (method.to_uppercase(), path.clone())).collect()
    };
    paths.iter().flat_map(of).collect()
}

pub(crate) fn operation<'a>(api: &'a Value, method: &str, path: &str) -> &'a Value {
    &api["paths"][path][method.to_lowercase()]
}

/// A path of a pattern, with names that do not exist.
fn filled(pattern: &str) -> String {
    let named = pattern.replace("{version}", "9").replace("{region}", "none");
    let named = named.replace("{alias}", "none");
    named.replace("{model}", "none").replace("{id}", "none")
}

/// Whether a route answers, not just a fallback.
async fn is_served(rig: &Rig, method: &str, pattern: &str) -> bool {
    let ask = || request(method, &filled(pattern)).body(Body::empty()).unwrap();
    match rig.send(ask()).await.status().as_u16() {
        405 => false,
        404 => !rig.call(ask()).await.text().contains("nothing is served at"),
        _ => true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_has_every_route_and_no_other() {
    let rig = Rig::start().await;
    let described = operations(&description(&rig).await);
    // The router exposes its patterns only in its debug output.
    let told = format!("{:?}", rig.app);
    let patterns: BTreeSet<&str> =
        told.split('"').filter(|text| text.starts_with('/') && !text.contains("\\")).collect();
    assert!(patterns.len() > 40, "{told}");
    let mut served = Operations::new();
    for pattern in patterns {
        for method in METHODS {
            if is_served(&rig, method, pattern).await {
                served.insert((method.to_owned(), pattern.to_owned()));
            }
        }
    }
    assert_eq!(described, served);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_route_asks_for_the_role_that_it_is_described_with() {
    let rig = Rig::start().await;
    let api = description(&rig).await;
    let mut keys = Vec::new();
    for role in ROLES {
        let body = json!({ "role": role }).to_string();
        let answer = rig.post("/api/v1/cluster/keys", body).await;
        keys.push(format!("Bearer {}", answer.json()["key"].as_str().unwrap()));
    }
    for (method, pattern) in operations(&api) {
        let security = operation(&api, &method, &pattern)["security"].as_array().unwrap();
        let needed = security.first().map(|need| need["key"][0].as_str().unwrap().to_owned());
        let needed = needed.map(|role| ROLES.iter().position(|known| *known == role).unwrap());
        let ask = || request(&method, &filled(&pattern));
        for (rank, key) in keys.iter().enumerate() {
            let ask = ask().header("authorization", key).body(Body::empty()).unwrap();
            let refused = rig.send(ask).await.status() == 403;
            assert_eq!(refused, needed.is_some_and(|needed| rank < needed), "{method} {pattern}");
        }
        let refused = rig.without_key_sent(ask().body(Body::empty()).unwrap()).await.status();
        assert_eq!(refused == 401, needed.is_some(), "{method} {pattern}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_whole() {
    let rig = Rig::start().await;
    let api = description(&rig).await;
    assert_eq!(api["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (method, pattern) in operations(&api) {
        let place = format!("{method} {pattern}");
        let operation = operation(&api, &method, &pattern);
        assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 7), "{place}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{place}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path");
        for parameter in in_path.clone() {
            let name = format!("{{{}}}", parameter["name"].as_str().unwrap());
            assert!(pattern.contains(&name), "{place}: {name}");
            assert_ne!(parameter["description"], "", "{place}: {name}");
        }
        assert_eq!(in_path.count(), pattern.matches('{').count(), "{place}");
        let answers = operation["responses"].as_object().unwrap();
        assert!(answers.keys().any(|status| status.starts_with('2')), "{place}");
    }
    let without_key: Vec<String> = operations(&api)
        .into_iter()
        .filter(|(method, path)| operation(&api, method, path)["security"] == json!([]))
        .map(|(method, path)| format!("{method} {path}"))
        .collect();
    let expected = [
        "GET /",
        "GET /dashboard/{file}",
        "GET /docs",
        "GET /docs/page.css",
        "GET /docs/page.js",
        "GET /healthz",
        "GET /openapi.json",
        "GET /readyz",
        "GET /v2/health/live",
        "GET /v2/health/ready",
        "POST /api/v1/cluster/session",
    ];
    assert_eq!(without_key, expected);
    for (pattern, required) in [("tasks", true), ("models/{model}", true), ("restart", false)] {
        let body = &operation(&api, "POST", &format!("/api/v1/cluster/{pattern}"))["requestBody"];
        assert_eq!(body["required"], required, "{pattern}");
    }
    let text = api.to_string();
    for (at, _) in text.match_indices("#/components/") {
        let reference = text[at + 1..].split('"').next().unwrap();
        assert!(api.pointer(reference).is_some(), "{reference} leads nowhere");
    }
    for kind in ["schemas", "responses"] {
        for name in api["components"][kind].as_object().unwrap().keys() {
            let used = text.contains(&format!("\"#/components/{kind}/{name}\""));
            // Some families do not use every status.
            assert!(used || kind == "responses", "nothing uses {name}");
        }
    }
}

/// A driver without processes, which claims to have done everything.
#[derive(Default)]
pub(crate) struct Willing;

impl Driver for Willing {
    fn scale(&self, _: usize) -> BoxFuture<'_, Result<usize, DriverError>> {
        Box::pin(async { Ok(1) })
    }

    fn restart(&self, _: Duration) -> BoxFuture<'_, Result<Restarted, DriverError>> {
        Box::pin(async { Ok(Restarted { workers: 1, ended: Vec::new() }) })
    }

    fn workers(&self) -> usize {
        1
    }

    fn stop(&self, _: bool) {}

    fn plan(&self, _: PathBuf) -> BoxFuture<'_, Result<Value, DriverError>> {
        let sizes = json!({ "peak_bytes": 9, "weights_bytes": 1, "arena_bytes": 4, "steps": 1 });
        let placed =
            json!([{ "name": "a", "op": "Relu", "bytes": 4, "offset": 0, "first": 0, "last": 0 }]);
        let mut planned = sizes;
        planned["placed"] = placed;
        Box::pin(async { Ok(planned) })
    }
}

/// A client that calls the API as described, and checks the answers against the description.
struct Client {
    rig: Rig,
    api: Value,
    left: Operations,
}

impl Client {
    async fn new() -> Self {
        let driver = Some(Arc::new(Willing) as Arc<dyn Driver>);
        let rig = Rig::with(Options { journal: true, driver, ..Options::default() }).await;
        let api = description(&rig).await;
        let left = operations(&api);
        Self { rig, api, left }
    }

    /// Sends the example of a route, with values for its path parameters, and returns the answer.
    async fn ask(&mut self, method: &str, pattern: &str, values: &[&str]) -> Value {
        let mut path = pattern.to_owned();
        for value in values {
            let (start, end) = (path.find('{').unwrap(), path.find('}').unwrap());
            path.replace_range(start..=end, value);
        }
        let operation = operation(&self.api, method, pattern);
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let body = match resolved(&self.api, schema)["examples"].get(0) {
            Some(example) => {
                assert_eq!(differs(&self.api, schema, example, "example"), None, "{pattern}");
                Body::from(example.to_string())
            }
            None if method == "POST" && pattern.ends_with("/models/{model}") => onnx().into(),
            None => Body::empty(),
        };
        let answer = self.rig.call(request(method, &path).body(body).unwrap()).await;
        self.check(method, pattern, &answer);
        self.left.remove(&(method.to_owned(), pattern.to_owned()));
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    fn check(&self, method: &str, pattern: &str, answer: &Answer) {
        let place = format!("{method} {pattern}: {} {}", answer.status, answer.text());
        assert!(answer.status.is_success(), "{place}");
        let answers = &operation(&self.api, method, pattern)["responses"];
        let content = &answers[answer.status.as_str()]["content"];
        let kind = answer.headers["content-type"].to_str().unwrap();
        let Value::Object(_) = &content[kind] else { panic!("{kind} is not described: {place}") };
        if kind == "application/json" {
            let schema = &content[kind]["schema"];
            assert_eq!(differs(&self.api, schema, &answer.json(), "answer"), None, "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_taken_and_answers_have_the_shape_that_is_described() {
    let mut client = Client::new().await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let api = "/api/v1/cluster";
    for prefix in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        let values = if prefix.ends_with("{version}") { &["relu", "1"][..] } else { &["relu"] };
        client.ask("POST", &format!("{prefix}/infer"), values).await;
        for rest in ["", "/ready", "/config", "/stats"] {
            client.ask("GET", &format!("{prefix}{rest}"), values).await;
        }
    }
    for (method, pattern) in [
        ("POST", "/restart"),
        ("POST", "/scale"),
        ("PUT", "/config/balancing"),
        ("POST", "/coordinator/start"),
        ("POST", "/journal/backup"),
        ("POST", "/journal/compact"),
        ("POST", "/revocations"),
        ("POST", "/tasks/batch"),
        ("POST", "/coordinator/stop"),
    ] {
        client.ask(method, &format!("{api}{pattern}"), &[]).await;
    }
    let code = text(&client.ask("POST", &format!("{api}/sign-ins"), &[]).await["code"]);
    let session = format!("{api}/session");
    let answer = client.rig.post(&session, json!({ "code": code }).to_string()).await;
    client.check("POST", &session, &answer);
    client.left.remove(&("POST".to_owned(), session.clone()));
    client.ask("DELETE", &session, &[]).await;
    client.ask("GET", "/dashboard/{file}", &["app.js"]).await;
    for kind in ["keys", "tokens"] {
        let id = text(&client.ask("POST", &format!("{api}/{kind}"), &[]).await["id"]);
        client.ask("GET", &format!("{api}/{kind}"), &[]).await;
        client.ask("DELETE", &format!("{api}/{kind}/{{id}}"), &[&id]).await;
    }
    let task = text(&client.ask("POST", &format!("{api}/tasks"), &[]).await["task_id"]);
    client.rig.get(&format!("{api}/tasks/{task}?wait_ms=60000")).await;
    for (method, rest) in [("GET", ""), ("GET", "/why"), ("DELETE", ""), ("DELETE", "/result")] {
        client.ask(method, &format!("{api}/tasks/{{id}}{rest}"), &[&task]).await;
    }
    for (method, rest) in [
        ("POST", ""),
        ("POST", "/profile"),
        ("GET", "/plan"),
        ("PUT", "/deployment"),
        ("PATCH", "/deployment"),
        ("POST", "/unload"),
        ("POST", "/load"),
        ("GET", ""),
    ] {
        client.ask(method, &format!("{api}/models/{{model}}{rest}"), &["mine"]).await;
    }
    let inner = [("POST", "/profile"), ("GET", "/plan"), ("POST", "/unload"), ("POST", "/load")];
    for (method, rest) in inner.into_iter().chain([("GET", "")]) {
        let path = format!("{api}/models/{{model}}/versions/{{version}}{rest}");
        client.ask(method, &path, &["mine", "1"]).await;
    }
    for (method, rest) in [("PUT", "/{alias}"), ("GET", ""), ("DELETE", "/{alias}")] {
        let values = if rest.is_empty() { &[][..] } else { &["prod"] };
        client.ask(method, &format!("{api}/aliases{rest}"), values).await;
    }
    for order in ["unload", "load"] {
        client.ask("POST", &format!("/v2/repository/models/{{model}}/{order}"), &["mine"]).await;
    }
    client.ask("POST", "/v2/repository/index", &[]).await;
    for kind in ["systemsharedmemory", "cudasharedmemory"] {
        client.ask("POST", &format!("/v2/{kind}/unregister"), &[]).await;
    }
    let region = "/v2/systemsharedmemory/region/{region}";
    client.ask("POST", &format!("{region}/unregister"), &["none"]).await;
    for (method, rest) in [("GET", ""), ("GET", "/metrics"), ("POST", "/enable")] {
        client.ask(method, &format!("{api}/workers/{{id}}{rest}"), &["w1"]).await;
    }
    // The other routes without parameters; a stream would not end.
    let plain = |(method, pattern): &(String, String)| {
        method == "GET" && !pattern.contains('{') && !pattern.ends_with("/events")
    };
    for (method, pattern) in client.left.clone().iter().filter(|left| plain(left)) {
        client.ask(method, pattern, &[]).await;
    }
    let version = format!("{api}/models/{{model}}/versions/{{version}}");
    client.ask("DELETE", &version, &["mine", "1"]).await;
    client.ask("POST", &format!("{api}/models/{{model}}"), &["mine"]).await;
    client.ask("DELETE", &format!("{api}/models/{{model}}"), &["mine"]).await;
    client.ask("POST", &format!("{api}/workers/{{id}}/drain"), &["w1"]).await;
    // Without a worker, a task waits and can be cancelled.
    let task = text(&client.ask("POST", &format!("{api}/tasks"), &[]).await["task_id"]);
    client.ask("DELETE", &format!("{api}/tasks/{{id}}"), &[&task]).await;
    client.ask("POST", &format!("{api}/tasks/{{id}}/retry"), &[&task]).await;
    let mut other = Client::new().await;
    other.ask("POST", &format!("{api}/workers/{{id}}/shutdown"), &["w1"]).await;
    let left: Operations = client.left.intersection(&other.left).cloned().collect();
    let others = [
        ("GET", format!("{api}/events")),
        // Only a program on this machine may register a region.
        ("GET", format!("{region}/status")),
        ("POST", format!("{region}/register")),
    ];
    assert_eq!(left, others.map(|(method, path)| (method.to_owned(), path)).into(), "not asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_the_shape_that_is_described() {
    let rig = Rig::start().await;
    let api = description(&rig).await;
    for (method, pattern, expected) in [
        ("GET", "/api/v1/cluster/workers/{id}", 404),
        ("GET", "/api/v1/cluster/tasks/{id}", 404),
        ("POST", "/api/v1/cluster/tasks", 400),
        ("POST", "/api/v1/cluster/scale", 400),
        ("GET", "/api/v1/cluster/journal", 501),
        ("GET", "/v2/models/{model}", 404),
        ("POST", "/v2/models/{model}/infer", 404),
    ] {
        let ask = request(method, &filled(pattern)).body(Body::empty()).unwrap();
        let answer = rig.call(ask).await;
        let place = format!("{method} {pattern}: {}", answer.text());
        assert_eq!(answer.status.as_u16(), expected, "{place}");
        let answers = &operation(&api, method, pattern)["responses"];
        let described = resolved(&api, &answers[answer.status.as_str()]);
        let schema = &described["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{place}");
        assert_eq!(differs(&api, schema, &answer.json(), "answer"), None, "{place}");
    }
}
