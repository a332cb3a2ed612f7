//! Clients that do not take their answers, or stay silent: what they may hold, and how long.

use super::{call, call_of, frame};
use crate::frigate::{self, Client as Detector};
use crate::grpc::request as message;
use crate::rig::{Options, PATIENCE, Rig, listen};
use lgp_server::{ServerConfig, serve_grpc};
use prost::Message;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The stall limit for a client that takes nothing of its answer.
const STALL: Duration = Duration::from_millis(400);

fn impatient(stall: Duration) -> ServerConfig {
    let body_timeout_ms = u64::try_from(stall.as_millis()).unwrap();
    ServerConfig { body_timeout_ms, ..ServerConfig::default() }
}

/// Requests an answer with twice as many bytes as the sent tensor, and reads the answer's head.
async fn ask(addr: SocketAddr, bytes: usize) -> (TcpStream, String) {
    let rows = bytes / 8;
    let json = format!(
        r#"{{"inputs":[{{"name":"x","shape":[{rows},2],"datatype":"FP32","parameters":
           {{"binary_data_size":{bytes}}}}}],"parameters":{{"binary_data_output":true}}}}"#
    );
    let (length, all) = (json.len(), json.len() + bytes);
    let head = format!(
        "POST /v2/models/relu/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Inference-Header-Content-Length: {length}\r\nContent-Length: {all}\r\n\r\n{json}"
    );
    // A small receive buffer, so that the system takes little of the answer by itself.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut stream = socket.connect(addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![0; bytes]).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an answer");
        head.push(byte.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

/// Reads to the end, at most `at_a_time` bytes per `pause`.
async fn read(stream: &mut TcpStream, at_a_time: usize, pause: Duration) -> usize {
    let (mut all, mut part) = (0, vec![0; at_a_time]);
    let reading = async {
        while let Ok(count @ 1..) = stream.read(&mut part).await {
            all += count;
            tokio::time::sleep(pause).await;
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("it ends");
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_of_its_answer_is_cut_off() {
    const BYTES: usize = 24 << 20;
    let rig = Rig::with(Options { server: impatient(STALL), ..Options::default() }).await;
    let addr = listen(&rig).await;
    let (mut stuck, head) = ask(addr, BYTES).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // A slow client that keeps taking gets the whole answer.
    let (mut slow, _) = ask(addr, BYTES).await;
    let all = read(&mut slow, 1 << 20, STALL / 20).await;
    assert!(all > 2 * BYTES, "{all} bytes");
    tokio::time::sleep(2 * STALL).await;
    let some = read(&mut stuck, 1 << 20, Duration::ZERO).await;
    assert!(some < 2 * BYTES, "{some} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_is_cut_off_sooner_where_others_wait_for_room() {
    const BYTES: usize = 12 << 20;
    let stall = 30 * STALL;
    let server = ServerConfig { bodies_bytes_max: 32 << 20, ..impatient(stall) };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let addr = listen(&rig).await;
    let (mut stuck, head) = ask(addr, BYTES).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // Small answers have their own share of the room.
    assert!(ask(addr, 8).await.1.starts_with("HTTP/1.1 200"));
    let began = Instant::now();
    let (_, served) = ask(addr, BYTES).await;
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    assert!(began.elapsed() < stall / 2, "{:?}", began.elapsed());
    let some = read(&mut stuck, 1 << 20, Duration::ZERO).await;
    assert!(some < 2 * BYTES, "{some} bytes");
}

/// A flow-control window that stays closed (CVE-2019-9517).
#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_stays_closed_ends_its_connection() {
    let rig = Rig::with(Options { server: impatient(STALL), ..Options::default() }).await;
    let addr = listen_grpc(&rig).await;
    let no_window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let ask = [frame(1, 4, 1, &call()), frame(0, 1, 1, &[0; 5])].concat();
    for (settings, ask, ends) in [
        (&no_window, &ask, true),
        (&frame(4, 0, 0, &[]), &ask, false),
        (&no_window, &vec![], false),
    ] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&[PREFACE, settings, ask].concat()).await.unwrap();
        let mut part = vec![0; 1 << 16];
        let reading = async { while let Ok(1..) = stream.read(&mut part).await {} };
        let patience = if ends { PATIENCE } else { 3 * STALL };
        let ended = tokio::time::timeout(patience, reading).await.is_ok();
        assert_eq!(ended, ends, "{} bytes asked", ask.len());
    }
}

async fn listen_grpc(rig: &Rig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve_grpc(listener, None, rig.state.clone(), std::future::pending()));
    addr
}

/// A connection with a stream that sends one request and then nothing.
async fn silent(addr: SocketAddr, model: &str) -> TcpStream {
    let asked = message(model, [1.0, 2.0]).encode_to_vec();
    let length = u32::try_from(asked.len()).unwrap().to_be_bytes();
    let asked = [&[0][..], &length, &asked].concat();
    let call = frame(1, 4, 1, &call_of("ModelStreamInfer"));
    let all = [PREFACE, &frame(4, 0, 0, &[]), &call, &frame(0, 0, 1, &asked)].concat();
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(&all).await.unwrap();
    stream
}

/// Reads until a text arrives; false if the connection ends before.
async fn tells(stream: &mut TcpStream, text: &str) -> bool {
    let mut all = Vec::new();
    let reading = async {
        while !all.windows(text.len()).any(|part| part == text.as_bytes()) {
            if !stream.read_buf(&mut all).await.is_ok_and(|read| read > 0) {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("an answer or an end")
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_streams_make_room_for_others_and_busy_ones_do_not() {
    const ANSWER: &str = "triton_final_response";
    let server = ServerConfig { connections_max: 6, ..ServerConfig::default() };
    let rig = Rig::with(Options { server, ..Options::default() }).await;
    let addr = listen_grpc(&rig).await;
    let mut quiet = Vec::new();
    for _ in 0..5 {
        let mut stream = silent(addr, "relu").await;
        assert!(tells(&mut stream, ANSWER).await);
        quiet.push(stream);
    }
    let mut busy = silent(addr, "gated").await;
    // The connection finds no free place and gets that of a silent one.
    let mut other = TcpStream::connect(addr).await.unwrap();
    let live = [frame(1, 4, 1, &call()), frame(0, 1, 1, &[0; 5])].concat();
    other.write_all(&[PREFACE, &frame(4, 0, 0, &[]), &live].concat()).await.unwrap();
    assert!(tells(&mut other, "\x08\x01").await, "live: true");
    let mut ended = 0;
    for stream in &mut quiet {
        let end = tokio::time::timeout(STALL / 2, tells(stream, "nothing more")).await;
        ended += usize::from(end == Ok(false));
    }
    assert_eq!(ended, 1, "each other one goes on");
    rig.gate.open();
    assert!(tells(&mut busy, ANSWER).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_detectors_make_room_for_others() {
    let limits = ServerConfig { frigate_timeout_ms: 10_000, ..ServerConfig::default() };
    let (_rig, addr) = frigate::start(limits).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(Detector::connect(addr).await);
    }
    let asks = serde_json::json!({ "model_request": true, "model_name": "m.onnx" });
    for detector in &mut silent {
        assert_eq!(detector.tell(asks.clone(), &[]).await["model_available"], false);
    }
    let other = tokio::time::timeout(PATIENCE, Detector::connect(addr)).await;
    let answer = other.expect("room").tell(asks, &[]).await;
    assert_eq!(answer["model_available"], false, "{answer}");
}
