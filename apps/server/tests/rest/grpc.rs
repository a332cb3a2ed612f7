//! The protocol over gRPC: the same answers as REST, in gRPC's form.

use crate::rig::{Options, Rig};
use axum::Router;
use axum::http::{HeaderValue, Request, header};
use lgp_server::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use lgp_server::inference::infer_parameter::ParameterChoice;
use lgp_server::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use lgp_server::inference::*;
use lgp_server::{ServerConfig, grpc_router};
use tonic::Code;
use tower::ServiceExt;
use tower::util::MapRequest;

pub(crate) type Client = GrpcInferenceServiceClient<
    MapRequest<
        Router,
        Box<dyn FnMut(Request<tonic::body::Body>) -> Request<axum::body::Body> + std::marker::Send>,
    >,
>;

/// A client in this process, with a credential or without.
pub(crate) fn client(rig: &Rig, bearer: Option<&str>) -> Client {
    let bearer = bearer.map(|text| text.parse::<HeaderValue>().unwrap());
    let prepare = move |request: Request<tonic::body::Body>| {
        let mut request = request.map(axum::body::Body::new);
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        if let Some(bearer) = &bearer {
            request.headers_mut().insert(header::AUTHORIZATION, bearer.clone());
        }
        request
    };
    let router = grpc_router(rig.state.clone());
    GrpcInferenceServiceClient::new(router.map_request(Box::new(prepare) as Box<_>))
}

pub(crate) fn request(model: &str, x: [f32; 2]) -> ModelInferRequest {
    let input = InferInputTensor {
        name: "x".to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![1, 2],
        ..InferInputTensor::default()
    };
    ModelInferRequest {
        model_name: model.to_owned(),
        id: "7".to_owned(),
        inputs: vec![input],
        raw_input_contents: vec![x.map(f32::to_le_bytes).concat().into()],
        ..ModelInferRequest::default()
    }
}

