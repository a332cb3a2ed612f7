//! The client against servers that refuse, fall silent or take long.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

#[test]
fn refusals_keep_what_the_coordinator_said() {
    let body = r#"{"error":{"code":"model_unknown","message":"no model","hint":"ls"}}"#;
    let failure = refusal(404, body);
    assert_eq!((failure.code.as_ref(), failure.message.as_str()), ("model_unknown", "no model"));
    assert_eq!((failure.hint.as_deref(), failure.exit), (Some("ls"), 1));
    for body in ["", "<html>", r#"{"error":"text"}"#, "[]"] {
        assert!(refusal(502, body).message.contains("502"), "{body}");
    }
}

#[test]
fn names_stay_names() {
    for (name, text) in [("a-1_b.c", "a-1_b.c"), ("a/../b?c", "a%2F..%2Fb%3Fc"), ("ü", "%C3%BC")] {
        assert_eq!(segment(name), text);
    }
}

#[test]
fn nobody_at_the_address_is_said_plainly() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = |server: Option<&str>| Target {
        data: Some(folder.path().to_owned()).filter(|_| server.is_none()),
        config: None,
        server: server.map(str::to_owned),
        key_file: None,
        ca: None,
        fingerprint: None,
    };
    let refused = target(None).connect().err().expect("nobody runs");
    assert_eq!(refused.code, "not_running");
    // Port 1 of the loopback interface is reserved and has no listener.
    let client = target(Some("http://127.0.0.1:1")).connect().expect("an address");
    assert_eq!(client.get::<Value>("stats").expect_err("nobody").code, "unreachable");
    assert_eq!(target(Some("ftp://x")).connect().err().expect("no address").exit, 2);
}

/// A client of a server at a port, with little patience.
fn client(listener: &TcpListener, patience_ms: u64) -> Client {
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let patience = Duration::from_millis(patience_ms);
    Client::within(patience, &url, None, None, &Trust::Public).expect("an address")
}

fn expect_silence<T>(what: &str, result: Result<T>) {
    let failure = result.err().expect(what);
    assert_eq!(failure.code, NOT_ANSWERING, "{what}: {failure}");
}

#[test]
fn a_silent_coordinator_is_not_waited_for() {
    // The system accepts connections on the listener's behalf, as for a stopped process, and takes data until its
    // buffers are full.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("m.onnx");
    let large = std::fs::File::create(&file).and_then(|file| file.set_len(64 << 20));
    large.expect("the folder is ours");
    let weights = BTreeMap::from([(PathBuf::from("w"), file.clone())]);
    let tensors = || [Cow::Owned(vec![0; 64 << 20])].into_iter();
    let null = Value::Null;
    let hidden = indicatif::ProgressBar::hidden;
    type Call<'a> = Box<dyn Fn(&Client) -> Result<Value> + 'a>;
    let calls: Vec<(&str, Call<'_>)> = vec![
        ("quick", Box::new(|client| client.get("stats"))),
        ("health", Box::new(|client| client.get_any("health"))),
        ("stop", Box::new(|client| client.post("coordinator/stop", &null))),
        ("cancel", Box::new(|client| client.delete("tasks/0-1"))),
        ("list", Box::new(|client| client.get("models"))),
        ("look up", Box::new(|client| client.get("models/m"))),
        ("load", Box::new(|client| client.post("models/m/load", &null))),
        ("remove", Box::new(|client| client.delete("models/m"))),
        ("deploy", Box::new(|client| client.patch("models/m/deployment", &null))),
        ("alias", Box::new(|client| client.put("aliases/a", &null))),
        ("scale", Box::new(|client| client.post("scale", &null))),
        ("drain", Box::new(|client| client.post("workers/w/drain", &null))),
        ("submit", Box::new(|client| client.post_binary("tasks", &null, [].into_iter()))),
        ("large", Box::new(|client| client.post_binary("tasks", &null, tensors()))),
        ("add", Box::new(|client| client.upload("models/m", &file, &BTreeMap::new(), &hidden()))),
        ("form", Box::new(|client| client.upload("models/m", &file, &weights, &hidden()))),
        ("wait", Box::new(|client| crate::task::wait(client, "0-1", None))),
    ];
    for (what, call) in calls {
        expect_silence(what, call(&client(&silent, 60)));
    }
}

