//! Inputs that are too long for a frame, in a whole cluster.

use crate::common::{Echo, Worker, config, model, task};
use lgp_distributed::{
    Coordinator, CoordinatorConfig, Error, ExecError, Executor, ExecutorStatus, ModelRef, Pki,
    TaskErrorKind, TaskSpec, TaskState, WorkerConfig, run_worker,
};
use lgp_memory::{NamedTensor, Tensor};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Answers the digest of each input.
struct Hashing;

impl Executor for Hashing {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
    ) -> Result<Vec<NamedTensor>, ExecError> {
        Ok(digests(inputs))
    }
    fn status(&self) -> ExecutorStatus {
        ExecutorStatus::default()
    }
}

fn digests(inputs: &[NamedTensor]) -> Vec<NamedTensor> {
    let digest = |input: &NamedTensor| {
        let digest = Sha256::digest(input.tensor.as_bytes()).to_vec();
        let shape: Vec<i64> = input.tensor.shape().iter().map(|&d| d as i64).collect();
        let shape = Tensor::from_slice([shape.len()], &shape).unwrap();
        let digest = Tensor::from_slice([digest.len()], &digest).unwrap();
        [NamedTensor::new(&input.name, digest), NamedTensor::new("shape", shape)]
    };
    inputs.iter().flat_map(digest).collect()
}

fn inputs(counts: &[usize]) -> Vec<NamedTensor> {
    let input = |&count: &usize| {
        let values: Vec<u32> = (0..count as u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
        NamedTensor::new(format!("x{count}"), Tensor::from_slice([1, count], &values).unwrap())
    };
    counts.iter().map(input).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_beyond_a_frame_arrive_whole() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let identity = pki.issue_worker("w").unwrap();
    let settings = WorkerConfig::new(coordinator.quic_addr(), identity, 2);
    tokio::spawn(run_worker(settings, Arc::new(Hashing), std::future::pending()));
    // One tensor of 100 MiB, and several of 64 MiB and four bytes in sum; the last ones fit.
    let cases = [&[26_214_400][..], &[9_000_000, 1, 0, 7_777_216], &[9_000_000, 7_777_216]];
    let submitted: Vec<_> = cases
        .into_iter()
        .map(|counts| {
            let inputs = inputs(counts);
            let expected = digests(&inputs);
            (coordinator.submit(TaskSpec::new(model("hash"), inputs)).unwrap(), expected)
        })
        .collect();
    for (id, expected) in submitted {
        let record = coordinator.wait(id).await.unwrap();
        assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
        assert_eq!(record.outputs, Some(expected));
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn inputs_beyond_the_settings_are_refused() {
    let pki = Pki::generate().unwrap();
    let config = CoordinatorConfig { input_bytes_max: 11, ..config() };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    let error = coordinator.submit(task("echo")).unwrap_err();
    assert!(matches!(error, Error::TooLarge { given: 12, limit: 11, .. }), "{error}");
    coordinator.stop().await;

    // Durable ones have to fit the journal, whatever the settings.
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("journal"));
    let config = CoordinatorConfig { journal, ..crate::common::config() };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    let durable = TaskSpec::new(model("echo"), inputs(&[(16 << 20) + 1]));
    let durable = TaskSpec { durable: true, ..durable };
    let error = coordinator.submit_all(vec![(durable, Vec::new())]).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { given: 67_108_868, .. }), "{error}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_task_beyond_all_workers_settings_fails_and_says_why() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let identity = pki.issue_worker("w").unwrap();
    let mut settings = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    settings.input_bytes_max = 64 << 20;
    let _worker = Worker::with(settings, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let spec = TaskSpec::new(model("echo"), inputs(&[(16 << 20) + 1]));
    let record = coordinator.run(spec.clone()).await.unwrap();
    let error = record.error.expect("it takes less");
    assert_eq!((error.code, record.attempts), (TaskErrorKind::TooLarge, 0));
    assert!(error.message.contains("at most 67108864 are accepted"), "{error}");
    // Another one takes it, however free the first is.
    let identity = pki.issue_worker("large").unwrap();
    let settings = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    let _large = Worker::with(settings, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    let record = coordinator.run(spec).await.unwrap();
    assert_eq!(record.worker.expect("it ran").as_str(), "large");
    coordinator.stop().await;
}
