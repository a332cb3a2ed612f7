//! Ensemble files: unusable ones, their names, and changes of them.

use super::{
    INFER, LABELLER, MODELS, TASKS, check, classifier, jpeg, labeller, plain, post_binary, put,
};
use crate::rig::{Answer, Options, PATIENCE, Rig, onnx, request};
use axum::body::Body;
use lgp_server::ServerConfig;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

async fn reason(rig: &Rig, name: &str) -> (String, String) {
    let index = rig.post("/v2/repository/index", "").await.json();
    let mut rows = index.as_array().unwrap().iter();
    let row = rows.rfind(|row| row["name"] == name).unwrap_or_else(|| panic!("{name} in {index}"));
    let text = |key: &str| row[key].as_str().unwrap().to_owned();
    (text("state"), text("reason"))
}

/// A replacement in [`LABELLER`] (from, to), and the expected error.
const BROKEN: [(&str, &str, &str); 37] = [
    ("outputs = [", "outpts = [", "unknown field `outpts`"),
    ("datatype", "type", "unknown field `type`"),
    ("inputs = [{", "inputs = [[{", "line 3: "),
    ("\"BYTES\"", "\"PICTURE\"", "input 'image' has unknown datatype 'PICTURE'"),
    ("[-1]", "[-2]", "input 'image' has the shape [-2]"),
    (
        "\"decode\"",
        "\"develop\"",
        "step 1 (develop): use = \"develop\" is no step, expected one of decode",
    ),
    ("use = \"decode\"", "use = \"decode\"\nmodel = \"relu\"", "step 1: expected either use"),
    ("use = \"decode\"", "use = \"decode\"\nchannels = 1", "3 numbers as mean, expected 1 or 1"),
    ("use = \"decode\"", "use = \"decode\"\nchannels = 2", "channels is 2, expected 1, 3 or 4"),
    ("width = 4", "width = 4\ncrop = true", "step 2 (resize): unknown field `crop`"),
    ("width = 4", "width = 0", "width and height are 0 and 4"),
    ("width = 4", "", "missing field `width`"),
    ("width = 4", "width = 5", "it is FP32 [-1, 3, 4, 5], expected FP32 [-1, 3, 4, 4]"),
    ("mean = [0.5, 0.4, 0.3]", "mean = [0.5, 0.4]", "2 numbers as mean, expected 1 or 3"),
    ("std = [0.2, 0.25, 0.3]", "std = [0]", "std has a 0"),
    ("k = 3", "k = 0", "k is 0, expected 1 or more"),
    ("model = \"real.clf\"", "model = \"real.clf\"\nk = 1", "step 4: unknown parameter 'k'"),
    ("model = \"real.clf\"", "model = \"nope\"", "step 4 (model nope): no model 'nope'"),
    ("model = \"real.clf\"", "model = \"real.clf/7\"", "step 4 (model real.clf/7): "),
    ("model = \"real.clf\"", "model = \"real.clf/x\"", "expected NAME or NAME/VERSION"),
    ("model = \"real.clf\"", "model = \"good\"", "'good' is an ensemble, expected a model"),
    ("labels = \"real.clf\"", "labels = \"nope\"", "step 6 (top_k): no model 'nope'"),
    ("labels = \"real.clf\"", "", "it has no output 'label', expected score, index; labels ="),
    (
        "{ pictures = \"decoded\" }\n\n[[steps]]\nuse = \"resize\"",
        "{ pictures = \"deco\" }\n\n[[steps]]\nuse = \"resize\"",
        "step 2 (resize): no input or step makes value 'decoded'",
    ),
    (
        "outputs = { pictures = \"small\" }",
        "outputs = { pictures = \"decoded\" }",
        "step 2 (resize): value 'decoded' is made twice",
    ),
    (
        "image = \"image\"",
        "picture = \"image\"",
        "step 1 (decode): it has no input 'picture', expected image",
    ),
    ("{ tensor = \"x\"", "{ tensors = \"x\"", "it has no output 'tensors', expected tensor"),
    ("{ tensor = \"x\"", "{ tensor = \"image\"", "step 3 (normalise): value 'image' is made twice"),
    ("{ x = \"x\" }", "{ y = \"x\" }", "step 4 (model real.clf): input 'x' gets no value"),
    ("{ x = \"x\" }", "{ x = \"x\", z = \"x\" }", "it has no input 'z', expected x"),
    (
        "{ x = \"x\" }",
        "{ x = \"small\" }",
        "it is UINT8 [-1, 4, 4, 3], expected FP32 [-1, 3, 4, 4]",
    ),
    (
        "{ logits = \"logits\"",
        "{ scores = \"logits\"",
        "it has no output 'scores', expected logits",
    ),
    ("\"BYTES\", shape = [-1]", "\"FP32\", shape = [-1]", "it is FP32 [-1], expected BYTES"),
    (
        "{ scores = \"logits\" }",
        "{ scores = \"small\" }",
        "step 5 (softmax): input 'scores' gets value 'small', which is UINT8",
    ),
    (
        "value = \"class\"",
        "value = \"classes\"",
        "output 'index': no input or step makes value 'classes'",
    ),
    ("{ name = \"score\" }", "{ name = \"label\" }", "output 'label' is there twice"),
    (
        "shape = [-1] }",
        "shape = [-1] }, { name = \"b\", datatype = \"FP32\", shape = [] }",
        "input 'b' is read by no step",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_an_ensemble_says_why_and_the_others_serve() {
    let rig = labeller(ServerConfig::default()).await;
    put(&rig, "good", "ensemble.toml", &plain("relu"));
    let exchanged = BROKEN.iter().map(|(from, to, part)| {
        assert!(LABELLER.contains(from), "{from}");
        (LABELLER.replacen(from, to, 1), *part)
    });
    let step = |from: &str, to: &str| {
        format!(
            "[[steps]]\nmodel = \"relu\"\ninputs = {{ x = \"{from}\" }}\noutputs = {{ y = \"{to}\" }}\n"
        )
    };
    let relu = plain("relu");
    let others = [
        (relu.replace("[{ name = \"b\" }]", "[]"), "0 outputs, expected 1 to 32"),
        (
            [relu.clone(), step("d", "c"), step("b", "d")].concat(),
            "step 2 (model relu): value 'd' is read before step 3 (model relu) makes it",
        ),
        (
            [relu.clone(), step("d", "c"), step("c", "d")].concat(),
            "step 2 (model relu): value 'd' of step 3 (model relu) goes round in a cycle",
        ),
        ([relu.clone(), step("a", "c").repeat(32)].concat(), "33 steps, expected 1 to 32"),
        (format!("#{}\n{relu}", "x".repeat(64 << 10)), "more than 65536 bytes"),
    ];
    let mut wrong = Vec::new();
    for (text, part) in exchanged.chain(others) {
        put(&rig, "bad", "ensemble.toml", &text);
        let (state, reason) = reason(&rig, "bad").await;
        if state != "UNAVAILABLE" || !reason.contains(part) {
            wrong.push(format!("{state} {reason}, expected {part}"));
        }
        let refused = rig.post("/v2/models/bad/infer", INFER).await;
        assert_eq!(refused.status, 400, "{part}: {}", refused.text());
        let message = refused.json()["error"].as_str().unwrap().to_owned();
        assert_eq!(message, format!("ensemble 'bad' cannot be used: {reason}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(reason(&rig, "good").await, ("READY".to_owned(), String::new()));
    let answer = rig.post("/v2/models/good/infer", INFER).await;
    assert_eq!(answer.json()["outputs"][0]["data"], json!([0.0, 2.0]), "{}", answer.text());
    // A corrected ensemble serves at once, and a deleted one is gone.
    put(&rig, "bad", "ensemble.toml", &plain("relu"));
    assert_eq!(rig.post("/v2/models/bad/infer", INFER).await.status, 200);
    std::fs::remove_dir_all(rig.folder.path().join("models/bad")).unwrap();
    assert_eq!(rig.post("/v2/repository/index", "").await.status, 200);
    assert_eq!(rig.post("/v2/models/bad/infer", INFER).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_a_model_or_an_ensemble() {
    let rig = Rig::start().await;
    let pair = plain("relu").replace("\"a\"", "\"x\"").replace("\"b\"", "\"y\"");
    put(&rig, "pair", "ensemble.toml", &pair);
    let x = INFER.replace("\"a\"", "\"x\"");
    let taken = rig.post(&format!("{MODELS}/pair"), onnx()).await;
    assert!(taken.status == 409 && taken.text().contains("ensemble"), "{}", taken.text());
    let targets = json!({"targets": [{"model": "relu", "weight": 1}]}).to_string();
    let put_alias = |name: &str, body: String| {
        let put = request("PUT", &format!("/api/v1/cluster/aliases/{name}"));
        rig.call(put.body(Body::from(body)).unwrap())
    };
    assert_eq!(put_alias("pair", targets.clone()).await.status, 409);
    // With a model and an ensemble in one folder, the model serves.
    put(&rig, "relu", "ensemble.toml", &plain("gated"));
    let (state, why) = reason(&rig, "relu").await;
    assert!(state == "UNAVAILABLE" && why.contains("expected one of them"), "{why}");
    assert_eq!(rig.post("/v2/models/relu/infer", x.clone()).await.status, 200);

    for (method, path, status, part) in [
        ("GET", "/v2/models/pair/versions/2", 404, "expected 1"),
        ("POST", "/api/v1/cluster/models/pair/unload", 400, "ensemble"),
        ("DELETE", "/api/v1/cluster/models/pair", 400, "ensemble"),
        ("POST", "/v2/repository/models/pair/load", 200, ""),
        ("GET", "/v2/models/pair/versions/1/ready", 200, ""),
    ] {
        let answer = rig.call(request(method, path).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text());
        assert!(answer.text().contains(part), "{path}: {}", answer.text());
    }
    let task = json!({"model": "pair",
        "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]});
    let refused = rig.post(TASKS, task.to_string()).await;
    assert!(
        refused.status == 400 && refused.text().contains("'pair' is an ensemble, expected a model"),
        "{}",
        refused.text()
    );

    // An alias may lead to an ensemble, and a step may name an alias of models.
    let to_pair = json!({"targets": [{"model": "pair", "weight": 1}]}).to_string();
    assert_eq!(put_alias("front", to_pair.clone()).await.status, 200);
    let answer = rig.post("/v2/models/front/infer", x).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["model_name"]), (200, &json!("pair")));
    assert_eq!(put_alias("back", targets).await.status, 200);
    put(&rig, "over", "ensemble.toml", &plain("back"));
    assert_eq!(rig.post("/v2/models/over/infer", INFER).await.status, 200);
    // A step whose alias now leads to an ensemble does not run it.
    assert_eq!(put_alias("back", to_pair).await.status, 200);
    let answer = rig.post("/v2/models/over/infer", INFER).await;
    assert!(answer.status == 400 && answer.text().contains("models alone"), "{}", answer.text());
    let (_, why) = reason(&rig, "over").await;
    assert!(why.contains("'pair' is an ensemble"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_taken_and_no_request_is_lost() {
    let server = ServerConfig { models_poll_ms: 10, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    put(&rig, "live", "ensemble.toml", &plain("relu"));
    rig.until("/v2/models/live/ready", |answer| answer.status == 200).await;
    let done = AtomicBool::new(false);
    let infer = async || {
        let answer = rig.post("/v2/models/live/infer", INFER).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["outputs"][0]["data"].clone()
    };
    let asks = async {
        let mut answered = 0;
        while !done.load(Ordering::Relaxed) {
            infer().await;
            answered += 1;
        }
        answered
    };
    let until = async |wanted: Value| {
        let began = Instant::now();
        while infer().await != wanted {
            assert!(began.elapsed() < PATIENCE, "{wanted} does not come");
        }
    };
    let changes = async {
        until(json!([0.0, 2.0])).await;
        let doubled = plain("relu").replace("{ y =", "{ double =");
        for _ in 0..3 {
            put(&rig, "live", "ensemble.toml", &doubled);
            until(json!([-2.0, 4.0])).await;
            put(&rig, "live", "ensemble.toml", &plain("relu")[..60]);
            let began = Instant::now();
            while reason(&rig, "live").await.1.is_empty() {
                assert!(began.elapsed() < PATIENCE, "the broken file is not noticed");
            }
            assert_eq!(reason(&rig, "live").await.0, "READY", "what was there serves");
            assert_eq!(infer().await, json!([-2.0, 4.0]));
            put(&rig, "live", "ensemble.toml", &plain("relu"));
            until(json!([0.0, 2.0])).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let (answered, ()) = tokio::join!(asks, changes);
    assert!(answered > 10, "{answered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_takes_a_file_that_has_come_or_was_mended() {
    let server = ServerConfig { models_poll_ms: 0, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let load = async |path: &str| rig.post(&format!("{MODELS}/pair{path}/load"), "").await;
    assert_eq!(load("").await.status, 404);
    put(&rig, "pair", "ensemble.toml", &plain("nope"));
    for path in ["", "/versions/1"] {
        let answer = load(path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(answer.text().contains("step 1 (model nope)"), "{}", answer.text());
    }
    put(&rig, "pair", "ensemble.toml", &plain("relu"));
    for path in ["", "/versions/1"] {
        let answer = load(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    assert_eq!(load("/versions/2").await.status, 404);
    assert_eq!(rig.post("/v2/models/pair/infer", INFER).await.status, 200);
    let listed = rig.get("/api/v1/cluster/workers").await.text();
    assert!(!listed.contains("pair"), "no worker loads it: {listed}");
    put(&rig, "pair", "ensemble.toml", &plain("nope"));
    let answer = load("").await;
    assert!(answer.status == 400 && answer.text().contains("step 1 (model nope)"));
    assert_eq!(rig.post("/v2/models/pair/infer", INFER).await.status, 200, "as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_beside_an_ensemble_is_loaded_and_the_ensemble_is_not() {
    let server = ServerConfig { models_poll_ms: 10, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    put(&rig, "pair", "ensemble.toml", &plain("relu"));
    rig.until("/v2/models/pair/ready", |answer| answer.status == 200).await;
    let models = rig.folder.path().join("models");
    let new = models.join(".new");
    std::fs::create_dir(&new).unwrap();
    std::fs::write(new.join("model.onnx"), onnx()).unwrap();
    std::fs::rename(new, models.join("pair/1")).unwrap();
    let is_model =
        |answer: &Answer| answer.status == 200 && answer.json()["platform"] != "ensemble";
    rig.until("/v2/models/pair", is_model).await;
    rig.until("/v2/models/pair/ready", |answer| answer.status == 200).await;
    let x = INFER.replace("\"a\"", "\"x\"");
    assert_eq!(rig.post("/v2/models/pair/infer", x).await.status, 200);
    assert_eq!(rig.post(&format!("{MODELS}/pair/load"), "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_stays_ready_while_versions_of_its_models_change() {
    let server = ServerConfig { models_poll_ms: 0, ..ServerConfig::default() };
    let rig = labeller(server).await;
    let put_json = |path: &str, body: Value| {
        rig.call(request("PUT", path).body(Body::from(body.to_string())).unwrap())
    };
    let wish = json!({"version_policy": "latest:1"});
    assert_eq!(put_json(&format!("{MODELS}/real.clf/deployment"), wish).await.status, 200);
    assert_eq!(rig.get("/v2/models/labels/ready").await.status, 200);
    let added = rig.post(&format!("{MODELS}/real.clf"), classifier()).await;
    assert_eq!(added.status, 201, "{}", added.text());
    assert_eq!(rig.get("/v2/models/labels/ready").await.status, 200);
    let picture = [jpeg(30, 20, 90)];
    check(&post_binary(&rig, "labels", &picture, json!({})).await, &picture);

    // For an alias, one ready target is enough.
    let targets =
        json!({"targets": [{"model": "relu", "weight": 1}, {"model": "gated", "weight": 9}]});
    assert_eq!(put_json("/api/v1/cluster/aliases/either", targets).await.status, 200);
    put(&rig, "over", "ensemble.toml", &plain("either"));
    for (gone, status) in [("relu", 200), ("gated", 503)] {
        assert_eq!(rig.post(&format!("{MODELS}/{gone}/unload"), "").await.status, 200);
        let ready = rig.get("/v2/models/over/ready").await;
        assert_eq!(ready.status.as_u16(), status, "without {gone}");
    }
}
