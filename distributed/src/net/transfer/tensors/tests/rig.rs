//! A coordinator by hand, and a worker that serves it.

use crate::net::identity::tls;
use crate::net::tests::{Runs, frame};
use crate::net::transfer::tensors::Answer;
use crate::net::transport::endpoint;
use crate::net::transport::rpc::{self, Ask};
use crate::net::transport::wire::{self, Start};
use crate::proto::message::{
    AttemptId, Hello, Kind, OutcomeHeader, Stint, TaskHeader, TensorBlob, TensorRange, VERSION,
    Verdict, Welcome,
};
use crate::proto::tensors::describe;
use crate::{ExecError, ModelRef, Pki, WorkerConfig, run_worker};
use lgp_memory::{NamedTensor, Tensor};
use quinn::{Connection, Endpoint, RecvStream, SendStream, ServerConfig};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Condvar, Mutex};

/// Returns its inputs, once it is allowed to.
#[derive(Default)]
pub(super) struct Echo {
    pub(super) shut: Mutex<bool>,
    pub(super) opened: Condvar,
}

impl Echo {
    fn run(&self, inputs: &[NamedTensor]) -> Vec<NamedTensor> {
        let shut = self.shut.lock().unwrap();
        drop(self.opened.wait_while(shut, |shut| *shut).unwrap());
        inputs.to_vec()
    }
}

/// A coordinator by hand, and the worker that serves it.
pub(super) struct Rig {
    pub(super) endpoint: Endpoint,
    pub(super) inputs: Vec<NamedTensor>,
    pub(super) run: Vec<u8>,
    pub(super) blob: TensorBlob,
}

/// Inputs of some 2 MB, and a worker that takes three.
pub(super) fn rig() -> Rig {
    rig_of(Arc::default())
}

pub(super) fn rig_of(echo: Arc<Echo>) -> Rig {
    let executor = Arc::new(Runs(move |inputs: &[NamedTensor]| echo.run(inputs)));
    let pki = Pki::generate().unwrap();
    let mut server = ServerConfig::with_crypto(Arc::new(tls::server(&pki).unwrap()));
    server.transport_config(endpoint::config(4, 1));
    let any = "127.0.0.1:0".parse().unwrap();
    let (endpoint, _) = endpoint::bind(any, Some(server)).unwrap();
    let addr = endpoint.local_addr().unwrap();
    let mut config = WorkerConfig::new(addr, pki.issue_worker("w").unwrap(), 1);
    config.input_bytes_max = 3 << 20;
    tokio::spawn(run_worker(config, executor, std::future::pending()));
    let values: Vec<u32> = (0..500_000u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    let inputs = vec![
        NamedTensor::new("x", Tensor::from_slice([500_000], &values).unwrap()),
        NamedTensor::new("y", Tensor::from_slice([5], &[1u8, 2, 3, 4, 5]).unwrap()),
    ];
    let run = [inputs[0].tensor.as_bytes(), inputs[1].tensor.as_bytes()].concat();
    let bytes = u64::try_from(run.len()).unwrap();
    let blob = TensorBlob { sha256: Sha256::digest(&run).into(), bytes };
    Rig { endpoint, inputs, run, blob }
}

/// The worker's connection, with the streams that would close it when dropped.
pub(super) struct Greeted {
    pub(super) connection: Connection,
    pub(super) reports: RecvStream,
    pub(super) control: SendStream,
}

impl Rig {
    pub(super) async fn greet(&self) -> Greeted {
        let connection = self.endpoint.accept().await.unwrap().await.unwrap();
        let mut reports = connection.accept_uni().await.unwrap();
        let hello: Hello = wire::expect_report(&mut reports, Kind::Hello, "hello").await.unwrap();
        let mut control = connection.open_uni().await.unwrap();
        // Attempts that the worker holds of an earlier connection are not expected.
        let session = hello.stint.map_or(1, |last| last.session + 1);
        let stint = Stint { epoch: 1, session };
        let welcome = Welcome { version: VERSION, epoch: 1, heartbeat_ms: 500, link: None, stint };
        wire::write_report(&mut control, Kind::Welcome, &welcome).await.unwrap();
        Greeted { connection, reports, control }
    }

    /// Sends the task; returns the stream on which its outcome will come.
    pub(super) async fn task(
        &self,
        greeted: &Greeted,
        attempt: u32,
        blob: TensorBlob,
    ) -> RecvStream {
        let (mut send, recv) = greeted.connection.open_bi().await.unwrap();
        let header = TaskHeader {
            priority: crate::Priority::Normal,
            id: attempt_id(attempt),
            device: 0,
            model: ModelRef { name: "m".into(), version: 1, sha256: String::new() },
            tensors: describe(&self.inputs).unwrap().0,
            shared: None,
            blob: Some(blob),
            batching: None,
            traced: false,
        };
        send.write_all(&frame(Kind::Task, &header)).await.unwrap();
        send.finish().unwrap();
        recv
    }

    /// The worker's request: the offset, and the stream for the answer.
    pub(super) async fn question(&self, greeted: &Greeted) -> (usize, SendStream) {
        let (send, mut recv) = greeted.connection.accept_bi().await.unwrap();
        let question: Ask = rpc::read(&mut recv).await.unwrap();
        let Ask::Tensors(TensorRange { sha256, offset }) = question else {
            panic!("another question")
        };
        assert_eq!(sha256, self.blob.sha256);
        (usize::try_from(offset).unwrap(), send)
    }

    pub(super) async fn serve(&self, mut send: SendStream, bytes: &[u8]) {
        rpc::write(&mut send, &Answer::Found(self.blob.bytes)).await.unwrap();
        send.write_all(bytes).await.unwrap();
        send.finish().unwrap();
    }
}

pub(super) fn attempt_id(attempt: u32) -> AttemptId {
    AttemptId { epoch: 1, seq: 1, attempt }
}

pub(super) async fn outcome(mut recv: RecvStream) -> Result<Vec<NamedTensor>, ExecError> {
    let start = Start::read(&mut recv).await.unwrap();
    let header: OutcomeHeader = start.header(Kind::Outcome, "outcome").unwrap();
    match header.verdict {
        Verdict::Done(metas) => Ok(start.tensors(&mut recv, metas).await.unwrap()),
        Verdict::Error(error) => Err(error),
        Verdict::Refused => Err(ExecError::failed("refused")),
    }
}
