//! Peers that have a certificate but misbehave: what they send is refused, and harms no one.

use crate::net::identity::role::{COORDINATOR_SAN, Protocol};
use crate::net::identity::tls;
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use crate::net::transport::wire;
use crate::proto::frame::{self, PREFIX_BYTES};
use crate::proto::message::{
    AttemptId, Heartbeat, Hello, Kind, OutcomeHeader, Stint, TaskHeader, TensorMeta, VERSION,
    Verdict, Welcome,
};
use crate::{
    Coordinator, CoordinatorConfig, ExecError, Executor, ExecutorStatus, Identity, ModelRef, Pki,
    Stop, TaskErrorKind, TaskSpec, TaskState, WorkerConfig, run_worker,
};
use lgp_memory::NamedTensor;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub(super) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) async fn coordinator() -> (Coordinator, Pki) {
    let pki = Pki::generate().expect("random numbers");
    let config = CoordinatorConfig { quic_addr: ANY, ..Default::default() };
    (Coordinator::start(config, &pki).await.expect("a free port"), pki)
}

/// A connection with a worker's certificate, but no worker behind it.
pub(super) async fn connect(
    coordinator: &Coordinator,
    identity: &Identity,
) -> (Endpoint, Connection) {
    let (mut endpoint, _) = endpoint::bind(ANY, None).expect("a free port");
    let tls = tls::client(identity, Protocol::Work).expect("a valid identity");
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(endpoint::config(100, 1));
    endpoint.set_default_client_config(client);
    let connecting = endpoint.connect(coordinator.quic_addr(), COORDINATOR_SAN);
    let connection = connecting.expect("a valid address").await.expect("the handshake works");
    (endpoint, connection)
}

/// The first stint of a coordinator made by hand.
pub(super) const STINT: Stint = Stint { epoch: 1, session: 1 };

pub(super) fn hello(name: &str, version: u32) -> Hello {
    Hello {
        version_min: version,
        version_max: version,
        build: "test".into(),
        name: name.parse().expect("a name"),
        pid: 1,
        slots: 1,
        threads: 1,
        incarnation: 1,
        status: ExecutorStatus::default(),
        input_bytes_max: u64::MAX,
        machine: "m".into(),
        stint: None,
    }
}

pub(super) fn frame(kind: Kind, header: &impl serde::Serialize) -> Vec<u8> {
    frame::encode(kind, header, 0, 0).expect("small")
}

/// Sends heartbeats that name no attempt until the connection ends.
pub(super) fn keep_beating(mut reports: quinn::SendStream) {
    let beat = Heartbeat::all(&[], ExecutorStatus::default()).remove(0);
    let beat = frame(Kind::Heartbeat, &beat);
    tokio::spawn(async move {
        while reports.write_all(&beat).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// A prefix that states lengths of its own choosing.
pub(super) fn prefix(kind: Kind, length: u32, header: u32) -> Vec<u8> {
    let mut bytes = vec![0; PREFIX_BYTES];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4] = kind.code();
    bytes[6..].copy_from_slice(&header.to_le_bytes());
    bytes
}

#[tokio::test]
async fn unmannerly_greetings_and_reports_close_the_connection_with_a_reason() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let good = || frame(Kind::Hello, &hello("w", VERSION));
    let cases = [
        ("noise", b"GET / HTTP/1.1\r\n\r\n".to_vec(), Close::Malformed),
        ("a huge header", prefix(Kind::Hello, u32::MAX, u32::MAX), Close::Malformed),
        ("a body in a report", prefix(Kind::Hello, 100, 10), Close::Malformed),
        ("another frame first", frame(Kind::Draining, &()), Close::Malformed),
        ("an empty hello", prefix(Kind::Hello, 0, 0), Close::Malformed),
        ("a future version", frame(Kind::Hello, &hello("w", VERSION + 1)), Close::Version),
        // Only its versions can be read.
        ("a past version", frame(Kind::Hello, &(2u32, 2u32)), Close::Version),
        ("another's name", frame(Kind::Hello, &hello("v", VERSION)), Close::Identity),
        ("noise after the hello", [good(), vec![255; 40]].concat(), Close::Malformed),
        ("a task from a worker", [good(), frame(Kind::Task, &())].concat(), Close::Malformed),
        (
            "a broken heartbeat",
            [good(), prefix(Kind::Heartbeat, 3, 3), vec![255; 3]].concat(),
            Close::Malformed,
        ),
    ];
    for (what, bytes, expected) in cases {
        let (_endpoint, connection) = connect(&coordinator, &identity).await;
        let mut reports = connection.open_uni().await.expect("one stream is allowed");
        reports.write_all(&bytes).await.expect("still open");
        let error = tokio::time::timeout(Duration::from_secs(4), connection.closed()).await;
        let error = error.unwrap_or_else(|_| panic!("{what}: still open"));
        assert_eq!(Close::given_by_peer(&error), Some(expected), "{what}: {error}");
    }
    // A greeting cut short by the peer's end.
    let (_endpoint, connection) = connect(&coordinator, &identity).await;
    let mut reports = connection.open_uni().await.expect("one stream is allowed");
    reports.write_all(&good()[..20]).await.expect("still open");
    reports.finish().expect("still open");
    assert_eq!(Close::given_by_peer(&connection.closed().await), Some(Close::Malformed));
    coordinator.stop().await;
}

/// Answers a task with what a case says.
fn unmannerly_answer(case: u32, id: AttemptId) -> Vec<u8> {
    let outcome = |id, verdict| frame(Kind::Outcome, &OutcomeHeader::of(id, verdict));
    let meta = |shape| TensorMeta { name: "y".into(), dtype: 3, shape };
    match case {
        0 => Vec::new(),
        1 => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        2 => prefix(Kind::Outcome, u32::MAX, 10),
        3 => prefix(Kind::Outcome, 64 << 20, 0),
        4 => outcome(AttemptId { attempt: 99, ..id }, Verdict::Done(Vec::new())),
        5 => outcome(id, Verdict::Done(vec![meta(vec![1 << 60])])),
        6 => outcome(id, Verdict::Done(vec![meta(vec![4])])),
        7 => [outcome(id, Verdict::Done(Vec::new())), vec![0; 8]].concat(),
        _ => frame(Kind::Drain, &()),
    }
}

#[tokio::test]
async fn unmannerly_answers_fail_the_attempt_and_nothing_else() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").expect("a name");
    let (_endpoint, connection) = connect(&coordinator, &identity).await;
    let mut reports = connection.open_uni().await.expect("one stream is allowed");
    let mut greeting = hello("w", VERSION);
    greeting.slots = 1;
    reports.write_all(&frame(Kind::Hello, &greeting)).await.expect("still open");
    let mut control = connection.accept_uni().await.expect("still open");
    let welcome: Welcome =
        wire::expect_report(&mut control, Kind::Welcome, "welcome").await.expect("welcome");
    assert_eq!((welcome.version, welcome.heartbeat_ms), (VERSION, 500));
    for case in 0..9 {
        // Each case has its own model: a worker that fails too often gets no more tasks of one.
        let model = ModelRef { name: format!("m{case}"), version: 1, sha256: String::new() };
        let spec = TaskSpec { max_attempts: 1, ..TaskSpec::new(model, Vec::new()) };
        let task = coordinator.submit(spec).expect("room");
        let (mut send, mut recv) = connection.accept_bi().await.expect("a task comes");
        let start = wire::Start::read(&mut recv).await.expect("a frame");
        let header: TaskHeader = start.header(Kind::Task, "task").expect("a task");
        send.write_all(&unmannerly_answer(case, header.id)).await.expect("still open");
        send.finish().expect("still open");
        // A silent worker is lost after a while: long enough for each case.
        let record = coordinator.wait(task).await.expect("known");
        let error = record.error.unwrap_or_else(|| panic!("case {case} succeeded"));
        assert_eq!((record.state, error.code), (TaskState::Failed, TaskErrorKind::WorkerLost));
        assert!(error.message.contains("the exchange with its worker broke"), "{case}: {error}");
    }
    assert!(connection.close_reason().is_none(), "the connection bears it");
    coordinator.stop().await;
}