/// Reads the head of a request.
fn head(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn a_coordinator_that_stops_in_the_middle_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = client(&listener, 60);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        head(&stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[1,").expect("sent");
        (listener, stream)
    });
    expect_silence("half an answer", client.get::<Value>("models"));
    server.join().expect("it served");
    expect_silence("the next one", client.get::<Value>("models"));
}

/// Answers with some JSON, and leaves the connection open.
fn answer(mut stream: &TcpStream, body: &str) {
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // A probe goes away once its request has been answered.
    let _ = stream.write_all(text.as_bytes());
}

#[test]
fn a_server_that_speaks_tls_is_told_from_one_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = client(&listener, 60_000);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        head(&stream);
        // A fatal alert, which TLS sends for data that is not TLS.
        stream.write_all(&[21, 3, 3, 0, 2, 2, 70]).expect("sent");
    });
    let failure = client.get::<Value>("stats").expect_err("no HTTP");
    assert_eq!(failure.code, "unreachable");
    let hint = failure.hint.expect("what to do");
    assert!(hint.contains("https://") && hint.contains("--fingerprint"), "{hint}");
    server.join().expect("it served");
}

#[test]
fn a_coordinator_that_cannot_be_reached_any_more_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = client(&listener, 600);
    let server = std::thread::spawn(move || {
        // Later connections are refused, but the request's connection stays open.
        let mut streams = listener.incoming().map(|stream| stream.expect("a connection"));
        streams.find(|stream| !head(stream).contains("/healthz"))
    });
    expect_silence("a load", client.post::<Value>("models/m/load", &Value::Null));
    assert!(server.join().expect("it served").is_some());
}

#[test]
fn a_slow_answer_of_a_coordinator_that_lives_is_waited_for() {
    const LOOKS: usize = 12;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = client(&listener, 2_000);
    let (looked, looks) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut looks, mut lost) = (Some(looks), None);
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.expect("a connection");
            if !head(&stream).contains("/healthz") {
                let looks = looks.take().expect("one request");
                std::thread::spawn(move || {
                    // These probes take longer than a silent coordinator would be waited for.
                    let mut connections: Vec<usize> = looks.iter().take(LOOKS).collect();
                    connections.dedup();
                    answer(&stream, &connections.len().to_string());
                });
            } else if lost.is_none() {
                // One probe without an answer ends nothing.
                lost = Some(stream);
            } else {
                let looked = looked.clone();
                std::thread::spawn(move || {
                    while looked.send(number).is_ok() {
                        answer(&stream, "\"ok\"");
                        if head(&stream).is_empty() {
                            break;
                        }
                    }
                });
            }
        }
    });
    let connections: usize = client.post("models/m/load", &Value::Null).expect("it lives");
    // On a busy machine a probe may be lost with its connection.
    assert!((1..=3).contains(&connections), "{connections} connections for {LOOKS} looks");
}

#[test]
fn an_end_is_waited_for_while_no_coordinator_leads() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = client(&listener, 2_000);
    let server = std::thread::spawn(move || {
        let refused = r#"{"error":{"code":"no_leader","message":"none leads"}}"#;
        let ended = r#"{"state":"succeeded"}"#;
        for (status, body) in [("503 Service Unavailable", refused), ("200 OK", ended)] {
            let (mut stream, _) = listener.accept().expect("a request");
            head(&stream);
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close");
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).expect("sent");
        }
    });
    let task = crate::task::wait(&client, "0-1", None);
    assert_eq!(task.expect("it ended")["state"], "succeeded");
    server.join().expect("it served");
}
