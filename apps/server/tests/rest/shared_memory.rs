//! Inputs and outputs in a client's shared memory, and access to it.
#![cfg(target_os = "linux")]

use crate::grpc::{client, request as grpc_request};
use crate::rig::{Options, Rig, ask_with, listen};
use lgp_server::ServerConfig;
use lgp_server::inference::infer_parameter::ParameterChoice;
use lgp_server::inference::model_infer_request::InferRequestedOutputTensor;
use lgp_server::inference::{InferParameter, SystemSharedMemoryStatusRequest};
use serde_json::{Value, json};
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;

/// A file in shared memory; dropping it deletes the file.
struct Memory {
    key: String,
    file: File,
}

impl Memory {
    fn new(test: &str, bytes: u64) -> Self {
        let key = format!("/lgp-test-{}-{test}", std::process::id());
        let options = File::options().read(true).write(true).create_new(true).to_owned();
        let file = options.open(path(&key)).unwrap();
        file.set_len(bytes).unwrap();
        Self { key, file }
    }

    fn put(&self, at: u64, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, at).unwrap();
    }

    fn floats(&self, at: u64, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; 4 * count];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(path(&self.key));
    }
}

fn path(key: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm{key}"))
}

fn owner(rig: &Rig) -> &str {
    rig.bearer.strip_prefix("Bearer ").unwrap()
}

/// Registers a region over a connection, as local programs do.
async fn register(addr: SocketAddr, key: &str, name: &str, place: Value) -> (u16, String) {
    let path = format!("/v2/systemsharedmemory/region/{name}/register");
    ask_with(addr, ("POST", &path), Some(key), &place.to_string()).await
}

fn input(rows: u64, parameters: Value) -> Value {
    json!({ "name": "x", "shape": [rows, 2], "datatype": "FP32", "parameters": parameters })
}

fn at(region: &str, offset: u64, bytes: u64) -> Value {
    json!({ "shared_memory_region": region, "shared_memory_offset": offset,
            "shared_memory_byte_size": bytes })
}

