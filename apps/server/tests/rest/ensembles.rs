//! Ensembles: images in, labels and boxes out, over every protocol, and unusable ensemble files.

mod files;
mod running;

use crate::grpc::client;
use crate::rig::{Answer, Options, Rig, request};
use axum::body::Body;
use image::codecs::{jpeg::JpegEncoder, png::PngEncoder};
use image::{Rgb, RgbImage};
use lgp_common::vision::{
    Channels, DecodeLimits, Filter, Order, Scaling, decode, normalise, resize, softmax, top_k,
};
use lgp_inference::GraphBuilder;
use lgp_sdk::tensor::{DType, Dim, SymShape, Tensor, TensorType};
use lgp_server::ServerConfig;
use lgp_server::inference::model_infer_request::InferInputTensor;
use lgp_server::inference::{
    InferTensorContents, ModelConfigRequest, ModelInferRequest, ModelMetadataRequest,
    ModelReadyRequest, ModelStatisticsRequest, RepositoryIndexRequest,
};
use serde_json::{Value, json};

const MODELS: &str = "/api/v1/cluster/models";
const CLASSES: usize = 5;
pub(crate) const SIDE: u32 = 4;
const LABELS: &str = "cat\ndog\nowl\nfox\nelk\n";

/// Images to labels by the model `real.clf`.
const LABELLER: &str = r#"
inputs = [{ name = "image", datatype = "BYTES", shape = [-1] }]
outputs = [{ name = "label" }, { name = "score" }, { name = "index", value = "class" }]

[[steps]]
use = "decode"
inputs = { image = "image" }
outputs = { pictures = "decoded" }

[[steps]]
use = "resize"
width = 4
height = 4
inputs = { pictures = "decoded" }
outputs = { pictures = "small" }

[[steps]]
use = "normalise"
mean = [0.5, 0.4, 0.3]
std = [0.2, 0.25, 0.3]
inputs = { pictures = "small" }
outputs = { tensor = "x" }

[[steps]]
model = "real.clf"
inputs = { x = "x" }
outputs = { logits = "logits" }

[[steps]]
use = "softmax"
inputs = { scores = "logits" }
outputs = { scores = "shares" }

[[steps]]
use = "top_k"
k = 3
labels = "real.clf"
inputs = { scores = "shares" }
outputs = { label = "label", score = "score", index = "class" }
"#;

/// Numbers to numbers by a model of the rig.
pub(crate) fn plain(model: &str) -> String {
    format!(
        r#"
inputs = [{{ name = "a", datatype = "FP32", shape = [-1, 2] }}]
outputs = [{{ name = "b" }}]

[[steps]]
model = "{model}"
inputs = {{ x = "a" }}
outputs = {{ y = "b" }}
"#
    )
}

/// The weights of the model, which has no bias.
fn weights() -> Vec<f32> {
    let inputs = 3 * SIDE as usize * SIDE as usize;
    (0..inputs * CLASSES).map(|n| ((n * 7 + 3) % 11) as f32 * 0.03 - 0.15).collect()
}

/// Input `x` f32 [n,3,4,4], output `logits` f32 [n,5].
pub(crate) fn classifier() -> Vec<u8> {
    let n = || Dim::Symbol("n".into());
    let ty = |dims: Vec<Dim>| TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) };
    let mut graph = GraphBuilder::new("clf");
    let side = Dim::Known(SIDE as usize);
    let x = graph.input("x", ty(vec![n(), Dim::Known(3), side.clone(), side]));
    let flat = graph.node("Flatten", &[x], []);
    let inputs = weights().len() / CLASSES;
    let weights = Tensor::from_slice(vec![inputs, CLASSES], &weights()).unwrap();
    let weights = graph.initializer("w", weights);
    let logits = graph.node("MatMul", &[flat, weights], []);
    graph.output("logits", logits, ty(vec![n(), Dim::Known(CLASSES)]));
    graph.finish().unwrap().to_onnx().unwrap()
}

