//! Tasks that wait at a worker: batched, overtaken, and moved to another worker.

use crate::common::{Echo, Worker, coordinator, eventually, task};
use lgp_distributed::{Coordinator, Pki, Priority, TaskSpec, TaskState, WorkerConfig};
use lgp_memory::{NamedTensor, Tensor};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A worker of one thread that holds `batch_max` tasks.
fn worker(
    coordinator: &Coordinator,
    pki: &Pki,
    name: &str,
    batch_max: u32,
    echo: &Arc<Echo>,
) -> Worker {
    let identity = pki.issue_worker(name).unwrap();
    let config = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    Worker::with(WorkerConfig { batch_max, ..config }, echo)
}

async fn begun(echo: &Echo, count: usize) {
    eventually("execution", || (echo.begun.load(Ordering::SeqCst) == count).then_some(())).await;
}

async fn waiting(coordinator: &Coordinator, name: &str, count: u32) {
    let waits = || (coordinator.worker(name).unwrap().queued == count).then_some(());
    eventually("the tasks wait at the worker", waits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_form_of_what_waits() {
    let (coordinator, pki) = coordinator().await;
    let echo = Echo::shut();
    let _worker = worker(&coordinator, &pki, "w1", 8, &echo);
    coordinator.wait_for_workers(1).await.unwrap();
    let mut ids = vec![coordinator.submit(task("echo")).unwrap()];
    begun(&echo, 1).await;
    ids.extend((0..7).map(|_| coordinator.submit(task("echo")).unwrap()));
    waiting(&coordinator, "w1", 7).await;
    let info = coordinator.worker("w1").unwrap();
    assert_eq!((info.slots, info.running), (8, 8));
    echo.let_go();
    for id in ids {
        let record = coordinator.wait(id).await.unwrap();
        assert_eq!(
            (record.state, record.outputs),
            (TaskState::Succeeded, Some(task("echo").inputs))
        );
    }
    assert_eq!(*echo.batches.lock().unwrap(), [7]);
    let mean = coordinator.stats().batch_mean;
    assert!((mean - 4.0).abs() < 1e-9, "eight tasks in two runs: {mean}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_at_the_worker_can_be_cancelled_or_fail_alone() {
    let (coordinator, pki) = coordinator().await;
    let echo = Echo::shut();
    let _worker = worker(&coordinator, &pki, "w1", 4, &echo);
    coordinator.wait_for_workers(1).await.unwrap();
    let first = coordinator.submit(task("echo")).unwrap();
    begun(&echo, 1).await;
    let [bad, good] = ["panics", "panics"].map(|name| coordinator.submit(task(name)).unwrap());
    let waits = coordinator.submit(task("echo")).unwrap();
    waiting(&coordinator, "w1", 3).await;
    coordinator.cancel(waits).await.unwrap();
    let gone = || (coordinator.worker("w1").unwrap().running == 3).then_some(());
    eventually("its place comes free while the first one runs", gone).await;
    echo.let_go();
    assert_eq!(coordinator.wait(first).await.unwrap().state, TaskState::Succeeded);
    for id in [bad, good] {
        let error = coordinator.wait(id).await.unwrap().error.unwrap();
        assert!(error.message.contains("it panicked: on purpose"), "{error}");
    }
    assert_eq!(coordinator.run(task("echo")).await.unwrap().state, TaskState::Succeeded);
    let order = echo.order.lock().unwrap().iter().filter(|name| *name == "echo").count();
    assert_eq!(order, 2, "the cancelled one was never begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_critical_task_overtakes_background_work_that_fills_the_worker() {
    let (coordinator, pki) = coordinator().await;
    let echo = Echo::shut();
    let _worker = worker(&coordinator, &pki, "w1", 9, &echo);
    coordinator.wait_for_workers(1).await.unwrap();
    let submit = |name: &str, priority| {
        coordinator.submit(TaskSpec { priority, max_attempts: 1, ..task(name) }).unwrap()
    };
    let first = submit("first", Priority::Background);
    begun(&echo, 1).await;
    let back: Vec<_> = (0..8).map(|_| submit("back", Priority::Background)).collect();
    waiting(&coordinator, "w1", 8).await;
    let critical = submit("critical", Priority::Critical);
    let sent = || (coordinator.state(critical).unwrap() == TaskState::Running).then_some(());
    eventually("one makes room", sent).await;
    // The recall is on its way; its arrival cannot be observed from here.
    tokio::time::sleep(Duration::from_millis(500)).await;
    echo.let_go();
    for id in back.iter().chain([&first, &critical]) {
        assert_eq!(coordinator.wait(*id).await.unwrap().state, TaskState::Succeeded);
    }
    let order = echo.order.lock().unwrap().clone();
    assert_eq!((order[0].as_str(), order[1].as_str()), ("first", "critical"), "{order:?}");
    let mut attempts = 0;
    for id in &back {
        attempts += coordinator.task(*id).await.unwrap().attempts;
    }
    let stats = coordinator.stats();
    assert_eq!((attempts, stats.yielded, stats.retries), (9, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_slow_worker_has_not_begun_moves_to_an_idle_one() {
    let (coordinator, pki) = coordinator().await;
    let (slow, fast) = (Echo::shut(), Echo::open());
    // All inputs differ, so that no two tasks form a batch.
    let submit = |length: usize| {
        let x = Tensor::from_slice([length], &vec![1f32; length]).unwrap();
        let inputs = vec![NamedTensor::new("x", x)];
        coordinator.submit(TaskSpec { inputs, max_attempts: 1, ..task("echo") }).unwrap()
    };
    let _slow = worker(&coordinator, &pki, "slow", 4, &slow);
    coordinator.wait_for_workers(1).await.unwrap();
    let measured = submit(1);
    begun(&slow, 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    slow.let_go();
    coordinator.wait(measured).await.unwrap();
    slow.shut_again();
    // Submitted alone, so that no other task comes before it.
    let mut ids = vec![submit(2)];
    begun(&slow, 2).await;
    ids.extend((3..6).map(submit));
    waiting(&coordinator, "slow", 3).await;
    let _fast = worker(&coordinator, &pki, "fast", 4, &fast);
    coordinator.wait_for_workers(2).await.unwrap();
    coordinator.wait(submit(9)).await.unwrap();
    for id in &ids[1..] {
        let record = coordinator.wait(*id).await.unwrap();
        assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 2));
        assert_eq!(record.worker.unwrap().as_str(), "fast");
    }
    assert_eq!(coordinator.state(ids[0]).unwrap(), TaskState::Running);
    slow.let_go();
    assert_eq!(coordinator.wait(ids[0]).await.unwrap().state, TaskState::Succeeded);
    let stats = coordinator.stats();
    assert_eq!((stats.moved, stats.yielded, stats.retries), (3, 0, 0));
    assert_eq!(slow.begun.load(Ordering::SeqCst), 2, "nothing ran twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_worker_gives_back_what_it_has_not_begun() {
    let (coordinator, pki) = coordinator().await;
    let (echo, other) = (Echo::shut(), Echo::open());
    let leaving = worker(&coordinator, &pki, "a", 4, &echo);
    coordinator.wait_for_workers(1).await.unwrap();
    // Submitted alone, so that no other task joins its batch.
    let mut ids = vec![coordinator.submit(task("echo")).unwrap()];
    begun(&echo, 1).await;
    ids.extend((0..3).map(|_| coordinator.submit(task("echo")).unwrap()));
    waiting(&coordinator, "a", 3).await;
    let _other = worker(&coordinator, &pki, "b", 4, &other);
    coordinator.wait_for_workers(2).await.unwrap();
    coordinator.shutdown_worker("a").unwrap();
    for id in &ids[1..] {
        let record = coordinator.wait(*id).await.unwrap();
        assert_eq!(record.worker.unwrap().as_str(), "b");
    }
    echo.let_go();
    leaving.ended().await.unwrap();
    assert_eq!(coordinator.wait(ids[0]).await.unwrap().worker.unwrap().as_str(), "a");
    assert_eq!((echo.begun.load(Ordering::SeqCst), coordinator.stats().retries), (1, 0));
}
