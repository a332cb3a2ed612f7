//! Access control: keys, roles, limits, and the audit log.

use crate::grpc::{client, request as message};
use crate::rig::{Answer, Options, Rig, ask_with, listen, onnx, request};
use axum::body::Body;
use lgp_server::ServerConfig;
use lgp_server::inference::RepositoryModelLoadRequest;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
const TASK: &str =
    r#"{"model":"relu","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

/// Routes that need a key, by the role that they need.
const SUBMIT: [(&str, &str); 18] = [
    ("GET", "/metrics"),
    ("GET", "/api/v1/cluster/stats"),
    ("GET", "/api/v1/cluster/config"),
    ("GET", "/api/v1/cluster/workers"),
    ("GET", "/api/v1/cluster/workers/w1"),
    ("GET", "/api/v1/cluster/workers/w1/metrics"),
    ("GET", "/api/v1/cluster/models"),
    ("GET", "/api/v1/cluster/models/relu"),
    ("GET", "/api/v1/cluster/tasks"),
    ("POST", "/api/v1/cluster/tasks"),
    ("POST", "/api/v1/cluster/tasks/batch"),
    ("GET", "/api/v1/cluster/tasks/1-1"),
    ("DELETE", "/api/v1/cluster/tasks/1-1"),
    ("DELETE", "/api/v1/cluster/tasks/1-1/result"),
    ("GET", "/api/v1/cluster/tasks/1-1/why"),
    ("POST", "/api/v1/cluster/coordinator/start"),
    ("HEAD", "/api/v1/cluster/stats"),
    ("HEAD", "/metrics"),
];
const ADMIN: [(&str, &str); 27] = [
    ("POST", "/api/v1/cluster/coordinator/stop"),
    ("GET", "/api/v1/cluster/journal"),
    ("POST", "/api/v1/cluster/journal/backup"),
    ("POST", "/api/v1/cluster/journal/compact"),
    ("POST", "/api/v1/cluster/restart"),
    ("POST", "/api/v1/cluster/scale"),
    ("PUT", "/api/v1/cluster/config/balancing"),
    ("POST", "/api/v1/cluster/workers/nobody/shutdown"),
    ("POST", "/api/v1/cluster/workers/nobody/drain"),
    ("POST", "/api/v1/cluster/workers/nobody/enable"),
    ("GET", "/api/v1/cluster/keys"),
    ("POST", "/api/v1/cluster/keys"),
    ("DELETE", "/api/v1/cluster/keys/none"),
    ("GET", "/api/v1/cluster/tokens"),
    ("POST", "/api/v1/cluster/tokens"),
    ("DELETE", "/api/v1/cluster/tokens/none"),
    ("GET", "/api/v1/cluster/revocations"),
    ("POST", "/api/v1/cluster/revocations"),
    ("POST", "/api/v1/cluster/models/none"),
    ("DELETE", "/api/v1/cluster/models/none"),
    ("POST", "/api/v1/cluster/models/none/load"),
    ("POST", "/api/v1/cluster/models/none/unload"),
    ("PUT", "/api/v1/cluster/models/none/deployment"),
    ("PATCH", "/api/v1/cluster/models/none/deployment"),
    ("POST", "/v2/repository/models/none/load"),
    ("POST", "/v2/repository/models/none/unload"),
    ("HEAD", "/api/v1/cluster/tokens"),
];

/// Status and text of a request over its own connection, with or without a key.
async fn ask(addr: SocketAddr, (method, path): (&str, &str), key: Option<&str>) -> (u16, String) {
    let body = match (method, path) {
        ("POST", path) if path.ends_with("/infer") => INFER,
        ("POST", path) if path.ends_with("/tasks") => TASK,
        _ => "",
    };
    ask_with(addr, (method, path), key, body).await
}

