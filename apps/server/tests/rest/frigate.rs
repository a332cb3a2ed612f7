//! Frigate's detector, with the bytes that its ZeroMQ library sends.

mod watched;

use crate::rig::{Options, PATIENCE, Rig};
use lgp_inference::GraphBuilder;
use lgp_sdk::tensor::{DType, Dim, SymShape, TensorType};
use lgp_server::{ServerConfig, serve_frigate};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An image of 2 × 7 pixels that a network returns unchanged: two rows of an SSD network.
const IMAGE: [f32; 14] =
    [0.0, 3.0, 0.75, 0.125, 0.25, 0.375, 0.5, 0.0, 5.0, 0.5, 0.0, 0.0, 1.0, 1.0];

pub(crate) fn onnx(more: &str) -> Vec<u8> {
    let shape = SymShape([1, 1, 2, 7].map(Dim::Known).to_vec());
    let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
    let mut graph = GraphBuilder::new(more);
    let image = graph.input("image", ty.clone());
    let found = graph.node("Relu", &[image], []);
    graph.output("found", found, ty);
    graph.finish().unwrap().to_onnx().unwrap()
}

/// A REQ socket.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let mut greeting = [0; 64];
        greeting[0] = 0xff;
        greeting[9..12].copy_from_slice(&[0x7f, 3, 1]);
        greeting[12..16].copy_from_slice(b"NULL");
        // The library also sends ten bytes first, and the rest after the other end's greeting.
        stream.write_all(&greeting[..10]).await.unwrap();
        let mut theirs = [0; 64];
        stream.read_exact(&mut theirs).await.unwrap();
        assert_eq!((theirs[0], theirs[9], theirs[10]), (0xff, 0x7f, 3));
        stream.write_all(&greeting[10..]).await.unwrap();
        let ready = b"\x05READY\x0bSocket-Type\0\0\0\x03REQ\x08Identity\0\0\0\0";
        stream.write_all(&[4, u8::try_from(ready.len()).unwrap()]).await.unwrap();
        stream.write_all(ready).await.unwrap();
        let mut client = Self(stream);
        let (flags, ready) = client.frame().await.unwrap();
        assert_eq!(flags & 4, 4);
        assert!(ready.starts_with(b"\x05READY"), "{ready:?}");
        client
    }

    async fn frame(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let flags = self.0.read_u8().await?;
        let length = match flags & 2 {
            0 => u64::from(self.0.read_u8().await?),
            _ => self.0.read_u64().await?,
        };
        let mut content = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut content).await?;
        Ok((flags, content))
    }

    pub(crate) async fn ask(&mut self, parts: &[&[u8]]) -> std::io::Result<Vec<Vec<u8>>> {
        let mut bytes = vec![1, 0];
        for (i, part) in parts.iter().enumerate() {
            bytes.push(2 | u8::from(i + 1 < parts.len()));
            bytes.extend(u64::try_from(part.len()).unwrap().to_be_bytes());
            bytes.extend(*part);
        }
        self.0.write_all(&bytes).await?;
        let answer = async {
            assert_eq!(self.frame().await?, (1, Vec::new()), "the envelope");
            let mut parts = Vec::new();
            loop {
                let (flags, part) = self.frame().await?;
                parts.push(part);
                if flags & 1 == 0 {
                    return Ok(parts);
                }
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time")
    }

    /// Sends a request whose answer is one part of JSON.
    pub(crate) async fn tell(&mut self, header: Value, model: &[&[u8]]) -> Value {
        let header = header.to_string();
        let parts = self.ask(&[&[header.as_bytes()], model].concat()).await.unwrap();
        assert_eq!(parts.len(), 1);
        serde_json::from_slice(&parts[0]).unwrap()
    }

    /// The description of the answer to an image, and its first two rows; the others must be zero.
    async fn detect(&mut self, header: Value, image: &[f32]) -> (Value, [[f32; 6]; 2]) {
        let bytes: Vec<u8> = image.iter().flat_map(|value| value.to_le_bytes()).collect();
        let parts = self.ask(&[header.to_string().as_bytes(), &bytes]).await.unwrap();
        let description: Value = serde_json::from_slice(&parts[0]).unwrap();
        assert_eq!(
            (&description["shape"], &description["dtype"]),
            (&json!([20, 6]), &json!("float32"))
        );
        let (values, _) = parts[1].as_chunks::<4>();
        let values: Vec<f32> = values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(values.len(), 120);
        assert!(values[12..].iter().all(|value| *value == 0.0));
        (description, [values[..6].try_into().unwrap(), values[6..12].try_into().unwrap()])
    }
}

fn image() -> Value {
    json!({ "shape": [1, 1, 2, 7], "dtype": "float32", "model_type": "ssd" })
}

pub(crate) async fn start(server: ServerConfig) -> (Rig, SocketAddr) {
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve_frigate(listener, rig.state.clone(), std::future::pending()));
    (rig, addr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detector_sends_its_model_and_gets_boxes() {
    let limits = ServerConfig { frigate_timeout_ms: 10_000, ..ServerConfig::default() };
    let (rig, addr) = start(limits).await;
    let mut client = Client::connect(addr).await;
    let asks = json!({ "model_request": true, "model_name": "m.onnx" });
    let sends = json!({ "model_data": true, "model_name": "m.onnx" });
    let answer = client.tell(asks.clone(), &[]).await;
    assert_eq!(
        (&answer["model_available"], &answer["model_loaded"]),
        (&false.into(), &false.into())
    );
    let answer = client.tell(sends.clone(), &[&onnx("m")]).await;
    assert_eq!(
        (&answer["model_saved"], &answer["model_loaded"]),
        (&true.into(), &true.into()),
        "{answer}"
    );
    let expected = [[3.0, 0.75, 0.25, 0.125, 0.5, 0.375], [5.0, 0.5, 0.0, 0.0, 1.0, 1.0]];
    let (description, rows) = client.detect(image(), &IMAGE).await;
    assert_eq!((description.get("error"), rows), (None, expected));

    // Another detector finds the model or sends it again; a different model is refused.
    let mut other = Client::connect(addr).await;
    let answer = other.tell(asks.clone(), &[]).await;
    assert_eq!((&answer["model_available"], &answer["model_loaded"]), (&true.into(), &true.into()));
    assert_eq!(other.detect(image(), &IMAGE).await.1, expected);
    assert_eq!(other.tell(sends.clone(), &[&onnx("m")]).await["model_saved"], true);
    let answer = other.tell(sends, &[&onnx("another")]).await;
    assert_eq!(answer["model_saved"], false);
    assert!(answer["message"].as_str().unwrap().contains("another model 'frigate.m'"), "{answer}");

    let listed = rig.get("/api/v1/cluster/models").await.json();
    let own = listed.as_array().unwrap().iter().filter(|model| model["name"] == "frigate.m");
    assert_eq!(own.map(|model| &model["version"]).collect::<Vec<_>>(), [1]);
    let audit = std::fs::read_to_string(rig.folder.path().join("audit.log")).unwrap();
    let pushed = audit.lines().filter(|line| line.contains(r#""method":"PUSH","path":"frigate.m"#));
    assert_eq!(pushed.filter(|line| line.ends_with(r#""status":201}"#)).count(), 2, "{audit}");

    // A detector's request loads the model again.
    assert_eq!(rig.post("/api/v1/cluster/models/frigate.m/unload", "{}").await.status, 200);
    let (description, rows) = client.detect(image(), &IMAGE).await;
    assert!(description["error"].as_str().unwrap().contains("not ready"), "{description}");
    assert_eq!(rows, [[0.0; 6]; 2]);
    assert_eq!(client.tell(asks, &[]).await["model_loaded"], true);
    assert_eq!(client.detect(image(), &IMAGE).await.1, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_answered_without_boxes() {
    let limits = ServerConfig { frigate_timeout_ms: 10_000, ..ServerConfig::default() };
    let (_rig, addr) = start(limits).await;
    let mut client = Client::connect(addr).await;
    let long = "n".repeat(64);
    for (name, model, part) in [
        ("../m.onnx", onnx("m"), "'frigate.../m' is not valid"),
        (&long, onnx("m"), "is not valid"),
        ("text.onnx", b"no model".to_vec(), ""),
        ("unloadable.onnx", onnx("m"), "no worker can load"),
    ] {
        let sends = json!({ "model_data": true, "model_name": name });
        let answer = client.tell(sends, &[&model]).await;
        assert_eq!(
            (&answer["model_saved"], &answer["model_loaded"]),
            (&false.into(), &false.into())
        );
        assert!(answer["message"].as_str().unwrap().contains(part), "{answer}");
    }
    let sends = json!({ "model_data": true, "model_name": "m.onnx" });
    assert_eq!(client.tell(sends, &[&onnx("m")]).await["model_loaded"], true);
    for (key, value, part) in [
        ("model_type", json!("nanodet"), "nanodet"),
        ("model_type", json!("yolonas2"), "expected yolo-generic"),
        ("model_type", json!("rfdetr"), "outputs have the shapes"),
        ("dtype", json!("uint8"), "does not fit its shape"),
        ("dtype", json!("object"), "object"),
        ("shape", json!([14]), "expected [1, 3, height, width]"),
        ("shape", json!([1, 3, 0, 7]), "0 pixels"),
        ("shape", json!([1, 2, 7, 1]), "dimension"),
        ("shape", json!([1, 1, 2, 8]), "does not fit its shape"),
        ("shape", json!("?"), "the description is not valid"),
    ] {
        let mut header = image();
        header[key] = value;
        let (description, rows) = client.detect(header, &IMAGE).await;
        let error = description["error"].as_str().unwrap_or_default();
        assert!(error.contains(part), "{error:?} lacks {part:?}");
        assert_eq!(rows, [[0.0; 6]; 2], "{part}");
    }
    let parts = client.ask(&[b"{}"]).await.unwrap();
    assert!(String::from_utf8_lossy(&parts[0]).contains("without a tensor"));
    assert_eq!(client.detect(image(), &IMAGE).await.0.get("error"), None, "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_is_answered_without_boxes() {
    let limits = ServerConfig { frigate_timeout_ms: 100, ..ServerConfig::default() };
    let (rig, addr) = start(limits).await;
    let mut client = Client::connect(addr).await;
    let sends = json!({ "model_data": true, "model_name": "gated.onnx" });
    assert_eq!(client.tell(sends, &[&onnx("m")]).await["model_loaded"], true);
    let (description, rows) = client.detect(image(), &IMAGE).await;
    assert_eq!(rows, [[0.0; 6]; 2]);
    assert!(!description["error"].as_str().unwrap().is_empty());
    rig.gate.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_cannot_be_served_end() {
    let limits =
        ServerConfig { body_bytes_max: 64, model_bytes_max: 1_000, ..ServerConfig::default() };
    let (_rig, addr) = start(limits).await;
    let model = json!({ "model_data": true, "model_name": "m.onnx" }).to_string();
    let image = image().to_string();
    for (parts, why) in [
        (vec![image.as_bytes(), &[0; 56]], "no model was asked for"),
        (vec![image.as_bytes(), &[0; 65]], "a tensor that is too large"),
        (vec![model.as_bytes(), &[0; 1_001]], "a model that is too large"),
        (vec![model.as_bytes(), b"", b""], "a third part"),
        (vec![&[b' '; (64 << 10) + 1]], "a description that is too large"),
    ] {
        let mut client = Client::connect(addr).await;
        assert!(client.ask(&parts).await.is_err(), "{why}");
    }
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let (rig, _) = start(ServerConfig::default()).await;
    let refused = serve_frigate(listener, rig.state.clone(), std::future::pending()).await;
    assert!(
        refused.expect_err("others reach it").to_string().contains("neither keys nor encryption")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ask_have_a_model_loaded_once() {
    // Polling is off, so nothing else loads the models.
    let (rig, addr) = start(ServerConfig { models_poll_ms: 0, ..ServerConfig::default() }).await;
    let models = lgp_inference::Repository::open(rig.folder.path().join("models")).unwrap();
    for name in ["frigate.unloadable", "frigate.slow", "unloadable.visual"] {
        models.add_bytes(name, &onnx("m")).unwrap();
    }
    let asks = async |file: &str| {
        let asks = json!({ "model_request": true, "model_name": file });
        Client::connect(addr).await.tell(asks, &[]).await
    };
    let loads = |name: &str| rig.gate.loads_of(name);
    // After a failed load, requests do not retry it, but an administrator does.
    for expected in [1, 3] {
        for _ in 0..3 {
            let answer = asks("unloadable.onnx").await;
            let message = answer["message"].as_str().unwrap();
            assert!(message.contains("no worker can load"), "{answer}");
            assert_eq!(loads("frigate.unloadable"), expected);
        }
        let order = rig.post("/v2/repository/models/frigate.unloadable/load", "").await;
        assert_eq!(order.status, 400, "{}", order.text());
    }
    let immich = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let immich_addr = immich.local_addr().unwrap();
    let serving = lgp_server::serve_immich(immich, rig.state.clone(), std::future::pending());
    tokio::spawn(serving);
    for _ in 0..3 {
        let (status, text) = crate::immich::ask_for(immich_addr, "unloadable").await;
        assert!(status == 400 && text.contains("no worker can load"), "{status} {text}");
    }
    assert_eq!(loads("unloadable.visual"), 1);
    // Requests during a load wait for that load.
    let opens = async {
        while loads("frigate.slow") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        rig.gate.open();
    };
    let (one, other, ()) = tokio::join!(asks("slow.onnx"), asks("slow.onnx"), opens);
    for answer in [one, other] {
        assert_eq!(answer["model_loaded"], true, "{answer}");
    }
    assert_eq!(loads("frigate.slow"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_another_to_send_has_time_of_its_own() {
    let limits = ServerConfig { body_timeout_ms: 400, ..ServerConfig::default() };
    let (_rig, addr) = start(limits).await;
    let model = onnx("m");
    let head = |file: &str| json!({ "model_data": true, "model_name": file }).to_string();
    let mut slow = Client::connect(addr).await;
    let header = head("a.onnx");
    let mut bytes = vec![1, 0, 1, u8::try_from(header.len()).unwrap()];
    bytes.extend(header.as_bytes());
    bytes.push(2);
    bytes.extend(u64::try_from(model.len()).unwrap().to_be_bytes());
    slow.0.write_all(&bytes).await.unwrap();
    let sends = async {
        for piece in model.chunks(model.len() / 8 + 1) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            slow.0.write_all(piece).await.unwrap();
        }
        assert_eq!(slow.frame().await.unwrap(), (1, Vec::new()));
        serde_json::from_slice::<Value>(&slow.frame().await.unwrap().1).unwrap()
    };
    let waits = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let sends = json!({ "model_data": true, "model_name": "b.onnx" });
        Client::connect(addr).await.tell(sends, &[&model]).await
    };
    let both = tokio::time::timeout(PATIENCE, async { tokio::join!(sends, waits) });
    let (first, second) = both.await.expect("answers in time");
    for answer in [first, second] {
        assert_eq!(answer["model_saved"], true, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_for_ever_does_not_keep_others_from_sending() {
    let limits = ServerConfig { body_timeout_ms: 200, ..ServerConfig::default() };
    let (_rig, addr) = start(limits).await;
    let header = json!({ "model_data": true, "model_name": "a.onnx" }).to_string();
    let mut bytes = vec![1, 0, 1, u8::try_from(header.len()).unwrap()];
    bytes.extend(header.as_bytes());
    bytes.push(2);
    bytes.extend(1_000_000_u64.to_be_bytes());
    let mut slow = Client::connect(addr).await;
    slow.0.write_all(&bytes).await.unwrap();
    let trickle = async {
        while slow.0.write_all(&[0]).await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let other = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let sends = json!({ "model_data": true, "model_name": "b.onnx" });
        Client::connect(addr).await.tell(sends, &[&onnx("m")]).await
    };
    let both = tokio::time::timeout(PATIENCE, async { tokio::join!(trickle, other) });
    let ((), answer) = both.await.expect("it is cut off");
    assert_eq!(answer["model_saved"], true, "{answer}");
}
