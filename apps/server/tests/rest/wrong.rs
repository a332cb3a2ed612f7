//! Each field of each request, made wrong once: over REST by the API description, over gRPC by hand.

mod cases;
mod grpc;

use crate::openapi::{Willing, description, operation, operations};
use crate::rig::{Options, Rig, listen};
use crate::schema::{contradicts, differs, resolved};
use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use cases::{Case, Expected};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use lgp_server::ServerConfig;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Longest refusal in bytes.
const REFUSAL_BYTES_MAX: usize = 4096;

/// A client with a single connection.
struct Client {
    connection: SendRequest<Full<Bytes>>,
    bearer: String,
}

impl Client {
    async fn connect(addr: SocketAddr, bearer: &str) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (connection, driver) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        Self { connection, bearer: bearer.to_owned() }
    }

    /// The status of an answer, and its JSON, which tensors may follow.
    async fn ask(&mut self, method: &str, path: &str, body: Vec<u8>) -> (StatusCode, Bytes) {
        self.connection.ready().await.expect("the connection is kept");
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("authorization", &self.bearer);
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let answer = self.connection.send_request(request).await.expect("an answer");
        let status = answer.status();
        let json_bytes = answer.headers().get("inference-header-content-length").cloned();
        let mut body = answer.into_body().collect().await.unwrap().to_bytes();
        if let Some(length) = json_bytes {
            body.truncate(length.to_str().unwrap().parse().unwrap());
        }
        (status, body)
    }

    async fn get(&mut self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, Vec::new()).await;
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice(&body).unwrap()
    }

    /// The state that requests may change.
    async fn everything(&mut self) -> Value {
        let api = "/api/v1/cluster";
        let mut all = json!({});
        for name in ["models", "aliases", "keys", "tokens", "revocations", "config"] {
            all[name] = self.get(&format!("{api}/{name}")).await;
        }
        for token in all["tokens"].as_array_mut().unwrap() {
            token.as_object_mut().unwrap().remove("expires_in_s");
        }
        all["tasks"] = self.get(&format!("{api}/stats")).await["tasks"].clone();
        all["regions"] = self.get("/v2/systemsharedmemory/status").await;
        all
    }

    /// The same state without parts that still change after an order was answered.
    async fn settled(&mut self) -> Value {
        let mut all = self.everything().await;
        all["tasks"] = all["tasks"]["submitted"].take();
        for model in all["models"].as_array_mut().unwrap() {
            for key in ["state", "reason", "workers"] {
                model.as_object_mut().unwrap().remove(key);
            }
        }
        all
    }
}

/// A route's path with parameters. No other test depends on what the requests change.
fn filled(pattern: &str) -> String {
    let model = match pattern {
        _ if pattern.ends_with("/infer") => "relu",
        _ if pattern.ends_with("/deployment") => "fails",
        _ => "gated",
    };
    let filled = pattern.replace("{model}", model).replace("{version}", "1");
    filled.replace("{alias}", "prod").replace("{id}", "none").replace("{region}", "r")
}

struct Rounds {
    api: Value,
    client: Client,
    /// Everything that went wrong.
    wrong: Vec<String>,
}

impl Rounds {
    /// Sends a case; returns whether it was accepted.
    async fn one(&mut self, (method, pattern): &(String, String), case: &Case) -> bool {
        let (status, body) = self.client.ask(method, &filled(pattern), case.body.clone()).await;
        let text = String::from_utf8_lossy(&body);
        let described = &operation(&self.api, method, pattern)["responses"][status.as_str()];
        let schema = &resolved(&self.api, described)["content"]["application/json"]["schema"];
        let why = if schema.is_null() {
            Some("a status that is not described".to_owned())
        } else if let Some(why) = differs(&self.api, schema, &json_of(&body), "answer") {
            Some(why)
        } else if status.is_success() {
            let is_allowed = matches!(case.expected, Expected::Allowed);
            (!is_allowed).then(|| "taken, and it is not allowed".to_owned())
        } else if text.contains("expected struct") {
            Some("a refusal with a name of the program's own".to_owned())
        } else if body.len() > REFUSAL_BYTES_MAX {
            Some(format!("{} bytes of refusal", body.len()))
        } else if status.is_server_error() && ![501, 503, 507].contains(&status.as_u16()) {
            Some("a fault of the server".to_owned())
        } else {
            match &case.expected {
                Expected::RefusedFor(name) if !text.contains(name.as_str()) => {
                    Some(format!("not a word of {name}"))
                }
                _ => None,
            }
        };
        if let Some(why) = why {
            let text: String = text.chars().take(300).collect();
            self.wrong.push(format!("{method} {pattern}: {}: {why}: {status} {text}", case.about));
        }
        status.is_success()
    }
}

