//! Messages with wrong fields, and bytes that are not messages, over an HTTP/2 connection.

mod inferences;

use crate::rig::Rig;
use axum::body::Bytes;
use axum::http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use inferences::{good, inferences, input, parameters};
use lgp_server::inference::infer_parameter::ParameterChoice;
use lgp_server::inference::*;
use lgp_server::serve_grpc;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;

/// A client that sends raw bytes.
struct Client {
    connection: SendRequest<Full<Bytes>>,
    bearer: String,
}

impl Client {
    async fn connect(rig: &Rig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve_grpc(listener, None, rig.state.clone(), std::future::pending()));
        let stream = TokioIo::new(TcpStream::connect(addr).await.unwrap());
        let (connection, driver) = handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(driver);
        Self { connection, bearer: rig.bearer.clone() }
    }

    /// The result of a call: its code and message.
    async fn call(&mut self, method: &str, body: Vec<u8>) -> (Code, String) {
        let path = format!("http://localhost/inference.GRPCInferenceService/{method}");
        let request = Request::builder().method("POST").uri(path).header("te", "trailers");
        let request = request.header("content-type", "application/grpc");
        let request = request.header("authorization", &self.bearer);
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        self.connection.ready().await.expect("the connection is kept");
        let answer = self.connection.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let head = answer.headers().clone();
        let whole = answer.into_body().collect().await.expect("the whole answer");
        let text = |name: &str| {
            let value = whole.trailers().and_then(|all| all.get(name)).or_else(|| head.get(name));
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let code = text("grpc-status").expect("a status").parse::<i32>().unwrap();
        (Code::from_i32(code), text("grpc-message").unwrap_or_default())
    }

    async fn send(&mut self, method: &str, message: &impl Message) -> (Code, String) {
        self.call(method, framed(0, &message.encode_to_vec())).await
    }
}

/// A message in its frame, with the flag for compression.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag], &length[..], message].concat()
}

/// Whether a header's text has a part. Headers encode special characters as `%20` and so on.
fn said(text: &str, part: &str) -> bool {
    text.replace("%20", " ").replace("%22", "\"").contains(part)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_an_inference_is_wrong_once() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig).await;
    assert_eq!(client.send("ModelInfer", &good()).await.0, Code::Ok);
    for (message, part) in inferences() {
        let (code, text) = client.send("ModelInfer", &message).await;
        let shown: String = text.chars().take(200).collect();
        assert_eq!(code, Code::InvalidArgument, "{part}: {shown}");
        assert!(said(&text, part), "{shown} lacks {part}");
        assert!(text.len() < 4096, "{part}: {} bytes are said of it", text.len());
    }
    let stats = rig.get("/v2/models/relu/stats").await.json();
    assert_eq!(stats["model_stats"][0]["inference_count"], 1, "one ran");
    assert_eq!(client.send("ModelInfer", &good()).await.0, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_the_other_messages_is_wrong_once() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig).await;
    let before = rig.get("/api/v1/cluster/models").await.json();
    let long = "x".repeat(60_000);
    for name in ["", "a\n", "a\0", "../relu", &long] {
        let (name, version) = (name.to_owned(), String::new());
        let load = RepositoryModelLoadRequest { model_name: name.clone(), ..Default::default() };
        let unload =
            RepositoryModelUnloadRequest { model_name: name.clone(), ..Default::default() };
        let of = ModelMetadataRequest { name: name.clone(), version };
        // Calls about a model have the same fields; statistics without a name cover all models.
        let same = ["ModelMetadata", "ModelConfig", "ModelReady", "ModelStatistics"];
        for method in same.into_iter().filter(|method| *method != same[3] || !name.is_empty()) {
            refused(client.send(method, &of).await, Code::InvalidArgument, "model name");
        }
        refused(
            client.send("RepositoryModelLoad", &load).await,
            Code::InvalidArgument,
            "model name",
        );
        let answer = client.send("RepositoryModelUnload", &unload).await;
        refused(answer, Code::InvalidArgument, "model name");
    }
    for version in ["0", "x", "-1", "18446744073709551616", &long] {
        let of = ModelMetadataRequest { name: "relu".to_owned(), version: version.to_owned() };
        for method in ["ModelMetadata", "ModelConfig", "ModelReady", "ModelStatistics"] {
            refused(client.send(method, &of).await, Code::InvalidArgument, "version");
        }
    }
    for name in ["config", "file:1/model.onnx"] {
        let parameters = [(name.to_owned(), ModelRepositoryParameter::default())].into();
        let model_name = "relu".to_owned();
        let load = RepositoryModelLoadRequest { model_name, parameters, ..Default::default() };
        refused(client.send("RepositoryModelLoad", &load).await, Code::Unimplemented, name);
    }
    let after = rig.get("/api/v1/cluster/models").await.json();
    assert_eq!(before, after);
}