/// The results of the ensemble's steps for an image, called one after the other.
fn expected(picture: &[u8]) -> Vec<(usize, f32)> {
    let pixels = decode(picture, Channels::Rgb, &DecodeLimits::default()).unwrap();
    let pixels = resize(pixels, SIDE, SIDE, Filter::Bilinear).unwrap();
    let scaling =
        Scaling { mean: vec![0.5, 0.4, 0.3], std: vec![0.2, 0.25, 0.3], ..Scaling::default() };
    let x = normalise(&pixels, &scaling, Order::Nchw).unwrap();
    let weights = weights();
    let logit = |class| x.iter().zip(weights.iter().skip(class).step_by(CLASSES));
    let logits: Vec<f32> =
        (0..CLASSES).map(|class| logit(class).map(|(x, w)| x * w).sum()).collect();
    top_k(&softmax(&logits), 3)
}

fn picture(width: u32, height: u32, shade: u8) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        Rgb([shade, (x * 255 / width) as u8, (y * 255 / height) as u8])
    })
}

fn jpeg(width: u32, height: u32, shade: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    JpegEncoder::new(&mut bytes).encode_image(&picture(width, height, shade)).unwrap();
    bytes
}

fn png(width: u32, height: u32, shade: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    picture(width, height, shade).write_with_encoder(PngEncoder::new(&mut bytes)).unwrap();
    bytes
}

