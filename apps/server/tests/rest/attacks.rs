//! Attacks that have taken down or opened other serving systems, by name.

mod escapes;
mod slow;
mod windows;

use crate::rig::{Options, PATIENCE, Rig, ask_with, listen, request};
use axum::body::Body;
use lgp_server::{ServerConfig, serve_grpc};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const MODELS: &str = "/api/v1/cluster/models";
const TASK: &str =
    r#"{"model":"relu","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

/// Ray's jobs API accepted work from anybody who reached its port (CVE-2023-48022).
#[tokio::test(flavor = "multi_thread")]
async fn work_of_strangers_is_refused() {
    let rig = Rig::start().await;
    let addr = listen(&rig).await;
    for path in ["/api/v1/cluster/tasks", "/api/v1/cluster/tasks/batch", "/api/v1/cluster/scale"] {
        let (status, text) = ask_with(addr, ("POST", path), None, TASK).await;
        assert!(status == 401 && text.contains("a key is needed"), "{path}: {status} {text}");
    }
    assert_eq!(rig.get("/api/v1/cluster/tasks").await.json(), json!([]));
}

/// TorchServe loaded models from any address in a request (CVE-2023-43654).
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_fetched_from_an_address() {
    let rig = Rig::start().await;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/m.onnx", elsewhere.local_addr().unwrap());
    let parameters = |name: &str| json!({ "parameters": { name: url } }).to_string();
    let load = "/v2/repository/models/relu/load";
    for (path, body) in [
        (load, parameters("config")),
        (load, parameters("file:1/model.onnx")),
        ("/api/v1/cluster/tasks", TASK.replace("relu", &url)),
        (&format!("{MODELS}/m"), url.clone()),
        (&format!("{MODELS}/{}", url.replace('/', "%2F")), "x".to_owned()),
        (&format!("{MODELS}/m?url={url}"), url.clone()),
    ] {
        let answer = rig.post(path, body).await;
        let status = answer.status.as_u16();
        assert!([400, 404, 501].contains(&status), "{path}: {status} {}", answer.text());
    }
    let came = tokio::time::timeout(Duration::from_millis(100), elsewhere.accept()).await;
    assert!(came.is_err(), "the server asked there");
}

/// A page of another site, or of a name that was made to resolve to this server.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_get_nothing() {
    let rig = Rig::start().await;
    let api =
        ["/v2/models/relu/infer", "/api/v1/cluster/tasks", "/api/v1/cluster/coordinator/stop"];
    for path in api {
        for (header, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:9999"),
            ("host", "evil.example"),
            ("host", "127.0.0.1.evil.example"),
        ] {
            let mut asked = request("POST", path).body(Body::from(TASK)).unwrap();
            asked.headers_mut().insert(header, value.parse().unwrap());
            let answer = rig.call(asked).await;
            assert_eq!(answer.status, 403, "{path} {header} {value}: {}", answer.text());
        }
        let asked = request("OPTIONS", path)
            .header("origin", "http://evil.example")
            .header("access-control-request-method", "POST");
        let answer = rig.call(asked.body(Body::empty()).unwrap()).await;
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{path}");
    }
}