async fn create(rig: &Rig, body: Value) -> (String, String) {
    let answer = rig.post("/api/v1/cluster/keys", body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let made = answer.json();
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    (text("id"), text("key"))
}

async fn with(rig: &Rig, key: &str, (method, path): (&str, &str), body: &str) -> Answer {
    let request = request(method, path).header("authorization", format!("Bearer {key}"));
    rig.call(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_the_machine_may_infer_and_nothing_else() {
    let rig = Rig::start().await;
    let addr = listen(&rig).await;
    for open in [
        ("GET", "/v2"),
        ("GET", "/v2/health/live"),
        ("GET", "/v2/health/ready"),
        ("GET", "/v2/models/relu"),
        ("GET", "/v2/models/relu/stats"),
        ("POST", "/v2/models/relu/infer"),
        ("POST", "/v2/repository/index"),
        ("GET", "/api/v1/cluster/health"),
    ] {
        assert_eq!(ask(addr, open, None).await.0, 200, "{open:?}");
    }
    for closed in SUBMIT.into_iter().chain(ADMIN) {
        let (status, answer) = ask(addr, closed, None).await;
        assert_eq!(status, 401, "{closed:?}: {answer}");
        let head = answer.to_ascii_lowercase();
        assert!(head.contains("\r\nwww-authenticate: bearer\r\n"), "{answer}");
    }
    assert_eq!(ask(addr, ("GET", "/api/v1/cluster/made-up"), None).await.0, 404);
    // Only callers with a right to the path learn that the method is wrong.
    for (wrong, status) in [
        (("GET", "/v2/models/relu/infer"), 405),
        (("DELETE", "/v2"), 405),
        (("PUT", "/api/v1/cluster/tasks"), 401),
        (("PUT", "/api/v1/cluster/keys"), 401),
        (("GET", "/v2/repository/models/relu/load"), 401),
    ] {
        assert_eq!(ask(addr, wrong, None).await.0, status, "{wrong:?}");
    }
    // A wrong key is an error even where none is needed, so that its owner notices.
    let (status, answer) = ask(addr, ("GET", "/v2"), Some("lgp_wrong_00")).await;
    assert_eq!((status, answer.contains("unknown, expired or revoked")), (401, true), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_server_tells_strangers_only_whether_it_lives() {
    let server = ServerConfig { open: false, ..Default::default() };
    let rig = Rig::with(Options { server, ..Default::default() }).await;
    let addr = listen(&rig).await;
    for probe in ["/v2/health/live", "/v2/health/ready"] {
        assert_eq!(ask(addr, ("GET", probe), None).await.0, 200, "{probe}");
    }
    for closed in [("GET", "/v2"), ("POST", "/v2/models/relu/infer"), ("GET", "/v2/models/relu")] {
        assert_eq!(ask(addr, closed, None).await.0, 401, "{closed:?}");
    }
    let (_, key) = create(&rig, json!({ "role": "infer" })).await;
    assert_eq!(ask(addr, ("POST", "/v2/models/relu/infer"), Some(&key)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_reaches_as_far_as_it_says() {
    let rig = Rig::start().await;
    let mut keys = Vec::new();
    for role in ["infer", "submit", "admin"] {
        keys.push(create(&rig, json!({ "role": role })).await.1);
    }
    let forbidden = [403, 403, 403];
    for (routes, expected) in [
        (&SUBMIT[..], [403, 0, 0]),
        (&ADMIN[..], [403, 403, 0]),
        (&[("POST", "/v2/models/relu/infer")][..], [0; 3]),
    ] {
        // The last of these routes would stop the cluster.
        for route in routes.iter().filter(|(_, path)| !path.ends_with("/stop")) {
            for (key, expected) in keys.iter().zip(expected) {
                let body = if route.1.ends_with("/infer") { INFER } else { "" };
                let status = with(&rig, key, *route, body).await.status.as_u16();
                assert_eq!(forbidden.contains(&status), expected == 403, "{route:?}: {status}");
                assert_ne!(status, 401, "{route:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_or_expired_key_is_refused_at_once() {
    let rig = Rig::start().await;
    let (id, key) = create(&rig, json!({ "role": "infer", "note": "camera" })).await;
    assert_eq!(with(&rig, &key, ("GET", "/v2"), "").await.status, 200);
    let listed = rig.get("/api/v1/cluster/keys").await;
    assert!(!listed.text().contains(&key) && listed.json()[0]["note"] == "camera");
    assert_eq!(rig.delete(&format!("/api/v1/cluster/keys/{id}")).await.status, 200);
    assert_eq!(with(&rig, &key, ("GET", "/v2"), "").await.status, 401);
    assert_eq!(rig.delete(&format!("/api/v1/cluster/keys/{id}")).await.status, 404);

    let (_, brief) = create(&rig, json!({ "role": "infer", "ttl_s": 1 })).await;
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    assert_eq!(with(&rig, &brief, ("GET", "/v2"), "").await.status, 401);
    let listed = rig.get("/api/v1/cluster/keys").await.json();
    let times = ["created_s", "expires_s"].map(|name| listed[0][name].as_u64().expect("a time"));
    assert_eq!(times[1] - times[0], 1, "{listed}");
    for wrong in [
        json!({}),
        json!({ "role": "root" }),
        json!({ "role": "infer", "ttl_s": 0 }),
        json!({ "role": "infer", "models": [] }),
        json!({ "role": "infer", "rate_per_s": -1 }),
        json!({ "role": "infer", "unknown": 1 }),
    ] {
        let answer = rig.post("/api/v1/cluster/keys", wrong.to_string()).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_one_model_sees_and_uses_no_other() {
    let rig = Rig::start().await;
    let (_, key) = create(&rig, json!({ "role": "submit", "models": ["relu"] })).await;
    for (route, body, expected) in [
        (("POST", "/v2/models/relu/infer"), INFER, 200),
        (("POST", "/v2/models/gated/infer"), INFER, 403),
        (("GET", "/v2/models/gated"), "", 403),
        (("GET", "/v2/models/gated/versions/1/config"), "", 403),
        (("GET", "/v2/models/%67ated"), "", 403),
        (("GET", "/api/v1/cluster/models/gated"), "", 403),
        (("POST", "/api/v1/cluster/tasks"), TASK, 202),
    ] {
        assert_eq!(with(&rig, &key, route, body).await.status, expected, "{route:?}");
    }
    let other = TASK.replace("relu", "gated");
    let batch = format!("{{\"tasks\":[{TASK},{other}]}}");
    for (path, body) in [("tasks", &other), ("tasks/batch", &batch)] {
        let path = format!("/api/v1/cluster/{path}");
        assert_eq!(with(&rig, &key, ("POST", &path), body).await.status, 403, "{path}");
    }
    for (method, path, names) in [
        ("POST", "/v2/repository/index", "/0/name"),
        ("GET", "/api/v1/cluster/models", "/0/name"),
        ("GET", "/v2/models/stats", "/model_stats/0/name"),
    ] {
        let answer = with(&rig, &key, (method, path), "").await.json();
        assert_eq!(answer.pointer(names), Some(&json!("relu")), "{answer}");
        assert!(!answer.to_string().contains("gated"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_one_model_reaches_no_task_of_another() {
    let rig = Rig::start().await;
    rig.gate.open();
    let tasks = "/api/v1/cluster/tasks";
    let alias = json!({"targets": [{"model": "relu", "weight": 1}]}).to_string();
    let put = request("PUT", "/api/v1/cluster/aliases/prod").body(Body::from(alias));
    assert_eq!(rig.call(put.unwrap()).await.status, 200);
    let (_, relu) = create(&rig, json!({ "role": "submit", "models": ["relu"] })).await;
    let (_, prod) = create(&rig, json!({ "role": "submit", "models": ["prod"] })).await;
    let submit = async |key: &str, model: &str| {
        let body = TASK.replace("relu", model);
        let answer = with(&rig, key, ("POST", tasks), &body).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["task_id"].as_str().unwrap().to_owned()
    };
    let owner = rig.bearer.trim_start_matches("Bearer ").to_owned();
    let (own, other) = (submit(&relu, "relu").await, submit(&owner, "gated").await);
    let through = submit(&prod, "prod").await;
    for id in [&own, &other, &through] {
        let ended = |answer: &Answer| answer.json()["state"] == "succeeded";
        rig.until(&format!("{tasks}/{id}"), ended).await;
    }
    let from = |model: &str, id: &str| {
        let from = json!({"task": id, "output": "y"});
        json!({"model": model, "inputs": [{"name": "x", "from": from}]}).to_string()
    };
    for (key, model) in [(&relu, "relu"), (&prod, "prod")] {
        for (method, end) in [
            ("GET", ""),
            ("GET", "?wait_ms=9"),
            ("GET", "/why"),
            ("DELETE", ""),
            ("DELETE", "/result"),
        ] {
            let path = format!("{tasks}/{other}{end}");
            let answer = with(&rig, key, (method, &path), "").await;
            assert_eq!(answer.status, 403, "{method} {path}: {}", answer.text());
            assert!(answer.text().contains("of model 'gated'"), "{}", answer.text());
        }
        let answer = with(&rig, key, ("POST", tasks), &from(model, &other)).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        let batch = format!("{{\"tasks\":[{},{}]}}", from(model, &own), from(model, &other));
        let answer = with(&rig, key, ("POST", &format!("{tasks}/batch")), &batch).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(answer.text().contains("task 1 of the batch: input 'x'"), "{}", answer.text());
        // A key sees its own tasks, including those that ran through an alias.
        for id in [&own, &through] {
            assert_eq!(with(&rig, key, ("GET", &format!("{tasks}/{id}")), "").await.status, 200);
            assert_eq!(with(&rig, key, ("POST", tasks), &from(model, id)).await.status, 202);
        }
        let listed = with(&rig, key, ("GET", tasks), "").await.json();
        let all = listed.as_array().unwrap();
        assert!(!all.is_empty() && all.iter().all(|task| task["model"] == "relu/1"), "{listed}");
    }
    // Pages with others' tasks have fewer entries, but still link to the next page.
    submit(&owner, "gated").await;
    let page = with(&rig, &relu, ("GET", &format!("{tasks}?limit=1")), "").await;
    assert_eq!((page.json(), page.headers.contains_key("link")), (json!([]), true));
    assert_eq!(rig.get(&format!("{tasks}/{other}")).await.status, 200);
    assert_eq!(with(&rig, &relu, ("GET", &format!("{tasks}/1-999")), "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_held_to_its_rate_and_its_places() {
    let rig = Rig::start().await;
    let (_, slow) = create(&rig, json!({ "role": "infer", "rate_per_s": 2 })).await;
    let mut refused = Vec::new();
    for _ in 0..8 {
        let answer = with(&rig, &slow, ("GET", "/v2"), "").await;
        if answer.status == 429 {
            assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
            refused.push(answer);
        }
    }
    assert!((4..=6).contains(&refused.len()), "{} of 8 at two a second", refused.len());

    let (_, narrow) = create(&rig, json!({ "role": "infer", "concurrent_max": 1 })).await;
    let infer = request("POST", "/v2/models/gated/infer")
        .header("authorization", format!("Bearer {narrow}"))
        .body(Body::from(INFER));
    let held = tokio::spawn(rig.send(infer.unwrap()));
    rig.until("/api/v1/cluster/stats", |a| a.json()["tasks"]["submitted"] == 1).await;
    assert_eq!(with(&rig, &narrow, ("GET", "/v2"), "").await.status, 429);
    assert_eq!(rig.get("/v2").await.status, 200, "others do not notice");
    rig.gate.open();
    assert_eq!(held.await.unwrap().status(), 200);
    assert_eq!(with(&rig, &narrow, ("GET", "/v2"), "").await.status, 200);
}

/// A sign-in has the id, rights and limits of the key that asked for the link, and ends with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_exchanged_once_for_what_stands_for_its_makers_key() {
    let rig = Rig::start().await;
    let body = json!({ "role": "submit", "models": ["relu"], "concurrent_max": 7 });
    let (id, key) = create(&rig, body).await;
    let (links, session) = ("/api/v1/cluster/sign-ins", "/api/v1/cluster/session");
    for (page, link) in [
        ("https://gpu.example:8000/x/", Some("https://gpu.example:8000/x/#link=lgp")),
        ("ftp://gpu.example/", None),
        ("javascript:alert(1)", None),
        ("http://h/?a=b", None),
        ("http://h/#a", None),
    ] {
        let made = rig.post(links, json!({ "page": page }).to_string()).await;
        assert_eq!(made.status.as_u16(), if link.is_some() { 201 } else { 400 }, "{page}");
        let whole = made.json()["link"].as_str().map(str::to_owned);
        assert!(link.is_none_or(|link| whole.is_some_and(|it| it.starts_with(link))), "{page}");
    }
    let made = with(&rig, &key, ("POST", links), "").await;
    assert_eq!(made.status, 201, "{}", made.text());
    let code = json!({ "code": made.json()["code"] }).to_string();
    let given = rig.post(session, code.clone()).await;
    assert_eq!(given.status, 201, "{}", given.text());
    assert_eq!(rig.post(session, code).await.status, 401, "once");
    assert_eq!(rig.post(session, r#"{"code":"lgp_link_00"}"#).await.status, 401);
    let web = given.json()["key"].as_str().unwrap().to_owned();
    let who = with(&rig, &web, ("GET", session), "").await.json();
    assert_eq!(who, json!({ "id": id, "role": "submit", "models": ["relu"] }));
    assert_eq!(with(&rig, &web, ("GET", "/api/v1/cluster/keys"), "").await.status, 403);
    assert_eq!(with(&rig, &web, ("GET", "/v2/models/fails"), "").await.status, 403);
    // Signing out with the key itself ends nothing.
    assert_eq!(with(&rig, &key, ("DELETE", session), "").await.json()["ended"], false);
    assert_eq!(with(&rig, &web, ("GET", session), "").await.status, 200);
    assert_eq!(rig.delete(&format!("/api/v1/cluster/keys/{id}")).await.status, 200);
    assert_eq!(with(&rig, &web, ("GET", session), "").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_administrators_do_is_logged_and_so_are_refusals() {
    let rig = Rig::start().await;
    let log = rig.folder.path().join("audit.log");
    let before = std::fs::read_to_string(&log).unwrap().lines().count();
    assert_eq!(rig.post("/api/v1/cluster/models/mine", onnx()).await.status, 201);
    let (id, key) = create(&rig, json!({ "role": "infer" })).await;
    let made = std::fs::read_to_string(&log).unwrap();
    assert_eq!(with(&rig, &key, ("POST", "/api/v1/cluster/scale"), "{}").await.status, 403);
    assert_eq!(with(&rig, "lgp_x_y", ("GET", "/v2"), "").await.status, 401);
    assert_eq!(rig.get("/v2").await.status, 200);
    let text = std::fs::read_to_string(&log).unwrap();
    let refused = std::fs::read_to_string(log.with_file_name("audit.refused.log")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .skip(before)
        .chain(refused.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let calls: Vec<_> = lines
        .iter()
        .map(|l| (l["key"].as_str(), l["path"].as_str(), l["status"].as_u64()))
        .collect();
    assert_eq!(
        calls,
        [
            (Some("local"), Some("/api/v1/cluster/models/mine"), Some(201)),
            (Some("local"), Some("/api/v1/cluster/keys"), Some(201)),
            (Some(id.as_str()), Some("/api/v1/cluster/scale"), Some(403)),
            (Some("-"), Some("/v2"), Some(401)),
        ]
    );
    assert!(!text.contains(&key) && made.lines().count() == before + 2);
    assert_eq!(lines[1]["made"], json!({ "id": id, "role": "infer" }), "{text}");
    assert!(lines[2].get("made").is_none(), "{refused}");
    assert_eq!(made, text, "refusals have a file of their own");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_grpc_are_logged_as_they_ended() {
    let rig = Rig::start().await;
    let (id, key) = create(&rig, json!({ "role": "infer", "models": ["relu"] })).await;
    let log = rig.folder.path().join("audit.log");
    let before = std::fs::read_to_string(&log).unwrap().lines().count();
    let load = |name: &str| RepositoryModelLoadRequest {
        model_name: name.to_owned(),
        ..Default::default()
    };
    let mut owner = client(&rig, Some(&rig.bearer));
    owner.repository_model_load(load("relu")).await.unwrap();
    owner.repository_model_load(load("none")).await.unwrap_err();
    let mut limited = client(&rig, Some(&format!("Bearer {key}")));
    limited.model_infer(message("relu", [0.0; 2])).await.unwrap();
    limited.model_infer(message("gated", [0.0; 2])).await.unwrap_err();
    limited.repository_model_load(load("relu")).await.unwrap_err();
    let text = std::fs::read_to_string(&log).unwrap();
    let refused = std::fs::read_to_string(log.with_file_name("audit.refused.log")).unwrap();
    let lines = text.lines().skip(before).chain(refused.lines());
    let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    let calls: Vec<_> = lines
        .map(|line: Value| {
            let call = line["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            (line["key"].as_str().unwrap().to_owned(), call, line["status"].as_u64().unwrap())
        })
        .collect();
    let call = |key: &str, call: &str, status| (key.to_owned(), call.to_owned(), status);
    assert_eq!(
        calls,
        [
            call("local", "RepositoryModelLoad", 200),
            call("local", "RepositoryModelLoad", 404),
            call(&id, "ModelInfer", 403),
            call(&id, "RepositoryModelLoad", 403),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_are_not_understood_are_refused() {
    let rig = Rig::start().await;
    let good = rig.bearer.clone();
    for same in [good.replace("Bearer", "bearer"), format!("{good} ")] {
        let request = request("GET", "/api/v1/cluster/stats").header("authorization", same);
        assert_eq!(rig.call(request.body(Body::empty()).unwrap()).await.status, 200);
    }
    for values in [
        vec!["Basic dXNlcjpwYXNz".to_owned()],
        vec![good.clone(), good.clone()],
        vec![good.replace("Bearer ", "Bearer")],
        vec!["Bearer ".to_owned() + &"a".repeat(5_000)],
        vec![String::new()],
    ] {
        let mut request = request("GET", "/api/v1/cluster/stats");
        for value in &values {
            request = request.header("authorization", value);
        }
        let answer = rig.call(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 401, "{values:?}: {}", answer.text());
        assert!(!answer.text().contains(&good[20..]), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_administrator_began_is_done_though_nobody_waits() {
    let rig = Rig::start().await;
    let infer = request("POST", "/v2/models/gated/infer").body(Body::from(INFER));
    let held = tokio::spawn(rig.send(infer.unwrap()));
    rig.until("/api/v1/cluster/stats", |a| a.json()["tasks"]["running"] == 1).await;
    let unload = request("POST", "/api/v1/cluster/models/gated/unload");
    let call = rig.send(unload.body(Body::from(r#"{"timeout_s":60}"#)).unwrap());
    let left = tokio::time::timeout(Duration::from_millis(100), call).await;
    assert!(left.is_err(), "a run keeps it from its end");
    let log = rig.folder.path().join("audit.log");
    let is_written = || std::fs::read_to_string(&log).unwrap().contains("models/gated/unload");
    assert!(!is_written());
    rig.gate.open();
    assert_eq!(held.await.unwrap().status(), 200);
    let until = Instant::now() + Duration::from_secs(20);
    while !is_written() {
        assert!(Instant::now() < until, "the call is not in the log");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