pub(crate) fn put(rig: &Rig, name: &str, file: &str, text: &str) {
    let folder = rig.folder.path().join("models").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    // Renamed into place, so that the server never reads a partial file.
    let new = folder.join(format!(".{file}.new"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, folder.join(file)).unwrap();
}

/// A rig with the ensemble `labels` over a real model.
async fn labeller(server: ServerConfig) -> Rig {
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let answer = rig.post(&format!("{MODELS}/real.clf"), classifier()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    rig.until("/v2/models/real.clf/ready", |answer| answer.status == 200).await;
    put(&rig, "real.clf", "labels.txt", LABELS);
    put(&rig, "labels", "ensemble.toml", LABELLER);
    rig.until("/v2/models/labels/ready", |answer| answer.status == 200).await;
    rig
}

async fn post_parts(rig: &Rig, path: &str, parts: &[(&str, &[u8])]) -> Answer {
    let mut body = Vec::new();
    for (name, data) in parts {
        let head = format!(
            "--B\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\n"
        );
        body.extend([head.as_bytes(), data, b"\r\n"].concat());
    }
    body.extend(b"--B--\r\n");
    let request = request("POST", path).header("content-type", "multipart/form-data; boundary=B");
    rig.call(request.body(Body::from(body)).unwrap()).await
}

/// Images as binary data after the JSON.
async fn post_binary(rig: &Rig, model: &str, pictures: &[Vec<u8>], parameters: Value) -> Answer {
    let data = packed(pictures);
    let json = json!({
        "id": "7", "parameters": parameters,
        "inputs": [{"name": "image", "shape": [pictures.len()], "datatype": "BYTES",
            "parameters": {"binary_data_size": data.len()}}],
    })
    .to_string();
    let length = json.len();
    let request = request("POST", &format!("/v2/models/{model}/infer"))
        .header("inference-header-content-length", length);
    rig.call(request.body(Body::from([json.into_bytes(), data].concat())).unwrap()).await
}

fn packed(elements: &[Vec<u8>]) -> Vec<u8> {
    let one = |e: &Vec<u8>| [&u32::try_from(e.len()).unwrap().to_le_bytes()[..], e].concat();
    elements.iter().flat_map(one).collect()
}

/// Checks that an answer has the expected labels of each image.
fn check(answer: &Answer, pictures: &[Vec<u8>]) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let value = answer.json();
    let output = |name: &str| {
        let mut all = value["outputs"].as_array().unwrap().iter();
        all.find(|output| output["name"] == name).unwrap_or_else(|| panic!("{name} in {value}"))
    };
    let best: Vec<(usize, f32)> = pictures.iter().flat_map(|one| expected(one)).collect();
    let labels: Vec<&str> = LABELS.lines().collect();
    for (name, datatype) in [("label", "BYTES"), ("score", "FP32"), ("index", "INT64")] {
        let output = output(name);
        assert_eq!(output["datatype"], datatype);
        assert_eq!(output["shape"], json!([pictures.len(), 3]), "{name}");
    }
    for (at, (index, score)) in best.iter().enumerate() {
        assert_eq!(output("index")["data"][at], json!(index));
        assert_eq!(output("label")["data"][at], labels[*index]);
        let given = output("score")["data"][at].as_f64().unwrap();
        assert!((given - f64::from(*score)).abs() < 1e-5, "{given} for {score}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_goes_in_and_labels_come_out() {
    let rig = labeller(ServerConfig::default()).await;
    let path = "/v2/models/labels/infer";
    let (first, second) = (jpeg(37, 21, 40), png(16, 30, 200));
    check(&post_parts(&rig, path, &[("image", &first)]).await, std::slice::from_ref(&first));
    check(&post_parts(&rig, path, &[("image", &second)]).await, std::slice::from_ref(&second));
    let both = [first.clone(), second.clone()];
    check(&post_parts(&rig, path, &[("image", &first), ("image", &second)]).await, &both);
    check(&post_binary(&rig, "labels", &both, json!({})).await, &both);
    // A single raw image; the answer is raw too.
    let bare = request("POST", path).header("inference-header-content-length", "0");
    let answer = rig.call(bare.body(first.clone().into()).unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let index: Vec<u8> =
        expected(&first).iter().flat_map(|(index, _)| (*index as i64).to_le_bytes()).collect();
    assert!(answer.body.ends_with(&index), "{}", answer.text());

    let metadata = rig.get("/v2/models/labels").await.json();
    assert_eq!(
        metadata,
        json!({
            "name": "labels", "versions": ["1"], "platform": "ensemble",
            "inputs": [{"name": "image", "datatype": "BYTES", "shape": [-1]}],
            "outputs": [
                {"name": "label", "datatype": "BYTES", "shape": [-1, 3]},
                {"name": "score", "datatype": "FP32", "shape": [-1, 3]},
                {"name": "index", "datatype": "INT64", "shape": [-1, 3]},
            ],
        })
    );
    // The ensemble and its model count separately.
    for (name, count) in [("labels", 7), ("real.clf", 7)] {
        let stats = rig.get(&format!("/v2/models/{name}/stats")).await.json();
        assert_eq!(stats["model_stats"][0]["inference_count"], count, "{name}");
    }
    let page = rig.get("/metrics").await.text();
    assert!(page.contains(r#"nv_inference_count{model="labels",version="1"} 7"#), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_answers_the_same_alone_and_in_a_stream() {
    let rig = labeller(ServerConfig::default()).await;
    let pictures = [jpeg(37, 21, 40), png(16, 30, 200)];
    let message = |typed: bool| {
        let contents = InferTensorContents {
            bytes_contents: pictures.iter().map(|one| one.clone().into()).collect(),
            ..InferTensorContents::default()
        };
        let input = InferInputTensor {
            name: "image".to_owned(),
            datatype: "BYTES".to_owned(),
            shape: vec![2],
            contents: typed.then_some(contents),
            ..InferInputTensor::default()
        };
        let raw = if typed { vec![] } else { vec![packed(&pictures).into()] };
        ModelInferRequest {
            model_name: "labels".to_owned(),
            id: "9".to_owned(),
            inputs: vec![input],
            raw_input_contents: raw,
            ..ModelInferRequest::default()
        }
    };
    let best: Vec<i64> =
        pictures.iter().flat_map(|one| expected(one)).map(|(index, _)| index as i64).collect();
    let index: Vec<u8> = best.iter().flat_map(|index| index.to_le_bytes()).collect();
    let mut client = client(&rig, Some(&rig.bearer));
    for typed in [false, true] {
        let answer = client.model_infer(message(typed)).await.unwrap().into_inner();
        assert_eq!((answer.model_name.as_str(), answer.id.as_str()), ("labels", "9"));
        assert_eq!(answer.outputs[2].shape, [2, 3]);
        assert_eq!(answer.raw_output_contents[2], index);
    }
    let both = tokio_stream::iter([message(false), message(true)]);
    let mut answers = client.model_stream_infer(both).await.unwrap().into_inner();
    for _ in 0..2 {
        let answer = answers.message().await.unwrap().expect("an answer for each");
        assert_eq!(answer.error_message, "");
        assert_eq!(answer.infer_response.unwrap().raw_output_contents[2], index);
    }

    let (name, version) = ("labels".to_owned(), String::new());
    let asked = ModelMetadataRequest { name: name.clone(), version: version.clone() };
    let metadata = client.model_metadata(asked).await.unwrap().into_inner();
    assert_eq!(
        (metadata.platform.as_str(), &metadata.versions[..]),
        ("ensemble", &["1".to_owned()][..])
    );
    let asked = ModelConfigRequest { name: name.clone(), version: version.clone() };
    let config = client.model_config(asked).await.unwrap().into_inner().config.unwrap();
    assert_eq!((config.platform.as_str(), config.input.len()), ("ensemble", 1));
    assert_eq!(rig.get("/v2/models/labels/config").await.json()["platform"], "ensemble");
    let asked = ModelReadyRequest { name: name.clone(), version: version.clone() };
    assert!(client.model_ready(asked).await.unwrap().into_inner().ready);
    let asked = ModelStatisticsRequest { name, version };
    let stats = client.model_statistics(asked).await.unwrap().into_inner().model_stats;
    assert_eq!(stats[0].inference_count, 8);
    let asked = RepositoryIndexRequest::default();
    let index = client.repository_index(asked).await.unwrap().into_inner().models;
    let found = index.iter().find(|m| m.name == "labels").expect("it is listed");
    assert_eq!((found.state.as_str(), found.reason.as_str()), ("READY", ""));
    let listed = rig.get(MODELS).await.json();
    let listed = listed.as_array().unwrap().iter().find(|m| m["name"] == "labels").unwrap().clone();
    assert_eq!((&listed["state"], &listed["version"]), (&json!("ready"), &json!(1)));
    // The ensemble is ready when its models are.
    assert_eq!(rig.post(&format!("{MODELS}/real.clf/unload"), "").await.status, 200);
    rig.until("/v2/models/labels/ready", |answer| answer.status == 503).await;
    let refused = post_parts(&rig, "/v2/models/labels/infer", &[("image", &pictures[0])]).await;
    assert!(refused.status == 503 && refused.text().contains("real.clf"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_brings_elements_and_json_the_rest() {
    let rig = labeller(ServerConfig::default()).await;
    let path = "/v2/models/labels/versions/1/infer";
    let picture = jpeg(30, 20, 90);
    let rest = br#"{"id":"x7","outputs":[{"name":"index","parameters":{"binary_data":true}}]}"#;
    let answer = post_parts(&rig, path, &[("request", rest), ("image", &picture)]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (json, raw) = answer.body.split_at(answer.body.len() - 24);
    let json: Value = serde_json::from_slice(json).unwrap();
    assert_eq!((&json["id"], json["outputs"].as_array().unwrap().len()), (&json!("x7"), 1));
    let index: Vec<u8> =
        expected(&picture).iter().flat_map(|(index, _)| (*index as i64).to_le_bytes()).collect();
    assert_eq!(raw, index);

    // Models accept forms too, with inputs of other datatypes in the JSON.
    let x = br#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[-1,2]}]}"#;
    let answer = post_parts(&rig, "/v2/models/relu/infer", &[("request", x)]).await;
    assert_eq!(answer.json()["outputs"][0]["data"], json!([0.0, 2.0]), "{}", answer.text());
    let large = png(1200, 1200, 3);
    let padded = [&large[..], &vec![0; 3 << 20]].concat();
    check(&post_parts(&rig, path, &[("image", &padded)]).await, &[large]);

    for (path, parts, status, part) in [
        (
            path,
            vec![("photo", &picture[..])],
            400,
            "part 'photo' is no input, the model has 'image'",
        ),
        (path, vec![], 400, "input 'image' is missing"),
        (path, vec![("request", &b"{"[..]), ("image", &picture)], 400, "request body is not valid"),
        (path, vec![("request", b"{}"), ("request", b"{}")], 400, "two parts 'request'"),
        ("/v2/models/relu/infer", vec![("x", b"12345678")], 400, "part 'x' is an input of FP32"),
        ("/v2/models/nope/infer", vec![("x", b"")], 404, "nope"),
    ] {
        let answer = post_parts(&rig, path, &parts).await;
        assert_eq!(answer.status.as_u16(), status, "{part}: {}", answer.text());
        assert!(answer.text().contains(part), "{}", answer.text());
    }
    let form = request("POST", path).header("content-type", "multipart/form-data");
    let answer = rig.call(form.body(Body::from("x")).unwrap()).await;
    assert!(answer.status == 400 && answer.text().contains("boundary"), "{}", answer.text());
    let cut = request("POST", path).header("content-type", "multipart/form-data; boundary=B");
    let half = "--B\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nabc";
    let answer = rig.call(cut.body(Body::from(half)).unwrap()).await;
    assert!(answer.status == 400 && answer.text().contains("parts"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_bounded_as_other_bodies_are() {
    let server = ServerConfig { binary_bytes_max: 100_000, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let answer = post_parts(&rig, "/v2/models/relu/infer", &[("x", &[0; 100_001])]).await;
    assert!(answer.status == 413 && answer.text().contains("input_bytes_max"), "{}", answer.text());
    let parts = vec![("x", &b""[..]); 257];
    let answer = post_parts(&rig, "/v2/models/relu/infer", &parts).await;
    assert!(answer.status == 400 && answer.text().contains("256 parts"), "{}", answer.text());
}

/// A JPEG whose header claims another size.
fn claims(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = jpeg(8, 8, 1);
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame header");
    bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_that_cannot_be_used_are_named() {
    let rig = labeller(ServerConfig::default()).await;
    let good = || jpeg(8, 8, 1);
    let cut = png(30, 30, 1)[..60].to_vec();
    for (pictures, part) in [
        (vec![b"no picture".to_vec()], "input 'image', picture 0: the bytes begin as neither"),
        (vec![good(), cut], "input 'image', picture 1: the image does not decode"),
        (vec![good(), vec![]], "input 'image', picture 1: the bytes begin"),
        (vec![good(), claims(60_000, 60_000)], "picture 1: an image of 60000x60000 pixels"),
        (vec![claims(8_000, 5_000); 2], "input 'image' has 80000000 pixels, expected at most"),
        (vec![good(); 65], "input 'image' has 65 pictures, expected at most 64"),
    ] {
        let answer = post_binary(&rig, "labels", &pictures, json!({})).await;
        assert_eq!(answer.status, 400, "{part}: {}", answer.text());
        assert!(answer.text().contains(part), "{part}: {}", answer.text());
        assert!(answer.text().contains("step 1 (decode) of 'labels'"), "{}", answer.text());
    }
    let stats = rig.get("/v2/models/labels/stats").await.json();
    assert_eq!(stats["model_stats"][0]["inference_stats"]["fail"]["count"], 6);
    // A model refuses bytes that are not UTF-8 text.
    let x = json!({"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}]});
    let answer = rig.post("/v2/models/relu/infer", x.to_string()).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_the_same_time_get_their_own_answers() {
    let rig = labeller(ServerConfig::default()).await;
    let one = async |n: u8| {
        let picture = if n.is_multiple_of(2) { jpeg(20, 30, n * 8) } else { png(30, 20, n * 8) };
        let parts = [("image", &picture[..])];
        check(
            &post_parts(&rig, "/v2/models/labels/infer", &parts).await,
            std::slice::from_ref(&picture),
        );
    };
    futures_util::future::join_all((0..24).map(one)).await;
}

const DETECTOR: &str = r#"
inputs = [
    { name = "image", datatype = "BYTES", shape = [1] },
    { name = "raw", datatype = "FP32", shape = [1, 6, 8] },
]
outputs = [
    { name = "boxes" }, { name = "scores" }, { name = "classes" }, { name = "labels" },
    { name = "of", value = "pictures" },
]

[[steps]]
use = "decode"
inputs = { image = "image" }
outputs = { pictures = "decoded" }

[[steps]]
use = "nms"
format = "yolo"
iou = 0.5
score = 0.3
size = [10, 10]
labels = "real.clf"
inputs = { boxes = "raw", pictures = "decoded" }
outputs = { boxes = "boxes", scores = "scores", classes = "classes", labels = "labels", pictures = "pictures" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn boxes_come_out_in_pixels_of_the_picture() {
    let rig = labeller(ServerConfig::default()).await;
    put(&rig, "detector", "ensemble.toml", DETECTOR);
    // Centre, size and two scores of eight boxes: the second covers the first, the third is of the other class, the
    // fourth extends beyond the image, and the others score too low.
    let boxes = [
        [5.0, 5.0, 4.0, 4.0, 0.6, 0.1],
        [5.5, 5.0, 4.0, 4.0, 0.9, 0.1],
        [5.0, 5.0, 4.0, 4.0, 0.1, 0.8],
        [9.0, 9.0, 4.0, 4.0, 0.5, 0.0],
        [1.0, 1.0, 1.0, 1.0, 0.2, 0.29],
        [1.0, 1.0, 1.0, 1.0, 0.0, 0.0],
        [2.0, 1.0, 1.0, 1.0, 0.0, 0.0],
        [3.0, 1.0, 1.0, 1.0, 0.0, 0.0],
    ];
    let columns: Vec<f64> = (0..6).flat_map(|at| boxes.map(|row: [f64; 6]| row[at])).collect();
    let raw = json!({"inputs": [{"name": "raw", "shape": [1, 6, 8], "datatype": "FP32", "data": columns}]});
    let raw = raw.to_string();
    let parts = [("image", &png(100, 50, 9)[..]), ("request", raw.as_bytes())];
    let answer = post_parts(&rig, "/v2/models/detector/infer", &parts).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let value = answer.json();
    let data = |at: usize| value["outputs"][at]["data"].clone();
    assert_eq!(value["outputs"][0]["shape"], json!([3, 4]));
    let corners: Vec<f64> = serde_json::from_value(data(0)).unwrap();
    let expected = [35.0, 15.0, 75.0, 35.0, 30.0, 15.0, 70.0, 35.0, 70.0, 35.0, 100.0, 50.0];
    for (given, wanted) in corners.iter().zip(expected) {
        assert!((given - wanted).abs() < 1e-3, "{corners:?}");
    }
    assert_eq!(
        (data(2), data(3), data(4)),
        (json!([0, 1, 0]), json!(["cat", "dog", "cat"]), json!([0, 0, 0]))
    );
}

pub(crate) const INFER: &str =
    r#"{"inputs":[{"name":"a","shape":[1,2],"datatype":"FP32","data":[-1,2]}]}"#;
const TASKS: &str = "/api/v1/cluster/tasks";
