//! Memory shared between a coordinator and its workers, in whole clusters: the same results as over
//! QUIC, even if workers end halfway.

use crate::common::{Echo, Worker, config, coordinator, eventually, model};
use lgp_distributed::{Coordinator, Hits, Pki, TaskSpec, TaskState, Transport, WorkerConfig};
use lgp_memory::{NamedTensor, Tensor};
use std::sync::atomic::Ordering;

/// Inputs of several sizes: below, at and above the threshold for sharing.
fn inputs(seed: usize) -> Vec<NamedTensor> {
    let sizes = [0, 1, 8_191, 8_192, 8_193, 150_528, 1 << 20];
    let count = sizes[seed % sizes.len()];
    let values: Vec<f32> = (0..count).map(|n| (n * 31 + seed) as f32).collect();
    let marks = [seed as i64, -1];
    vec![
        NamedTensor::new("x", Tensor::from_slice([count], &values).unwrap()),
        NamedTensor::new("seed", Tensor::from_slice([2], &marks).unwrap()),
    ]
}

async fn travels_by(coordinator: &Coordinator, worker: &str, transport: Transport) {
    let by = || coordinator.worker(worker).ok().filter(|w| w.transport == transport);
    eventually("the transport", by).await;
}

#[tokio::test]
async fn results_are_the_same_with_and_without_shared_memory() {
    for (bytes_max, transport) in [(256 << 20, Transport::SharedMemory), (0, Transport::Quic)] {
        let (coordinator, pki) = coordinator().await;
        let identity = pki.issue_worker("w").unwrap();
        let mut settings = WorkerConfig::new(coordinator.quic_addr(), identity, 2);
        settings.shared_memory_bytes_max = bytes_max;
        let worker = Worker::with(settings, &Echo::open());
        coordinator.wait_for_workers(1).await.unwrap();
        travels_by(&coordinator, "w", transport).await;
        let submit = |seed| coordinator.submit(TaskSpec::new(model("echo"), inputs(seed))).unwrap();
        let tasks: Vec<_> = (0..70).map(|seed| (seed, submit(seed))).collect();
        for (seed, id) in tasks {
            let record = coordinator.wait(id).await.unwrap();
            assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1));
            assert_eq!(record.outputs, Some(inputs(seed)), "task {seed}");
        }
        travels_by(&coordinator, "w", transport).await;
        let Hits { hits, of } = coordinator.stats().shared_buffers;
        match transport {
            // 50 of 70 tasks have inputs that are large enough.
            Transport::SharedMemory => assert!((1..of).contains(&hits) && of <= 50, "{hits} {of}"),
            Transport::Quic => assert_eq!((hits, of), (0, 0)),
        }
        worker.stop().await.unwrap();
        coordinator.stop().await;
    }
}

#[tokio::test]
async fn a_coordinator_that_shares_nothing_is_served_too() {
    let pki = Pki::generate().unwrap();
    let config = lgp_distributed::CoordinatorConfig { shared_memory_bytes_max: 0, ..config() };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    let _worker = Worker::start(&coordinator, &pki, "w", 1, &Echo::open());
    let record = coordinator.run(TaskSpec::new(model("echo"), inputs(5))).await.unwrap();
    assert_eq!(record.outputs, Some(inputs(5)));
    assert_eq!(coordinator.worker("w").unwrap().transport, Transport::Quic);
    coordinator.stop().await;
}

#[tokio::test]
async fn tasks_of_a_worker_that_ends_midway_are_done_by_another() {
    let (coordinator, pki) = coordinator().await;
    let stuck = Echo::shut();
    let first = Worker::start(&coordinator, &pki, "w1", 4, &stuck);
    coordinator.wait_for_workers(1).await.unwrap();
    travels_by(&coordinator, "w1", Transport::SharedMemory).await;
    let submit = |seed| coordinator.submit(TaskSpec::new(model("echo"), inputs(seed))).unwrap();
    let tasks: Vec<_> = (0..21).map(|seed| (seed, submit(seed))).collect();
    eventually("four begin", || (stuck.begun.load(Ordering::SeqCst) == 4).then_some(())).await;
    let _second = Worker::start(&coordinator, &pki, "w2", 4, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    first.kill();
    coordinator.worker_exited("w1");
    stuck.let_go();
    for (seed, id) in tasks {
        let record = coordinator.wait(id).await.unwrap();
        assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
        assert_eq!(record.outputs, Some(inputs(seed)), "task {seed}");
    }
    travels_by(&coordinator, "w2", Transport::SharedMemory).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn cancelled_tasks_leave_others_their_own_tensors() {
    let (coordinator, pki) = coordinator().await;
    let echo = Echo::open();
    let _worker = Worker::start(&coordinator, &pki, "w", 4, &echo);
    coordinator.wait_for_workers(1).await.unwrap();
    travels_by(&coordinator, "w", Transport::SharedMemory).await;
    for round in 0..40 {
        let submit = |seed| coordinator.submit(TaskSpec::new(model("echo"), inputs(seed))).unwrap();
        let doomed: Vec<_> = (0..6).map(|n| submit(5 + 7 * (round + n))).collect();
        let kept = submit(5 + 7 * (1_000 + round));
        tokio::task::yield_now().await;
        for id in doomed {
            coordinator.cancel(id).await.unwrap();
        }
        let record = coordinator.wait(kept).await.unwrap();
        assert_eq!(record.outputs, Some(inputs(5 + 7 * (1_000 + round))), "round {round}");
    }
    coordinator.stop().await;
}