#[tokio::test(flavor = "multi_thread")]
async fn tensors_go_in_and_out_by_shared_memory() {
    let rig = Rig::start().await;
    let addr = listen(&rig).await;
    let memory = Memory::new("both", 64);
    memory.put(8, &[-1.0, 2.0]);
    let place = json!({ "key": memory.key, "offset": 8, "byte_size": 48 });
    assert_eq!(register(addr, owner(&rig), "r", place.clone()).await.0, 200);
    let (status, text) = register(addr, owner(&rig), "r", place.clone()).await;
    assert!(status == 409 && text.contains("registered already"), "{status} {text}");
    let listed = rig.get("/v2/systemsharedmemory/status").await.json();
    let expected = json!([{ "name": "r", "key": memory.key, "offset": 8, "byte_size": 48 }]);
    assert_eq!(listed, expected);
    assert_eq!(rig.get("/v2/systemsharedmemory/region/r/status").await.json(), expected);

    let body = json!({
        "inputs": [input(1, at("r", 0, 8))],
        "outputs": [{ "name": "y", "parameters": at("r", 16, 8) }, { "name": "double" }],
    });
    let answer = rig.post("/v2/models/relu/infer", body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let outputs = answer.json()["outputs"].clone();
    assert_eq!(outputs[0], json!({ "name": "y", "datatype": "FP32", "shape": [1, 2] }));
    assert_eq!(outputs[1]["data"], json!([-2.0, 4.0]));
    assert_eq!(memory.floats(24, 2), [0.0, 2.0]);

    let number = |value| ParameterChoice::Int64Param(value);
    let place = |offset| {
        let region = ParameterChoice::StringParam("r".to_owned());
        let all = [
            ("shared_memory_region", region),
            ("shared_memory_byte_size", number(8)),
            ("shared_memory_offset", number(offset)),
        ];
        all.map(|(name, choice)| {
            (name.to_owned(), InferParameter { parameter_choice: Some(choice) })
        })
    };
    let mut message = grpc_request("relu", [0.0, 0.0]);
    message.raw_input_contents.clear();
    message.inputs[0].parameters = place(0).into();
    let output =
        InferRequestedOutputTensor { name: "double".to_owned(), parameters: place(32).into() };
    message.outputs = vec![output];
    let mut client = client(&rig, Some(&rig.bearer));
    let answer = client.model_infer(message).await.unwrap().into_inner();
    assert_eq!(answer.raw_output_contents, [Vec::new()]);
    assert_eq!(memory.floats(40, 2), [-2.0, 4.0]);
    let all = SystemSharedMemoryStatusRequest::default();
    let regions = client.system_shared_memory_status(all).await.unwrap().into_inner().regions;
    assert_eq!((regions.len(), regions["r"].byte_size), (1, 48));

    assert_eq!(rig.post("/v2/systemsharedmemory/region/r/unregister", "").await.status, 200);
    assert_eq!(rig.get("/v2/systemsharedmemory/status").await.json(), json!([]));
    assert_eq!(rig.post("/v2/models/relu/infer", body.to_string()).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_are_none_are_refused() {
    let rig = Rig::start().await;
    let addr = listen(&rig).await;
    let memory = Memory::new("places", 64);
    let link = format!("{}-link", memory.key);
    symlink("/etc/hostname", path(&link)).unwrap();
    for (key, offset, byte_size, part) in [
        (memory.key.as_str(), 0, 65, "which has 64 bytes"),
        (&memory.key, 64, 1, "which has 64 bytes"),
        (&memory.key, 0, 0, "byte_size 0"),
        (&memory.key, u64::MAX, 2, "not within"),
        ("/no-such-memory", 0, 8, "cannot be opened"),
        (&link, 0, 8, "cannot be opened"),
        ("../../etc/passwd", 0, 8, "not usable"),
        ("/", 0, 8, "not usable"),
        ("..", 0, 8, "not usable"),
        ("/a\0b", 0, 8, "not usable"),
        ("", 0, 8, "not usable"),
    ] {
        let place = json!({ "key": key, "offset": offset, "byte_size": byte_size });
        let (status, text) = register(addr, owner(&rig), "r", place).await;
        assert!(
            status == 400 && text.contains(part),
            "{key:?} {offset} {byte_size}: {status} {text}"
        );
    }
    std::fs::remove_file(path(&link)).unwrap();
    let place = json!({ "key": memory.key, "byte_size": 64 });
    assert_eq!(register(addr, owner(&rig), "r", place).await.0, 200);
    for (parameters, status, part) in [
        (at("r", 0, 7), 400, "7 bytes of data"),
        (at("r", 60, 8), 400, "not within region 'r'"),
        (at("r", u64::MAX, 8), 400, "not within region 'r'"),
        (at("other", 0, 8), 404, "no region 'other'"),
        (json!({ "shared_memory_region": "r" }), 400, "without shared_memory_byte_size"),
        (
            json!({ "shared_memory_region": 3, "shared_memory_byte_size": 8 }),
            400,
            "expected its name",
        ),
    ] {
        let body = json!({ "inputs": [input(1, parameters)] }).to_string();
        let answer = rig.post("/v2/models/relu/infer", body).await;
        let place = format!("{part}: {} {}", answer.status, answer.text());
        assert!(answer.status == status && answer.text().contains(part), "{place}");
    }
    // An output that does not fit, and a file that was truncated after its registration.
    let x = json!({ "name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2] });
    let mut both = at("r", 0, 8);
    both["classification"] = json!(1);
    let both = json!({ "inputs": [x], "outputs": [{ "name": "y", "parameters": both }] });
    let answer = rig.post("/v2/models/relu/infer", both.to_string()).await;
    assert!(
        answer.status == 400 && answer.text().contains("both classification"),
        "{}",
        answer.text()
    );
    let small = json!([{ "name": "y", "parameters": at("r", 0, 7) }]);
    let body = json!({ "inputs": [x], "outputs": small }).to_string();
    let answer = rig.post("/v2/models/relu/infer", body).await;
    assert!(answer.status == 400 && answer.text().contains("more than the 7"), "{}", answer.text());
    memory.file.set_len(4).unwrap();
    let whole = json!([{ "name": "y", "parameters": at("r", 0, 8) }]);
    for body in
        [json!({ "inputs": [input(1, at("r", 0, 8))] }), json!({ "inputs": [x], "outputs": whole })]
    {
        let answer = rig.post("/v2/models/relu/infer", body.to_string()).await;
        assert!(answer.status == 400 && answer.text().contains("shorter"), "{}", answer.text());
    }
    assert_eq!(memory.file.metadata().unwrap().len(), 4, "nothing makes it grow");
    let task = json!({ "model": "relu", "inputs": [input(1, at("r", 0, 8))] }).to_string();
    assert_eq!(rig.post("/api/v1/cluster/tasks", task).await.status, 501);
}

#[tokio::test(flavor = "multi_thread")]
async fn regions_are_their_callers_own() {
    let rig = Rig::start().await;
    let addr = listen(&rig).await;
    let memory = Memory::new("owners", 64);
    let place = || json!({ "key": memory.key, "byte_size": 64 });
    let mut keys = Vec::new();
    for role in ["submit", "submit", "infer"] {
        let made =
            rig.post("/api/v1/cluster/keys", json!({ "role": role }).to_string()).await.json();
        keys.push(made["key"].as_str().unwrap().to_owned());
    }
    let status = "/v2/systemsharedmemory/status";
    assert_eq!(register(addr, &keys[0], "mine", place()).await.0, 200);
    assert_eq!(register(addr, &keys[2], "r", place()).await.0, 403);
    assert_eq!(ask_with(addr, ("GET", status), None, "").await.0, 401);
    // Programs on another machine do not share this machine's memory.
    let far = "/v2/systemsharedmemory/region/r/register";
    assert_eq!(rig.post(far, place().to_string()).await.status, 501);

    let body = json!({ "inputs": [input(1, at("mine", 0, 8))] }).to_string();
    let infer = ("POST", "/v2/models/relu/infer");
    for (key, expected) in [
        (Some(keys[0].as_str()), 200),
        (Some(&keys[1]), 404),
        (Some(owner(&rig)), 404),
        (None, 404),
    ] {
        let (status, text) = ask_with(addr, infer, key, &body).await;
        assert_eq!(status, expected, "{text}");
    }
    for (key, seen) in [(keys[0].as_str(), true), (&keys[1], false), (owner(&rig), true)] {
        let (_, text) = ask_with(addr, ("GET", status), Some(key), "").await;
        assert_eq!(text.contains("mine"), seen, "{text}");
    }
    // A caller without regions unregisters none.
    let all = ("POST", "/v2/systemsharedmemory/unregister");
    for (key, left) in [(keys[1].as_str(), 1), (&keys[0], 0)] {
        assert_eq!(ask_with(addr, all, Some(key), "").await.0, 200);
        assert_eq!(rig.get(status).await.json().as_array().unwrap().len(), left);
    }
    for n in 0..=64 {
        let (status, _) = register(addr, owner(&rig), &format!("r{n}"), place()).await;
        assert_eq!(status, if n < 64 { 200 } else { 503 }, "{n}");
    }
    // Another caller has its own names and limits.
    assert_eq!(register(addr, &keys[1], "r0", place()).await.0, 200);
    // Regions of a revoked key are dropped at the next registration.
    let public = keys[1].split('_').nth(1).unwrap();
    assert_eq!(rig.delete(&format!("/api/v1/cluster/keys/{public}")).await.status, 200);
    assert_eq!(register(addr, &keys[0], "r1", place()).await.0, 200);
    assert_eq!(rig.get(status).await.json().as_array().unwrap().len(), 64 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_in_regions_take_room_as_bodies_do() {
    let server = ServerConfig { binary_bytes_max: 1 << 20, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let addr = listen(&rig).await;
    let memory = Memory::new("room", 2 << 20);
    let place = json!({ "key": memory.key, "byte_size": 2 << 20 });
    assert_eq!(register(addr, owner(&rig), "r", place).await.0, 200);
    for (rows, expected) in [(1u64 << 16, 200), (1 << 18, 400)] {
        let body = json!({ "inputs": [input(rows, at("r", 0, 8 * rows))],
                           "outputs": [{ "name": "y", "parameters": at("r", 0, 8 * rows) }] });
        let answer = rig.post("/v2/models/relu/infer", body.to_string()).await;
        assert_eq!(answer.status, expected, "{}", answer.text());
    }
    // Many inputs with the same region do not bypass the limit.
    let many = vec![input(1 << 16, at("r", 0, 1 << 19)); 1_000];
    let answer = rig.post("/v2/models/relu/infer", json!({ "inputs": many }).to_string()).await;
    assert!(answer.status == 400 && answer.text().contains("more than"), "{}", answer.text());
}
