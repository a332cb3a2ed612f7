//! Outputs that are too long for a frame, in a whole cluster.

use crate::common::{Runs, Worker, config, eventually, model};
use crate::relay::{Relay, Weather};
use lgp_distributed::{
    Client, Coordinator, CoordinatorConfig, Executor, Pki, Role, TaskErrorKind, TaskSpec,
    TaskState, WorkerConfig,
};
use lgp_memory::{DType, NamedTensor, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Tensors of the given sizes in bytes.
fn blown(counts: &[u32]) -> Vec<NamedTensor> {
    let tensor = |(at, &count): (usize, &u32)| {
        let bytes: Vec<u8> =
            (0..count).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        NamedTensor::new(format!("y{at}"), Tensor::from_slice([bytes.len()], &bytes).unwrap())
    };
    counts.iter().enumerate().map(tensor).collect()
}

fn task(counts: &[u32], durable: bool) -> TaskSpec {
    let x = Tensor::from_slice([counts.len()], counts).unwrap();
    TaskSpec { durable, ..TaskSpec::new(model("blow"), vec![NamedTensor::new("x", x)]) }
}

/// Returns tensors of the sizes in its input, and counts the runs.
fn blowing(runs: &Arc<AtomicUsize>) -> Arc<impl Executor + use<>> {
    let runs = Arc::clone(runs);
    Arc::new(Runs(move |inputs: &[NamedTensor]| {
        runs.fetch_add(1, Ordering::SeqCst);
        blown(inputs[0].tensor.as_slice().unwrap())
    }))
}

/// One tensor beyond a frame, and several whose sum is; the last ones fit.
const CASES: [&[u32]; 3] = [&[100 << 20], &[60 << 20, 0, 4 << 20, 1], &[60 << 20, 4 << 20]];

#[tokio::test(flavor = "multi_thread")]
async fn outputs_beyond_a_frame_arrive_whole() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let _worker = Worker::start(&coordinator, &pki, "w", 2, &blowing(&Arc::default()));
    let ids = CASES.map(|counts| coordinator.submit(task(counts, false)).unwrap());
    for (id, counts) in ids.into_iter().zip(CASES) {
        let record = coordinator.wait(id).await.unwrap();
        assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
        assert!(record.outputs == Some(blown(counts)), "other bytes of {counts:?}");
    }
    // A remote program gets them too.
    let identity = pki.issue(Role::Client, "c").unwrap();
    let client = Client::connect(coordinator.quic_addr(), &identity).await.unwrap();
    let record = client.run(task(CASES[0], false)).await.unwrap();
    assert!(record.outputs == Some(blown(CASES[0])), "{:?}", record.error);
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_outputs_beyond_a_frame_wait_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("tasks.journal"));
    let config = || CoordinatorConfig { journal: journal.clone(), ..config() };
    let pki = Pki::generate().unwrap();
    let first = Coordinator::start(config(), &pki).await.unwrap();
    let _worker = Worker::start(&first, &pki, "w", 2, &blowing(&Arc::default()));
    let specs = CASES.map(|counts| (task(counts, true), Vec::new()));
    let ids = first.submit_all(specs.to_vec()).await.unwrap();
    for id in &ids {
        assert_eq!(first.wait(*id).await.unwrap().state, TaskState::Succeeded);
    }
    assert!(first.journal_bytes().unwrap() < 10 << 20, "the journal has references");
    first.stop().await;
    let second = Coordinator::start(config(), &pki).await.unwrap();
    for (id, counts) in ids.iter().zip(CASES) {
        let record = second.wait(*id).await.unwrap();
        assert!(record.outputs == Some(blown(counts)), "other bytes of {counts:?}");
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_beyond_the_settings_fail_their_task_once() {
    let pki = Pki::generate().unwrap();
    let config = CoordinatorConfig { input_bytes_max: 80 << 20, ..config() };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    let runs = Arc::default();
    let _worker = Worker::start(&coordinator, &pki, "w", 1, &blowing(&runs));
    let record = coordinator.run(task(&[100 << 20], false)).await.unwrap();
    let error = record.error.expect("it is too much");
    assert_eq!((error.code, record.attempts), (TaskErrorKind::ModelFailed, 1), "{error}");
    assert!(error.message.contains("104857600 bytes of outputs, at most 83886080"), "{error}");
    // The failure affects neither the worker nor its room.
    for _ in 0..3 {
        let record = coordinator.run(task(&[70 << 20], false)).await.unwrap();
        assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 4);
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_no_coordinator_takes_are_not_read() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let executor = Arc::new(Runs(|_: &[NamedTensor]| {
        // The tensor is never written, so it takes no memory unless it is read.
        let much = Tensor::zeros(DType::U8, [(1 << 30) + 1]).unwrap();
        vec![NamedTensor::new("y", much)]
    }));
    let _worker = Worker::start(&coordinator, &pki, "w", 1, &executor);
    let record = coordinator.run(task(&[1], false)).await.unwrap();
    let error = record.error.expect("it is too much");
    assert_eq!((error.code, record.attempts), (TaskErrorKind::OperatorFailed, 1), "{error}");
    assert!(error.message.contains("1073741825 bytes, at most 1073741824"), "{error}");
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_go_on_over_the_next_connection() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let relay = Relay::start(coordinator.quic_addr(), 1).unwrap();
    let runs = Arc::default();
    let config = WorkerConfig::new(relay.addr(), pki.issue_worker("w").unwrap(), 1);
    let _worker = Worker::with(config, &blowing(&runs));
    coordinator.wait_for_workers(1).await.unwrap();
    let counts = &[200 << 20];
    let id = coordinator.submit(task(counts, false)).unwrap();
    let before = relay.counts().passed;
    // About 20 MB of the outputs.
    let on_the_way = || (relay.counts().passed > before + 15_000).then_some(());
    eventually("the outputs are on their way", on_the_way).await;
    relay.set(Weather::CUT);
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    relay.set(Weather::CALM);
    let record = tokio::time::timeout(Duration::from_secs(60), coordinator.wait(id)).await;
    let record = record.expect("it ends").unwrap();
    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
    assert!(record.outputs == Some(blown(counts)), "other bytes");
    assert_eq!((record.attempts, runs.load(Ordering::SeqCst)), (1, 1), "it is not run again");
    coordinator.stop().await;
}