fn floats(raw: &[u8]) -> Vec<f32> {
    raw.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_and_its_models_tell_what_rest_tells() {
    let rig = Rig::start().await;
    let mut client = client(&rig, Some(&rig.bearer));
    assert!(client.server_live(ServerLiveRequest {}).await.unwrap().into_inner().live);
    assert!(client.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);
    let server = client.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
    let rest = rig.get("/v2").await.json();
    assert_eq!((&rest["name"], &rest["version"]), (&server.name.into(), &server.version.into()));

    let named = |version: &str| ModelMetadataRequest {
        name: "relu".to_owned(),
        version: version.to_owned(),
    };
    let model = client.model_metadata(named("")).await.unwrap().into_inner();
    assert_eq!((model.inputs[0].name.as_str(), &model.inputs[0].shape[..]), ("x", &[-1, 2][..]));
    assert_eq!(model.inputs[0].datatype, "FP32");
    assert_eq!((model.versions, model.outputs.len()), (vec!["1".to_owned()], 2));
    for (version, code) in
        [("2", Code::NotFound), ("0", Code::InvalidArgument), ("x", Code::InvalidArgument)]
    {
        assert_eq!(
            client.model_metadata(named(version)).await.unwrap_err().code(),
            code,
            "{version}"
        );
    }
    let ready = ModelReadyRequest { name: "relu".to_owned(), version: "1".to_owned() };
    assert!(client.model_ready(ready).await.unwrap().into_inner().ready);
    for (name, version) in [("nope", ""), ("relu", "9")] {
        let asked = ModelReadyRequest { name: name.to_owned(), version: version.to_owned() };
        assert!(!client.model_ready(asked).await.unwrap().into_inner().ready, "{name} {version}");
        let path = match version {
            "" => format!("/v2/models/{name}/ready"),
            version => format!("/v2/models/{name}/versions/{version}/ready"),
        };
        assert_eq!(rig.get(&path).await.status, 404, "{path}");
    }
    let config = ModelConfigRequest { name: "relu".to_owned(), version: String::new() };
    let config = client.model_config(config).await.unwrap().into_inner().config.unwrap();
    assert_eq!(
        (config.input[0].data_type(), &config.input[0].dims[..]),
        (DataType::TypeFp32, &[-1, 2][..])
    );
    let index = client.repository_index(RepositoryIndexRequest::default()).await.unwrap();
    let names: Vec<_> = index.into_inner().models.into_iter().map(|m| (m.name, m.state)).collect();
    let ready = |name: &str| (name.to_owned(), "READY".to_owned());
    assert_eq!(names, [ready("fails"), ready("gated"), ready("relu")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_inference_and_its_choice_of_outputs() {
    let rig = Rig::start().await;
    let mut client = client(&rig, Some(&rig.bearer));
    let answer = client.model_infer(request("relu", [-1.0, 2.0])).await.unwrap().into_inner();
    assert_eq!((answer.id.as_str(), answer.model_version.as_str()), ("7", "1"));
    let outputs: Vec<_> =
        answer.outputs.iter().map(|o| (o.name.as_str(), o.shape.clone())).collect();
    assert_eq!(outputs, [("y", vec![1, 2]), ("double", vec![1, 2])]);
    assert_eq!(floats(&answer.raw_output_contents[0]), [0.0, 2.0]);
    assert_eq!(floats(&answer.raw_output_contents[1]), [-2.0, 4.0]);

    let asked = InferRequestedOutputTensor { name: "double".to_owned(), ..Default::default() };
    let one = ModelInferRequest { outputs: vec![asked], ..request("relu", [1.0, 2.0]) };
    let answer = client.model_infer(one).await.unwrap().into_inner();
    assert_eq!((answer.outputs.len(), floats(&answer.raw_output_contents[0])), (1, vec![2.0, 4.0]));

    let mut typed = request("relu", [0.0; 2]);
    typed.raw_input_contents.clear();
    let contents = InferTensorContents { fp32_contents: vec![3.0, -3.0], ..Default::default() };
    typed.inputs[0].contents = Some(contents);
    let answer = client.model_infer(typed).await.unwrap().into_inner();
    assert_eq!(floats(&answer.raw_output_contents[0]), [3.0, 0.0]);

    let stats = ModelStatisticsRequest { name: "relu".to_owned(), version: String::new() };
    let stats = client.model_statistics(stats).await.unwrap().into_inner();
    assert_eq!(stats.model_stats[0].inference_count, 3);
    let rest = rig.get("/v2/models/relu/stats").await.json();
    assert_eq!(rest["model_stats"][0]["inference_count"], 3, "they are counted together");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_and_why() {
    let rig = Rig::start().await;
    let mut client = client(&rig, Some(&rig.bearer));
    let good = || request("relu", [1.0, 2.0]);
    let input = |change: fn(&mut InferInputTensor)| {
        let mut request = good();
        change(&mut request.inputs[0]);
        request
    };
    let parameter = |name: &str, value: ParameterChoice| {
        let value = InferParameter { parameter_choice: Some(value) };
        let parameters = [(name.to_owned(), value)].into();
        ModelInferRequest { parameters, ..good() }
    };
    let asked = InferRequestedOutputTensor { name: "none".to_owned(), ..Default::default() };
    for (request, code, part) in [
        (request("nope", [0.0; 2]), Code::NotFound, "nope"),
        (request("nope/..", [0.0; 2]), Code::InvalidArgument, "nope/.."),
        (request("", [0.0; 2]), Code::InvalidArgument, "model name"),
        (request("fails", [0.0; 2]), Code::Internal, "the model failed"),
        (ModelInferRequest { model_version: "9".to_owned(), ..good() }, Code::NotFound, "9"),
        (
            ModelInferRequest { model_version: "one".to_owned(), ..good() },
            Code::InvalidArgument,
            "one",
        ),
        (ModelInferRequest { inputs: vec![], ..good() }, Code::InvalidArgument, "1 entries for 0"),
        (ModelInferRequest { outputs: vec![asked], ..good() }, Code::InvalidArgument, "'none'"),
        (input(|i| i.name = "z".to_owned()), Code::InvalidArgument, "'z' is unknown"),
        (input(|i| i.datatype = "FP64".to_owned()), Code::InvalidArgument, "16 bytes"),
        (input(|i| i.datatype = "BYTES".to_owned()), Code::InvalidArgument, "expected FP32"),
        (input(|i| i.shape = vec![2]), Code::InvalidArgument, "rank 1"),
        (input(|i| i.shape = vec![-1, 2]), Code::InvalidArgument, "sizes from 0"),
        (input(|i| i.shape = vec![2, 2]), Code::InvalidArgument, "16 bytes"),
        (parameter("priority", ParameterChoice::Int64Param(-1)), Code::InvalidArgument, "priority"),
        (parameter("timeout", ParameterChoice::BoolParam(true)), Code::InvalidArgument, "timeout"),
        (parameter("sequence_id", ParameterChoice::Int64Param(1)), Code::Unimplemented, "sequence"),
    ] {
        let status = client.model_infer(request).await.expect_err(part);
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(part), "{status:?} lacks {part}");
        assert!(!status.message().contains("secret") && !status.message().contains("/home"));
    }
    let load = |name: &str| RepositoryModelLoadRequest {
        model_name: name.to_owned(),
        ..Default::default()
    };
    let status = client.repository_model_load(load("none")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let unload =
        RepositoryModelUnloadRequest { model_name: "relu".to_owned(), ..Default::default() };
    client.repository_model_unload(unload).await.unwrap();
    let status = client.model_infer(good()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.metadata().contains_key("grpc-retry-pushback-ms"), "{status:?}");
    client.repository_model_load(load("relu")).await.unwrap();
    client.model_infer(good()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_asked_for_as_they_are_over_rest() {
    let rig = Rig::start().await;
    let mut stranger = client(&rig, None);
    assert!(stranger.server_live(ServerLiveRequest {}).await.unwrap().into_inner().live);
    let status = stranger.model_infer(request("relu", [0.0; 2])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    let key = r#"{"role":"infer","models":["relu"]}"#;
    let key = rig.post("/api/v1/cluster/keys", key).await.json()["key"].clone();
    let bearer = format!("Bearer {}", key.as_str().unwrap());
    let mut limited = client(&rig, Some(&bearer));
    limited.model_infer(request("relu", [0.0; 2])).await.unwrap();
    let status = limited.model_infer(request("gated", [0.0; 2])).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let unload =
        RepositoryModelUnloadRequest { model_name: "relu".to_owned(), ..Default::default() };
    let status = limited.repository_model_unload(unload).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    let elsewhere = RepositoryIndexRequest { repository_name: "other".to_owned(), ready: false };
    let status = limited.repository_index(elsewhere).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
    let index = limited.repository_index(RepositoryIndexRequest::default()).await.unwrap();
    assert_eq!(index.into_inner().models.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_answers_each_request_in_its_order() {
    let rig = Rig::start().await;
    let mut client = client(&rig, Some(&rig.bearer));
    let requests = (0..200u16).map(|n| {
        let model = if n % 50 == 7 { "nope" } else { "relu" };
        ModelInferRequest { id: n.to_string(), ..request(model, [f32::from(n), -1.0]) }
    });
    let requests = tokio_stream::iter(requests.collect::<Vec<_>>());
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    for n in 0..200u16 {
        let answer = answers.message().await.unwrap().expect("one for each");
        let response = answer.infer_response.expect("with its id");
        assert_eq!(response.id, n.to_string());
        if n % 50 == 7 {
            assert!(answer.error_message.contains("nope"), "{}", answer.error_message);
        } else {
            assert_eq!(answer.error_message, "");
            assert_eq!(floats(&response.raw_output_contents[0]), [f32::from(n), 0.0]);
        }
    }
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_bounded() {
    let server = ServerConfig { binary_bytes_max: 1_000, ..Default::default() };
    let rig = Rig::with(Options { server, ..Default::default() }).await;
    let mut client = client(&rig, Some(&rig.bearer));
    let mut large = request("relu", [0.0; 2]);
    large.raw_input_contents[0] = vec![0; 2_000].into();
    let status = client.model_infer(large).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    client.model_infer(request("relu", [0.0; 2])).await.unwrap();
}