/// An executor that only runs: it applies a function to the inputs of any model.
pub(super) struct Runs<F>(pub(super) F);

impl<F: Fn(&[NamedTensor]) -> Vec<NamedTensor> + Send + Sync + 'static> Executor for Runs<F> {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
        _: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        Ok(self.0(inputs))
    }
    fn status(&self) -> ExecutorStatus {
        ExecutorStatus::default()
    }
}

/// Panics if anything reaches it.
pub(super) fn untouched() -> Arc<dyn Executor> {
    Arc::new(Runs(|_: &[NamedTensor]| unreachable!("a malformed task was executed")))
}

#[tokio::test]
async fn a_worker_survives_unmannerly_requests() {
    let pki = Pki::generate().expect("random numbers");
    let mut server = ServerConfig::with_crypto(Arc::new(tls::server(&pki).expect("valid")));
    server.transport_config(endpoint::config(0, 1));
    let (endpoint, _) = endpoint::bind(ANY, Some(server)).expect("a free port");
    let addr = endpoint.local_addr().expect("bound");
    let config = WorkerConfig::new(addr, pki.issue_worker("w").expect("a name"), 1);
    let worker = tokio::spawn(run_worker(config, untouched(), std::future::pending()));
    let connection = endpoint.accept().await.expect("it comes").await.expect("trusted");
    let mut reports = connection.accept_uni().await.expect("reports");
    let hello: Hello = wire::expect_report(&mut reports, Kind::Hello, "hello").await.expect("one");
    assert_eq!(hello.name.as_str(), "w");
    let mut control = connection.open_uni().await.expect("allowed");
    let welcome = Welcome { version: 1, epoch: 1, heartbeat_ms: 500, link: None, stint: STINT };
    wire::write_report(&mut control, Kind::Welcome, &welcome).await.expect("open");

    let id = AttemptId { epoch: 1, seq: 1, attempt: 1 };
    let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
    let meta = TensorMeta { name: "x".into(), dtype: 3, shape: vec![1 << 50] };
    let tensors = vec![meta];
    let task = TaskHeader {
        id,
        device: 0,
        priority: crate::Priority::Normal,
        model,
        tensors,
        shared: None,
        blob: None,
        batching: None,
        traced: false,
    };
    for bytes in [
        Vec::new(),
        b"noise".to_vec(),
        prefix(Kind::Task, u32::MAX, u32::MAX),
        frame(Kind::Outcome, &()),
        frame(Kind::Task, &task),
        prefix(Kind::Task, 1 << 20, 1 << 10),
    ] {
        let (mut send, mut recv) = connection.open_bi().await.expect("allowed");
        send.write_all(&bytes).await.expect("open");
        send.finish().expect("open");
        let answer = recv.read_to_end(100).await.expect("the stream ends");
        assert!(answer.is_empty(), "no answer to {bytes:?}");
    }
    // It still reports, and still leaves when told to.
    let (kind, _) = wire::read_report(&mut reports).await.expect("open");
    assert!(matches!(kind, Kind::Heartbeat | Kind::Released));
    wire::write_report(&mut control, Kind::Drain, &()).await.expect("open");
    while wire::read_report(&mut reports).await.expect("open").0 != Kind::Draining {}
    connection.close(Close::Farewell.code(), b"");
    worker.await.expect("no panic").expect("an orderly end");
}
