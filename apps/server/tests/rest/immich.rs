//! Immich's machine learning, called as Immich's server does, on small networks that have its models' inputs and
//! outputs and random weights.

mod clip;
mod faces;
mod ocr;
mod shapes;
mod watched;
mod wrong;

use crate::rig::{Options, PATIENCE, Rig};
use image::{ExtendedColorType, ImageEncoder};
use lgp_inference::{GraphBuilder, Repository};
use lgp_sdk::tensor::{DType, Dim, SymShape, Tensor, TensorType};
use lgp_server::{ServerConfig, serve_immich};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The form boundary of the HTTP library in Immich's server.
const BOUNDARY: &str = "----formdata-undici-039583213217";

/// A cluster that serves Immich.
struct Service {
    rig: Rig,
    addr: SocketAddr,
}

/// Status and text of the answer to a request over its own connection.
async fn ask(addr: SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let head = format!("{head}\r\nhost: {addr}\r\nconnection: close\r\n");
    let length = body.len();
    let head = format!("{head}content-length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(PATIENCE, read).await.expect("an answer in time").unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let (_, text) = answer.split_once("\r\n\r\n").expect("a body");
    (status.expect("a status line"), text.to_owned())
}

impl Service {
    async fn start() -> Self {
        Self::with(ServerConfig::default()).await
    }

    async fn with(server: ServerConfig) -> Self {
        let options = Options { server, runs_models: true, ..Options::default() };
        let rig = Rig::with(options).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve_immich(listener, rig.state.clone(), std::future::pending()));
        Self { rig, addr }
    }

    /// Adds a model to the repository, with files beside it.
    fn add(&self, name: &str, model: &[u8], files: &[(&str, &str)]) {
        let models = self.rig.folder.path().join("models");
        let entry = Repository::open(&models).unwrap().add_bytes(name, model).unwrap();
        for (file, text) in files {
            std::fs::write(entry.path.with_file_name(file), text).unwrap();
        }
    }

    /// Status and text of the answer to a request over its own connection.
    async fn ask(&self, head: &str, body: &[u8]) -> (u16, String) {
        ask(self.addr, head, body).await
    }

    async fn predict(&self, form: &[u8]) -> (u16, Value) {
        let head = format!(
            "POST /predict HTTP/1.1\r\ncontent-type: multipart/form-data; boundary={BOUNDARY}\r\n\
             accept: */*\r\naccept-language: *\r\nsec-fetch-mode: cors\r\nuser-agent: node\r\n\
             accept-encoding: gzip, deflate"
        );
        let (status, text) = self.ask(&head, form).await;
        (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// The answer to a request that must succeed.
    async fn answer(&self, form: &[u8]) -> Value {
        let (status, answer) = self.predict(form).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Status and message of a refusal.
    async fn refusal(&self, form: &[u8]) -> (u16, String) {
        let (status, answer) = self.predict(form).await;
        (status, answer["detail"].as_str().expect("why").to_owned())
    }
}

/// Asks a listener for the embedding of an image, by a model of this name.
pub(crate) async fn ask_for(addr: SocketAddr, model: &str) -> (u16, String) {
    let entries = serde_json::json!({ "clip": { "visual": { "modelName": model } } });
    let body = with_image(&entries, &Image::noise(9, 9, 1).png());
    let head =
        format!("POST /predict HTTP/1.1\r\ncontent-type: Multipart/Form-Data; boundary={BOUNDARY}");
    ask(addr, &head, &body).await
}

/// A part of a form: its name, whether it is a file, and its content.
type Part<'a> = (&'a str, bool, &'a [u8]);

fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, is_file, content) in parts {
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"");
        bytes.extend(head.bytes());
        if *is_file {
            bytes.extend(b"; filename=\"blob\"\r\nContent-Type: application/octet-stream");
        }
        bytes.extend(b"\r\n\r\n");
        bytes.extend(*content);
        bytes.extend(b"\r\n");
    }
    bytes.extend(format!("--{BOUNDARY}--\r\n").bytes());
    bytes
}

fn with_image(entries: &Value, image: &[u8]) -> Vec<u8> {
    form(&[("entries", false, entries.to_string().as_bytes()), ("image", true, image)])
}

fn with_text(entries: &Value, text: &str) -> Vec<u8> {
    form(&[("entries", false, entries.to_string().as_bytes()), ("text", false, text.as_bytes())])
}

/// Pixels in RGB, row by row.
#[derive(Clone)]
struct Image {
    width: usize,
    height: usize,
    data: Vec<u8>,
}

impl Image {
    fn of(width: usize, height: usize, colour: impl Fn(usize, usize) -> [u8; 3]) -> Self {
        let all = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let data = all.flat_map(|(x, y)| colour(x, y)).collect();
        Self { width, height, data }
    }

    /// Random colours.
    fn noise(width: usize, height: usize, seed: u64) -> Self {
        let values = numbers(seed, width * height * 3);
        let data = values.iter().map(|value| ((value + 1.0) * 127.0) as u8).collect();
        Self { width, height, data }
    }

    fn at(&self, x: usize, y: usize, channel: usize) -> f32 {
        f32::from(self.data[(y * self.width + x) * 3 + channel])
    }

    fn png(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (width, height) = (self.width.try_into().unwrap(), self.height.try_into().unwrap());
        image::codecs::png::PngEncoder::new(&mut bytes)
            .write_image(&self.data, width, height, ExtendedColorType::Rgb8)
            .unwrap();
        bytes
    }
}

/// Random numbers from -1 to 1.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A type whose dimension is open where `dims` has 0.
fn ty(dtype: DType, dims: &[usize]) -> TensorType {
    let dim = |&size: &usize| match size {
        0 => Dim::Symbol("n".into()),
        size => Dim::Known(size),
    };
    TensorType { dtype, shape: Some(SymShape(dims.iter().map(dim).collect())) }
}

/// An f32 type whose open dimensions vary independently.
fn ty_any(dims: &[Option<usize>]) -> TensorType {
    let dim = |size: &Option<usize>| size.map_or(Dim::Unknown, Dim::Known);
    TensorType { dtype: DType::F32, shape: Some(SymShape(dims.iter().map(dim).collect())) }
}

fn tensor(dims: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(dims.to_vec(), values).unwrap()
}

fn finish(graph: GraphBuilder) -> Vec<u8> {
    graph.finish().unwrap().to_onnx().unwrap()
}

/// The numbers of an embedding as Immich stores it.
fn embedding(value: &Value) -> Vec<f32> {
    serde_json::from_str(value.as_str().expect("JSON in a string")).unwrap()
}

fn assert_near(given: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(given.len(), expected.len());
    let worst = given.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= tolerance, "{given:?} is {worst} away from {expected:?}");
}
