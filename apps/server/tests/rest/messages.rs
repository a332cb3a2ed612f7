//! gRPC messages as bytes: their size limits, their room, and their pace.

use crate::grpc;
use crate::rig::{Options, PATIENCE, Rig};
use axum::body::Body;
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt;
use lgp_server::inference::model_infer_request::InferInputTensor;
use lgp_server::inference::{ModelInferRequest, RepositoryModelLoadRequest};
use lgp_server::{ServerConfig, grpc_router};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use tower::ServiceExt;

/// A call whose bytes are sent piece by piece.
struct Call {
    bytes: mpsc::Sender<Result<Vec<u8>, Infallible>>,
    answer: JoinHandle<(HeaderMap, usize)>,
}

impl Call {
    fn begin(rig: &Rig, call: &str, bearer: &str) -> Self {
        let (bytes, sent) = mpsc::channel(8);
        let request = Request::post(format!("/inference.GRPCInferenceService/{call}"))
            .header("host", "localhost")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", bearer)
            .body(Body::from_stream(ReceiverStream::new(sent)))
            .unwrap();
        let answer = grpc_router(rig.state.clone()).oneshot(request);
        let answer = tokio::spawn(async move {
            let (head, body) = answer.await.unwrap().into_parts();
            let body = body.collect().await.unwrap();
            let trailers = body.trailers().cloned().unwrap_or(head.headers);
            (trailers, body.to_bytes().len())
        });
        Self { bytes, answer }
    }

    async fn send(&self, bytes: impl Into<Vec<u8>>) {
        self.bytes.send(Ok(bytes.into())).await.unwrap();
    }

    /// The call's status, while the client keeps its side open.
    async fn status(self) -> (Status, usize) {
        let answer = tokio::time::timeout(PATIENCE, self.answer).await.expect("it is ended");
        let (trailers, bytes) = answer.unwrap();
        drop(self.bytes);
        (Status::from_header_map(&trailers).expect("a status"), bytes)
    }
}

fn prefix(length: u32) -> Vec<u8> {
    [&[0][..], &length.to_be_bytes()].concat()
}

fn message(request: &ModelInferRequest) -> Vec<u8> {
    let bytes = prost::Message::encode_to_vec(request);
    [prefix(bytes.len().try_into().unwrap()), bytes].concat()
}

async fn with(server: ServerConfig) -> Rig {
    Rig::with(Options { server, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_be_silent_between_messages_and_not_within_one() {
    let server =
        ServerConfig { body_grace_ms: 200, body_timeout_ms: 200, ..ServerConfig::default() };
    let rig = with(server).await;
    let relu = message(&grpc::request("relu", [1.0, 2.0]));
    let call = Call::begin(&rig, "ModelStreamInfer", &rig.bearer);
    call.send(&relu[..]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!call.answer.is_finished(), "nothing is missing");
    // Two messages; the second breaks off.
    call.send([&relu[..], &relu[..9]].concat()).await;
    let (status, answered) = call.status().await;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    // An answer is longer than its request.
    assert!(answered > 2 * relu.len(), "what was whole is answered: {answered} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_tensors_take_small_messages() {
    let rig = Rig::start().await;
    for call in ["ServerLive", "ServerReady", "ModelReady", "RepositoryIndex"] {
        let call = Call::begin(&rig, call, &rig.bearer);
        call.send(prefix(1 << 20)).await;
        let (status, _) = call.status().await;
        assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    }
    let mut client = grpc::client(&rig, Some(&rig.bearer));
    let long = RepositoryModelLoadRequest { model_name: "n".repeat(70_000), ..Default::default() };
    let status = client.repository_model_load(long).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_has_its_room_before_it_comes() {
    let server = ServerConfig {
        bodies_bytes_max: 1 << 20,
        body_timeout_ms: 2_000,
        ..ServerConfig::default()
    };
    let rig = with(server).await;
    let key = rig.post("/api/v1/cluster/keys", r#"{"role":"infer"}"#).await.json()["key"].clone();
    let key = format!("Bearer {}", key.as_str().unwrap());
    let large = 600 << 10;
    let held = Call::begin(&rig, "ModelInfer", &rig.bearer);
    held.send(prefix(large)).await;
    let bytes = held.bytes.clone();
    tokio::spawn(async move {
        while bytes.send(Ok(vec![0])).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The call waits for room, not for the message.
    let call = Call::begin(&rig, "ModelInfer", &key);
    call.send(prefix(large)).await;
    let (status, _) = call.status().await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("http.bodies_bytes_max"), "{status:?}");
    // A small message finds room.
    let mut client = grpc::client(&rig, Some(&key));
    client.model_infer(grpc::request("relu", [1.0, 2.0])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_parts_count_what_they_become() {
    let rig = with(ServerConfig { bodies_bytes_max: 1 << 20, ..ServerConfig::default() }).await;
    let inputs = vec![InferInputTensor::default(); 10_000];
    let many = ModelInferRequest { inputs, ..grpc::request("relu", [1.0, 2.0]) };
    let mut client = grpc::client(&rig, Some(&rig.bearer));
    let status = client.model_infer(many).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("fewer parts"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_key() {
    let rig = Rig::start().await;
    let made = rig.post("/api/v1/cluster/keys", r#"{"role":"infer"}"#).await.json();
    let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
    let relu = message(&grpc::request("relu", [1.0, 2.0]));
    let [silent, busy] = [0; 2].map(|_| Call::begin(&rig, "ModelStreamInfer", &bearer));
    silent.send(&relu[..]).await;
    busy.send(&relu[..]).await;
    let path = format!("/api/v1/cluster/keys/{}", made["id"].as_str().unwrap());
    assert_eq!(rig.delete(&path).await.status, 200);
    let sending = busy.bytes.clone();
    let sending =
        tokio::spawn(async move { while sending.send(Ok(relu.clone())).await.is_ok() {} });
    for call in [silent, busy] {
        let (status, _) = call.status().await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    }
    tokio::time::timeout(PATIENCE, sending).await.expect("nobody takes more").unwrap();
}
