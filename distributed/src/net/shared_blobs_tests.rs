//! Coordinators on two machines that share a log, and a store for tensors too large for it.

use crate::control::log::{Each, Opened, Opener, Outcome, Place};
use crate::control::memory::Memory;
use crate::net::coordinator::gate::Services;
use crate::net::outputs_tests::{COUNT, ended, is_right, spreading, submit};
use crate::net::tests::ANY;
use crate::net::transfer::blobs::tests::laws::Site;
use crate::{
    BlobsAt, Coordinator, CoordinatorConfig, Error, JournalError, ModelRef, Pki, TaskId, TaskSpec,
    TaskState, WorkerConfig, run_worker,
};
use lgp_memory::{NamedTensor, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::task::JoinHandle;

/// What two machines share.
struct Cluster {
    pki: Pki,
    log: Memory,
    blobs: BlobsAt,
    /// Whether the log does what it is asked to and then says that it broke.
    in_doubt: Arc<AtomicBool>,
}

/// A log whose content may become unknown.
struct Doubtful(Memory, Arc<AtomicBool>);

impl Place for Doubtful {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        let (Opened { start, epoch, epochs }, doubt) = (self.0.open(opener, each)?, self.1.clone());
        let start = Box::new(move |mut told: Box<dyn FnMut(Outcome) + Send>| {
            start(Box::new(move |outcome| match outcome {
                Outcome::Durable(ticket) if doubt.load(SeqCst) => {
                    let error = JournalError::Broken { path: "log".into(), what: "doubt".into() };
                    told(Outcome::Failed { tickets: vec![ticket], error });
                }
                outcome => told(outcome),
            }))
        });
        Ok(Opened { epoch, epochs, start })
    }
}

impl Cluster {
    fn new(blobs: BlobsAt) -> Self {
        let pki = Pki::generate().expect("random numbers");
        Self { pki, log: Memory::default(), blobs, in_doubt: Arc::default() }
    }

    /// Starts a coordinator on a new machine; the folder is the machine's own.
    async fn machine(&self) -> (Coordinator, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let config = CoordinatorConfig {
            quic_addr: ANY,
            journal: Some(folder.path().join("journal")),
            blobs: Some(self.blobs.clone()),
            retained_tasks_max: 0,
            ..Default::default()
        };
        let place = Box::new(Doubtful(self.log.clone(), Arc::clone(&self.in_doubt)));
        let started = Coordinator::start_on(Some(place), config, &self.pki, Services::default());
        (started.await.expect("it may lead"), folder)
    }

    fn work(&self, coordinator: &Coordinator) -> JoinHandle<crate::Result<()>> {
        let identity = self.pki.issue_worker("w").expect("random numbers");
        let config = WorkerConfig::new(coordinator.quic_addr(), identity, 2);
        tokio::spawn(run_worker(config, spreading(), std::future::pending()))
    }
}

/// A task whose inputs do not fit into a frame.
async fn submit_large(coordinator: &Coordinator, from: u32) -> crate::Result<TaskId> {
    let model = ModelRef { name: "spread".into(), version: 1, sha256: "00".repeat(32) };
    let x = Tensor::from_slice([2], &[from, COUNT]).expect("small");
    let padding = Tensor::from_slice([17 << 20], &vec![from; 17 << 20]).expect("there is memory");
    let inputs = vec![NamedTensor::new("x", x), NamedTensor::new("padding", padding)];
    let spec = TaskSpec { durable: true, ..TaskSpec::new(model, inputs) };
    Ok(coordinator.submit_all(vec![(spec, Vec::new())]).await?[0])
}

/// The next leader, on another machine, has all that the last one accepted and computed.
pub(crate) async fn another_machine_has_all(blobs: BlobsAt) {
    let cluster = Cluster::new(blobs);
    let (first, own) = cluster.machine().await;
    let worker = cluster.work(&first);
    let computed = submit(&first, 7, COUNT).await;
    ended(&first, computed).await;
    worker.abort();
    let waits = submit_large(&first, 5).await.expect("durable");
    first.stop().await;
    let left: Vec<_> = std::fs::read_dir(own.path()).expect("readable").collect();
    assert!(left.is_empty(), "nothing lies on the first machine: {left:?}");
    drop(own);

    let (second, _own) = cluster.machine().await;
    is_right(&second.task(computed).await.expect("kept"), 7, COUNT);
    let worker = cluster.work(&second);
    ended(&second, waits).await;
    is_right(&second.task(waits).await.expect("kept"), 5, COUNT);
    let copied = second.back_up(_own.path().join("copy")).await.expect_err("not here");
    assert!(copied.to_string().contains("copied by its own means"), "{copied}");
    for id in [computed, waits] {
        second.let_go(id).await.expect("it has ended");
        assert!(matches!(second.task(id).await, Err(Error::Expired { .. })));
    }
    let site = Site::Shared(cluster.blobs.clone());
    let mut left = site.files().await;
    for _ in 0..500 {
        if !left.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            left = site.files().await;
        }
    }
    assert!(left.is_empty(), "{left:?}");
    second.stop().await;
    worker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_has_what_lies_in_a_shared_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}/blobs", folder.path().display());
    another_machine_has_all(BlobsAt::new(&url, []).expect("a folder")).await;
}

#[cfg(feature = "scale")]
#[tokio::test(flavor = "multi_thread")]
async fn another_machine_has_what_lies_in_s3() {
    use crate::net::transfer::blobs::tests::s3::server::Server;
    let server = match Server::start(false).await {
        Ok(server) => server,
        Err(reason) => return println!("skipped: moto: {reason}"),
    };
    let endpoint = server.endpoint();
    let options = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "someone"),
        ("AWS_SECRET_ACCESS_KEY", "swordfish"),
    ];
    another_machine_has_all(BlobsAt::new("s3://tensors/cluster", options).expect("a place")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_of_a_task_that_may_have_been_accepted_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}/blobs", folder.path().display());
    let cluster = Cluster::new(BlobsAt::new(&url, []).expect("a folder"));
    let (first, _own) = cluster.machine().await;
    cluster.in_doubt.store(true, SeqCst);
    let refused = submit_large(&first, 5).await.expect_err("nobody knows");
    assert!(matches!(refused, Error::NotSaved { .. }), "{refused}");
    first.stop().await;
    cluster.in_doubt.store(false, SeqCst);
    let (second, _other) = cluster.machine().await;
    let waiting = second.tasks(&crate::TaskFilter::default()).await.expect("readable").tasks;
    assert_eq!(waiting.len(), 1);
    let _worker = cluster.work(&second);
    let record = second.wait(waiting[0].task_id).await.expect("it ends");
    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
    second.stop().await;
}