#[track_caller]
fn refused((code, text): (Code, String), expected: Code, part: &str) {
    let shown: String = text.chars().take(200).collect();
    assert_eq!(code, expected, "{part}: {shown}");
    assert!(said(&text, part) && text.len() < 4096, "{} bytes: {shown} lacks {part}", text.len());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_a_region_is_wrong_once() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig).await;
    let key = format!("/lgp-test-{}-wrong", std::process::id());
    let path = format!("/dev/shm{key}");
    std::fs::write(&path, [0; 64]).unwrap();
    let good = || SystemSharedMemoryRegisterRequest {
        name: "r".to_owned(),
        key: key.clone(),
        offset: 0,
        byte_size: 64,
    };
    type Region = SystemSharedMemoryRegisterRequest;
    let long = "x".repeat(60_000);
    for (message, part) in [
        (Region { name: String::new(), ..good() }, "name"),
        (Region { name: long.clone(), ..good() }, "name"),
        (Region { key: String::new(), ..good() }, "key"),
        (Region { key: "../passwd".to_owned(), ..good() }, "key"),
        (Region { key: "a\0b".to_owned(), ..good() }, "key"),
        (Region { key: long.clone(), ..good() }, "key"),
        (Region { offset: u64::MAX, ..good() }, "offset"),
        (Region { offset: 1, ..good() }, "offset"),
        (Region { byte_size: 0, ..good() }, "byte_size"),
        (Region { byte_size: u64::MAX, ..good() }, "byte_size"),
    ] {
        let answer = client.send("SystemSharedMemoryRegister", &message).await;
        refused(answer, Code::InvalidArgument, part);
    }
    let listed = rig.get("/v2/systemsharedmemory/status").await.json();
    assert_eq!(listed, json!([]));
    assert_eq!(client.send("SystemSharedMemoryRegister", &good()).await.0, Code::Ok);
    refused(
        client.send("SystemSharedMemoryRegister", &good()).await,
        Code::FailedPrecondition,
        "registered already",
    );
    for name in ["none", "r\0", &long] {
        let status = SystemSharedMemoryStatusRequest { name: name.to_owned() };
        let answer = client.send("SystemSharedMemoryStatus", &status).await;
        refused(answer, Code::NotFound, "no region");
    }
    use ParameterChoice::{Int64Param as I, StringParam as S, Uint64Param as U};
    for (size, offset, part) in [
        (I(8), I(-1), "shared_memory_offset"),
        (I(8), U(57), "not within"),
        (I(8), U(u64::MAX), "not within"),
        (I(65), I(0), "not within"),
        (I(7), I(0), "7 bytes"),
        (S("8".to_owned()), I(0), "shared_memory_byte_size"),
        (I(8), S(String::new()), "shared_memory_offset"),
    ] {
        let mut message = input(|input| {
            input.parameters = parameters("shared_memory_region", S("r".to_owned()));
            input.parameters.extend(parameters("shared_memory_byte_size", size.clone()));
            input.parameters.extend(parameters("shared_memory_offset", offset.clone()));
        });
        message.raw_input_contents.clear();
        refused(client.send("ModelInfer", &message).await, Code::InvalidArgument, part);
    }
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_message_end_their_call_alone() {
    let rig = Rig::start().await;
    let mut client = Client::connect(&rig).await;
    let message = good().encode_to_vec();
    let text = |number: u8, text: &[u8]| [&[number << 3 | 2, text.len() as u8], text].concat();
    for (about, sent) in [
        ("nothing", Vec::new()),
        ("half a head", vec![0, 0, 0]),
        ("cut short", framed(0, &message)[..message.len() - 3].to_vec()),
        ("longer than what follows", [&[0, 0, 0, 16, 0], &message[..]].concat()),
        ("a length of 4 GiB", [&[0, 255, 255, 255, 255], &message[..]].concat()),
        ("compressed by nothing", framed(1, &message)),
        ("no flag", framed(7, &message)),
        ("text that is none", framed(0, &text(1, b"re\xfflu"))),
        ("a number for text", framed(0, &[1 << 3, 5])),
        ("a field without end", framed(0, &[3 << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0x7f])),
        ("a number without end", framed(0, &[0xff; 32])),
        ("groups without end", framed(0, &[15 << 3 | 3; 5000])),
        ("the end of no group", framed(0, &[15 << 3 | 4])),
        ("field 0", framed(0, &[0, 0])),
        ("an input that is text", framed(0, &text(5, b"x"))),
    ] {
        let (code, said) = client.call("ModelInfer", sent).await;
        assert_ne!(code, Code::Ok, "{about}");
        assert!(!said.contains("panic") && said.len() < 4096, "{about}: {said}");
        assert_eq!(client.send("ModelInfer", &good()).await.0, Code::Ok, "after {about}");
    }
    // Unknown fields are skipped.
    let unknown = [&message[..], &text(15, b"new")].concat();
    assert_eq!(client.call("ModelInfer", framed(0, &unknown)).await.0, Code::Ok);
    let stats: Value = rig.get("/v2/models/relu/stats").await.json();
    assert_eq!(stats["model_stats"][0]["inference_count"], 15 + 1);
}
