//! A server that refuses everything in one way or another, and how that is reported.

use super::{Line, PATIENCE, at, open, refusal};
use crate::Error;
use crate::net::transfer::blobs::tests::laws::{Run, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The answer to each request, by its first line.
type Answers = Arc<Mutex<Box<dyn Fn(&str) -> Vec<u8> + Send>>>;

/// Listens, and answers each request on a connection of its own; an empty answer never comes.
fn server(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let answers: Answers = Arc::new(Mutex::new(Box::new(answer)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || serve(stream, &answers));
        }
    });
    endpoint
}

fn serve(stream: TcpStream, answers: &Answers) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut first).ok()?;
    while reader.read_line(&mut line).ok()? > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    let answer = answers.lock().unwrap()(&first);
    if answer.is_empty() {
        std::thread::sleep(PATIENCE * 3);
    }
    (&stream).write_all(&answer).ok()
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into()
}

fn error(status: &str, code: &str) -> Vec<u8> {
    let said = format!("<Code>{code}</Code><Message>what {code} means</Message>");
    answer(status, &format!("<?xml version=\"1.0\"?><Error>{said}</Error>"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_refuses_is_said_with_what_to_do() {
    let cases = [
        ("403 Forbidden", "InvalidAccessKeyId", "correct AWS_ACCESS_KEY_ID"),
        ("403 Forbidden", "SignatureDoesNotMatch", "correct AWS_SECRET_ACCESS_KEY"),
        ("403 Forbidden", "AccessDenied", "grant it s3:ListBucket"),
        ("400 Bad Request", "ExpiredToken", "set a new AWS_SESSION_TOKEN"),
        ("403 Forbidden", "RequestTimeTooSkewed", "set that of this machine"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "correct AWS_REGION"),
        ("404 Not Found", "NoSuchBucket", "make it, or correct the address"),
        ("503 Slow Down", "SlowDown", "it has too much to do"),
        ("403 Forbidden", "QuotaExceeded", "make room there"),
        ("418 I'm a teapot", "Teapot", "what Teapot means"),
    ];
    for (status, code, advice) in cases {
        let endpoint = server(move |_| error(status, code));
        let said = refusal(&at("s3://tensors", &endpoint, &[])).await;
        assert!(said.contains(advice), "{code}: {said}");
        assert!(said.contains(&format!("what {code} means")), "{code}: {said}");
        assert!(!said.contains("swordfish"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_server_is_said_within_bounded_time() {
    let silent = server(|_| Vec::new());
    // Bytes without an end, and an answer that breaks off.
    let endless = server(|_| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec();
        [head, vec![b'x'; 20 << 20]].concat()
    });
    let broken = server(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec());
    let other = server(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
    let web = server(|_| answer("200 OK", "<html>welcome</html>"));
    let moved = server(|_| {
        b"HTTP/1.1 302 Found\r\nLocation: http://example.org/\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let nobody = "http://127.0.0.1:9".to_owned();
    let cases = [
        (silent, "it did not answer in time"),
        (endless, "the connection broke"),
        (broken, "the connection broke"),
        (other, "the connection broke"),
        (web, ""),
        (moved, "302 Found"),
        (nobody, "correct AWS_ENDPOINT_URL"),
    ];
    for (endpoint, part) in cases {
        let began = Instant::now();
        let said = refusal(&at("s3://tensors", &endpoint, &[])).await;
        assert!(said.contains(part), "{endpoint} {part}: {said}");
        assert!(began.elapsed() < PATIENCE * 4, "{part}: {:?}", began.elapsed());
    }
}

/// Lists nothing, has the marker and takes writes, except for requests that `refuses` answers.
fn bucket(refuses: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static) -> String {
    const LIST: &str = "<?xml version=\"1.0\"?><ListBucketResult><Name>tensors</Name><KeyCount>0\
        </KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>";
    server(move |first| {
        refuses(first).unwrap_or_else(|| match first {
            _ if first.contains("list-type=2") => answer("200 OK", LIST),
            _ if first.starts_with("GET") => {
                b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-0/9\r\nContent-Length: 1\r\n\
                  ETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
                  Connection: close\r\n\r\nx"
                    .to_vec()
            }
            _ => b"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                .to_vec(),
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_permission_is_proved_at_the_start() {
    open(&at("s3://tensors", &bucket(|_| None), &[])).await.unwrap();
    for method in ["GET /tensors?", "GET /tensors/radeon-cluster", "PUT ", "DELETE "] {
        let refuses = move |first: &str| {
            let wanted = first.starts_with(method) || first.starts_with(&method.replace('?', "/?"));
            wanted.then(|| error("403 Forbidden", "AccessDenied"))
        };
        let said = refusal(&at("s3://tensors", &bucket(refuses), &[])).await;
        assert!(said.contains("grant it s3:ListBucket"), "{method}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_full_refuses_tasks() {
    let full = Arc::new(Mutex::new(false));
    let is_full = Arc::clone(&full);
    let endpoint = bucket(move |first| {
        let refused =
            *is_full.lock().unwrap() && (first.starts_with("PUT") || first.starts_with("POST"));
        refused.then(|| error("507 Insufficient Storage", "XMinioStorageFull"))
    });
    let line = Line::to(endpoint.rsplit(':').next().unwrap().parse().unwrap());
    let store = open(&at("s3://tensors", &line.endpoint(), &[])).await.unwrap();
    *full.lock().unwrap() = true;
    for count in [1_000, 9 << 20] {
        let Run { apart, parts, .. } = run(1, count);
        let Some(Error::NotSaved { reason }) = store.put(apart.blob, parts).await.err() else {
            panic!("it is full")
        };
        assert!(
            reason.contains("s3://tensors: it is full") && reason.contains("make room"),
            "{reason}"
        );
    }
}
