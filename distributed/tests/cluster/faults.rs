//! The fate of tasks when workers and coordinators come and go.

use crate::common::{Echo, Worker, config, coordinator, eventually, task};
use lgp_distributed::{
    Coordinator, Error, Pki, TaskErrorKind, TaskState, WorkerConfig, WorkerState,
};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_killed_worker_are_redone_within_two_seconds() {
    let (coordinator, pki) = coordinator().await;
    let stuck = Echo::shut();
    let victim = Worker::start(&coordinator, &pki, "a-victim", 2, &stuck);
    coordinator.wait_for_workers(1).await.unwrap();
    let ids: Vec<_> = (0..2).map(|_| coordinator.submit(task("echo")).unwrap()).collect();
    eventually("execution", || (stuck.begun.load(Ordering::SeqCst) == 2).then_some(())).await;
    let _other = Worker::start(&coordinator, &pki, "b-other", 2, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    let began = Instant::now();
    victim.kill();
    for id in ids {
        let record = coordinator.wait(id).await.unwrap();
        assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 2));
        assert_eq!(record.worker.unwrap().as_str(), "b-other");
    }
    // Two seconds to notice the loss, and a margin for a busy machine.
    assert!(began.elapsed() < Duration::from_millis(2_700), "{:?}", began.elapsed());
    assert_eq!(coordinator.worker("a-victim").unwrap().state, WorkerState::Lost);
    assert_eq!(coordinator.stats().retries, 2);
    stuck.let_go();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_saw_the_process_end_spares_the_wait() {
    let (coordinator, pki) = coordinator().await;
    let stuck = Echo::shut();
    let victim = Worker::start(&coordinator, &pki, "a-victim", 1, &stuck);
    coordinator.wait_for_workers(1).await.unwrap();
    let id = coordinator.submit(task("echo")).unwrap();
    let _other = Worker::start(&coordinator, &pki, "b-other", 1, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    victim.kill();
    let began = Instant::now();
    coordinator.worker_exited("a-victim");
    let record = coordinator.wait(id).await.unwrap();
    assert_eq!(record.state, TaskState::Succeeded);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    stuck.let_go();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_workers_tasks_wait_until_their_deadline_or_for_a_worker() {
    let (coordinator, pki) = coordinator().await;
    let mut hurried = task("echo");
    hurried.deadline = Some(Duration::from_millis(150));
    let began = Instant::now();
    let patient = coordinator.submit(task("echo")).unwrap();
    let record = coordinator.run(hurried.clone()).await.unwrap();
    let error = record.error.unwrap();
    assert_eq!((record.state, error.code), (TaskState::Failed, TaskErrorKind::DeadlineExceeded));
    assert!(error.message.ends_with("while the task was waiting: no worker is ready"), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(150));
    assert_eq!(coordinator.state(patient).unwrap(), TaskState::Queued);

    let slow = Echo::shut();
    let _worker = Worker::start(&coordinator, &pki, "w1", 2, &slow);
    // A deadline also ends a running task and answers its caller, but the slot stays taken.
    let record = {
        coordinator.wait_for_workers(1).await.unwrap();
        coordinator.run(hurried).await.unwrap()
    };
    let error = record.error.unwrap();
    assert_eq!(error.code, TaskErrorKind::DeadlineExceeded);
    assert!(error.message.ends_with("running on worker w1"), "{error}");
    assert_eq!(coordinator.worker("w1").unwrap().running, 2);
    slow.let_go();
    assert_eq!(coordinator.wait(patient).await.unwrap().state, TaskState::Succeeded);
    let free = || (coordinator.worker("w1").unwrap().running == 0).then_some(());
    eventually("the slot comes free", free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_finishes_what_was_accepted() {
    let (coordinator, pki) = coordinator().await;
    let gate = Echo::shut();
    let worker = Worker::start(&coordinator, &pki, "w1", 2, &gate);
    coordinator.wait_for_workers(1).await.unwrap();
    let ids: Vec<_> = (0..5).map(|_| coordinator.submit(task("echo")).unwrap()).collect();
    let drained = tokio::spawn({
        let coordinator = coordinator.clone();
        async move { coordinator.drain().await }
    });
    eventually("refusal", || coordinator.submit(task("echo")).is_err().then_some(())).await;
    assert!(matches!(coordinator.submit(task("echo")), Err(Error::Draining)));
    gate.let_go();
    drained.await.unwrap();
    for id in ids {
        assert_eq!(coordinator.state(id).unwrap(), TaskState::Succeeded);
    }
    // Stopping without draining fails open tasks with that reason.
    coordinator.stop().await;
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_fails_what_is_open() {
    let (coordinator, _pki) = coordinator().await;
    let waiting = tokio::spawn({
        let coordinator = coordinator.clone();
        async move { coordinator.run(task("echo")).await }
    });
    eventually("submission", || (coordinator.stats().tasks.submitted == 1).then_some(())).await;
    coordinator.stop().await;
    let record = waiting.await.unwrap().unwrap();
    assert_eq!(record.error.unwrap().code, TaskErrorKind::Stopped);
    assert!(matches!(coordinator.wait_for_workers(1).await, Err(Error::Stopped)));
    // The port is free again.
    let again =
        lgp_distributed::CoordinatorConfig { quic_addr: coordinator.quic_addr(), ..config() };
    Coordinator::start(again, &Pki::generate().unwrap()).await.unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_worker_finishes_its_work_and_others_take_the_rest() {
    let (coordinator, pki) = coordinator().await;
    let gates = [Echo::shut(), Echo::shut()];
    let by_itself = Worker::start(&coordinator, &pki, "a", 1, &gates[0]);
    let by_order = Worker::start(&coordinator, &pki, "b", 1, &gates[1]);
    coordinator.wait_for_workers(2).await.unwrap();
    let ids: Vec<_> = (0..4).map(|_| coordinator.submit(task("echo")).unwrap()).collect();
    let both = || gates.iter().all(|g| g.begun.load(Ordering::SeqCst) == 1).then_some(());
    eventually("execution on both", both).await;
    coordinator.shutdown_worker("b").unwrap();
    assert_eq!(coordinator.worker("b").unwrap().state, WorkerState::Draining);
    assert!(matches!(coordinator.shutdown_worker("c"), Err(Error::UnknownWorker { .. })));
    let leaving = tokio::spawn(by_itself.stop());
    let draining = || (coordinator.stats().workers.draining == 2).then_some(());
    eventually("both leave", draining).await;
    gates.iter().for_each(|g| g.let_go());
    leaving.await.unwrap().unwrap();
    by_order.ended().await.unwrap();
    let mut running = Vec::new();
    for id in &ids {
        let record = coordinator.task(*id).await.unwrap();
        running.push((record.state, record.attempts));
    }
    let (done, open) = ((TaskState::Succeeded, 1), (TaskState::Queued, 0));
    assert_eq!(running, [done, done, open, open]);
    assert!(coordinator.workers().is_empty(), "those that left are no longer listed");
    let _third = Worker::start(&coordinator, &pki, "c", 1, &Echo::open());
    for id in ids {
        assert_eq!(coordinator.wait(id).await.unwrap().state, TaskState::Succeeded);
    }
    assert_eq!(coordinator.stats().retries, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_comes_back_to_a_new_coordinator_on_the_same_address() {
    let (first, pki) = coordinator().await;
    let identity = pki.issue_worker("w1").unwrap();
    let worker = Worker::with(WorkerConfig::new(first.quic_addr(), identity, 1), &Echo::open());
    first.wait_for_workers(1).await.unwrap();
    let old = first.run(task("echo")).await.unwrap().task_id;
    first.stop().await;
    let again = lgp_distributed::CoordinatorConfig { quic_addr: first.quic_addr(), ..config() };
    let second = Coordinator::start(again, &pki).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), second.wait_for_workers(1))
        .await
        .expect("the worker comes back")
        .unwrap();
    assert_eq!(second.run(task("echo")).await.unwrap().state, TaskState::Succeeded);
    // The second coordinator does not know ids of the first one.
    assert!(matches!(second.task(old).await, Err(Error::UnknownTask { .. })));
    worker.stop().await.unwrap();
}