fn json_of(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_each_body_is_wrong_once() {
    let driver = Some(Arc::new(Willing) as Arc<dyn lgp_server::Driver>);
    let rig = Rig::with(Options { driver, ..Options::default() }).await;
    let api = description(&rig).await;
    let client = Client::connect(listen(&rig).await, &rig.bearer).await;
    let mut rounds = Rounds { api: api.clone(), client, wrong: Vec::new() };
    let mut routes = Vec::new();
    for (method, pattern) in operations(&api) {
        let content = &operation(&api, &method, &pattern)["requestBody"]["content"];
        if content.is_null() {
            continue;
        }
        let schema = &content["application/json"]["schema"];
        let cases = if schema.is_null() { Vec::new() } else { cases::all(&api, schema) };
        // An upload has no JSON; other tests cover its errors.
        assert_eq!(cases.is_empty(), pattern.ends_with("/models/{model}"), "{method} {pattern}");
        routes.push(((method, pattern), cases));
    }
    assert!(routes.len() >= 20, "{}", routes.len());
    let mut before = rounds.client.everything().await;
    let is_allowed = |case: &&Case| matches!(case.expected, Expected::Allowed);
    for (route, cases) in &routes {
        for case in cases.iter().filter(|case| !is_allowed(case)) {
            rounds.one(route, case).await;
        }
        let after = rounds.client.everything().await;
        if before != after {
            rounds.wrong.push(format!("{route:?} changed something"));
            before = after;
        }
    }
    // Cases that may be accepted may also be refused.
    let mut before = rounds.client.settled().await;
    for (route, cases) in &routes {
        for case in cases.iter().filter(is_allowed) {
            let is_taken = rounds.one(route, case).await;
            let after = rounds.client.settled().await;
            if !is_taken && before != after {
                rounds.wrong.push(format!("{route:?} {} changed something", case.about));
            }
            before = after;
        }
    }
    assert!(rounds.wrong.is_empty(), "{} of them: {:#?}", rounds.wrong.len(), rounds.wrong);
    let example = &resolved(&api, &api["components"]["schemas"]["InferRequest"])["examples"][0];
    let infer = "/v2/models/relu/infer";
    let (status, _) = rounds.client.ask("POST", infer, example.to_string().into()).await;
    assert_eq!(status, 200, "it serves on");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_limit_are_refused_by_each_route() {
    let server = ServerConfig { body_bytes_max: 10_000, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let api = description(&rig).await;
    let mut tried = 0;
    for (method, pattern) in operations(&api) {
        let content = &operation(&api, &method, &pattern)["requestBody"]["content"];
        let Some(json) = content.get("application/json") else { continue };
        let example = &resolved(&api, &json["schema"])["examples"][0];
        let body = example.to_string() + &" ".repeat(10_000);
        let mut client = Client::connect(listen(&rig).await, &rig.bearer).await;
        let (status, answer) = client.ask(&method, &filled(&pattern), body.into()).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(
            status == 413 && text.contains("10000 bytes"),
            "{method} {pattern}: {status} {text}"
        );
        tried += 1;
    }
    assert!(tried >= 20, "{tried}");
}

#[test]
fn cases_are_wrong_where_they_are_said_to_be() {
    let schema = json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": { "type": "integer", "minimum": 0 },
            "b": { "type": "array", "items": { "type": "string" } },
        },
        "additionalProperties": false,
        "examples": [{ "a": 1 }],
    });
    let found = cases::all(&Value::Null, &schema);
    for (about, names) in [
        ("/a = true", Some("a")),
        ("/a = -1", Some("a")),
        ("/a is not there", Some("a")),
        ("/a twice", Some("a")),
        ("/b = {}", Some("b")),
        ("/b/0 = 1.5", Some("b")),
        ("/nobodys", Some("nobodys")),
        ("/b = []", None),
        ("/b is not there", None),
    ] {
        let case = found.iter().find(|case| case.about == about).expect(about);
        let refused = match &case.expected {
            Expected::RefusedFor(name) => Some(name.as_str()),
            _ => None,
        };
        assert_eq!(refused, names, "{about}");
        let taken = contradicts(&Value::Null, &schema, &json_of(&case.body)).is_none();
        assert!(names.is_some() || taken, "{about}");
    }
}