/// Only pages of origins in the settings are served.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_known_sites_are_served() {
    const OURS: &str = "https://ours.example";
    let server = ServerConfig { origins: vec![OURS.to_owned()], ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let infer = "/v2/models/relu/infer";
    for (origin, is_known) in [(OURS, true), ("https://evil.example", false)] {
        let asked = request("OPTIONS", infer)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization");
        let preflight = rig.call(asked.body(Body::empty()).unwrap()).await;
        let asked = request("POST", infer).header("origin", origin);
        let answer =
            rig.call(asked.body(Body::from(TASK.replace(r#""model":"relu","#, ""))).unwrap());
        let answer = answer.await;
        assert_eq!(answer.status, if is_known { 200 } else { 403 }, "{}", answer.text());
        for headers in [&preflight.headers, &answer.headers] {
            let allowed = headers.get("access-control-allow-origin");
            assert_eq!(allowed.is_some_and(|allowed| allowed == origin), is_known, "{headers:?}");
        }
        let told =
            |name: &str| preflight.headers.get(name).map(|it| it.to_str().unwrap().to_owned());
        if is_known {
            assert!(told("access-control-allow-methods").unwrap().contains("POST"));
            assert!(told("access-control-allow-headers").unwrap().contains("authorization"));
            assert!(told("access-control-allow-credentials").is_none_or(|it| it != "true"));
        }
    }
}

/// The head of a listener's answer to bytes; empty if it closes the connection without an answer.
async fn exchange(addr: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // The listener may close the connection before all bytes are sent.
    let _ = stream.write_all(sent).await;
    let mut got = Vec::new();
    let head = async {
        while !got.windows(4).any(|part| part == b"\r\n\r\n") {
            if !stream.read_buf(&mut got).await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, head).await.expect("an answer");
    String::from_utf8_lossy(&got).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn lengths_that_lie_are_refused_before_anything_is_held() {
    let rig = Rig::start().await;
    let addr = listen(&rig).await;
    let infer = "POST /v2/models/relu/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let one = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}"#;
    let n = one.len();
    for (head, body, expected) in [
        ("Content-Length: 1000000000000\r\n".to_owned(), "", "413"),
        ("Content-Length: 18446744073709551616\r\n".to_owned(), "", "400"),
        ("Content-Length: -1\r\n".to_owned(), "", "400"),
        ("Content-Length: 4\r\nContent-Length: 5\r\n".to_owned(), "{}{}", "400"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n".to_owned(), "0\r\n\r\n", "400"),
        ("Transfer-Encoding: chunked\r\n".to_owned(), "fffffffffffffffff\r\n", "400"),
        (
            format!("Content-Length: {n}\r\nInference-Header-Content-Length: {}\r\n", n + 1),
            one,
            "400",
        ),
        (format!("Content-Length: {n}\r\nInference-Header-Content-Length: {n}\r\n"), one, "400"),
    ] {
        let answer = exchange(addr, format!("{infer}{head}\r\n{body}").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{head}: {answer:?}");
    }
    // A truncated body is not a request.
    let cut = format!("{infer}Content-Length: 1000\r\n\r\n{{\"inputs\"");
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(cut.as_bytes()).await.unwrap();
    drop(stream);
    let (status, _) = ask_with(addr, ("GET", "/v2/health/ready"), None, "").await;
    assert_eq!(status, 200);
}

/// A client that sends a byte now and then, too slowly.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_trickles_is_ended() {
    let server = ServerConfig { body_grace_ms: 200, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let addr = listen(&rig).await;
    for path in ["/v2/models/relu/infer", "/api/v1/cluster/models/slow"] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let key = &rig.bearer;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {key}\r\nConnection: \
             close\r\nContent-Length: 1000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut reads, mut writes) = stream.into_split();
        let trickle = tokio::spawn(async move {
            while writes.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let mut answer = String::new();
        let read = reads.read_to_string(&mut answer);
        let _ = tokio::time::timeout(PATIENCE, read).await.expect("it is ended");
        trickle.abort();
        assert!(answer.starts_with("HTTP/1.1 408"), "{path}: {answer:?}");
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call, as indices into HPACK's static table.
fn call() -> Vec<u8> {
    call_of("ServerLive")
}

fn call_of(name: &str) -> Vec<u8> {
    let path = format!("/inference.GRPCInferenceService/{name}").into_bytes();
    let named =
        |index: u8, value: &[u8]| [&[index, u8::try_from(value.len()).unwrap()], value].concat();
    [&[0x83, 0x86][..], &named(4, &path), &named(1, b"localhost")].concat()
}

/// Floods that have taken down HTTP/2 servers: rapid reset (CVE-2023-44487), settings, pings, endless headers
/// (CVE-2024-27316), and headers that expand when decoded.
#[tokio::test(flavor = "multi_thread")]
async fn floods_end_their_connection_and_nobody_elses() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const STREAMS: u32 = 20_000;
    let rig = Rig::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve_grpc(listener, None, rig.state.clone(), std::future::pending()));
    let ids = || (0..STREAMS).map(|n| 2 * n + 1);
    let reset = |id: u32| [frame(1, 4, id, &call()), frame(3, 0, id, &[0, 0, 0, 8])].concat();
    // A header of 4,000 bytes goes into the table and is then referenced repeatedly.
    let long = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'y'; 4000]].concat();
    let bomb = [call(), long, vec![0xbe; 12_000]].concat();
    for (name, flood, ends) in [
        ("rapid reset", ids().flat_map(reset).collect::<Vec<u8>>(), true),
        ("settings", frame(4, 0, 0, &[]).repeat(100_000), false),
        ("pings", frame(6, 0, 0, &[0; 8]).repeat(100_000), false),
        (
            "headers without end",
            [frame(1, 0, 1, &call()), frame(9, 0, 1, &[b'x'; 16_000]).repeat(1_000)].concat(),
            true,
        ),
        ("a bomb of headers", frame(1, 5, 1, &bomb), true),
    ] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).await.unwrap();
        let (mut reads, mut writes) = stream.into_split();
        let sending = tokio::spawn(async move {
            let sent = writes.write_all(&flood).await;
            // Kept open until the server has handled the bytes.
            (sent, writes)
        });
        let mut got = vec![0; 1 << 20];
        let mut ended = false;
        let patience = if ends { PATIENCE } else { Duration::from_millis(500) };
        let deadline = tokio::time::Instant::now() + patience;
        while let Ok(read) = tokio::time::timeout_at(deadline, reads.read(&mut got)).await {
            if matches!(read, Ok(0) | Err(_)) {
                ended = true;
                break;
            }
        }
        sending.abort();
        assert_eq!(ended, ends, "{name}: whether the connection is ended");
        // Other connections are served as before.
        let others = async {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let body = frame(0, 1, 1, &[0; 5]);
            let ask = [PREFACE, &frame(4, 0, 0, &[]), &frame(1, 4, 1, &call()), &body].concat();
            stream.write_all(&ask).await.unwrap();
            let mut all = Vec::new();
            let mut part = [0; 4096];
            while !all.windows(4).any(|part| part == b"grpc") {
                let read = stream.read(&mut part).await.unwrap();
                assert_ne!(read, 0, "{name}: another connection is ended");
                all.extend_from_slice(&part[..read]);
                // The answer's headers are compressed; its data frame, `live: true`, is not.
                if all.windows(7).any(|part| part == [0, 0, 0, 0, 2, 8, 1]) {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, others).await.unwrap_or_else(|_| panic!("{name}"));
    }
}
