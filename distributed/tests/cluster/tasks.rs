//! The fate of tasks when nothing fails.

use crate::common::{Echo, Worker, config, coordinator, eventually, model, task};
use lgp_distributed::{
    Coordinator, Error, Pki, Priority, TaskErrorKind, TaskFilter, TaskState, WorkerState,
};
use lgp_memory::{DType, NamedTensor, Tensor};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_and_its_times_add_up() {
    let (coordinator, pki) = coordinator().await;
    let _worker = Worker::start(&coordinator, &pki, "w1", 2, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let began = Instant::now();
    let record = coordinator.run(task("echo")).await.unwrap();
    let latency_ms = began.elapsed().as_secs_f64() * 1e3;
    assert_eq!(record.state, TaskState::Succeeded, "{record:?}");
    assert_eq!(record.outputs, Some(task("echo").inputs));
    assert_eq!((record.attempts, record.worker.as_ref().unwrap().as_str()), (1, "w1"));
    let (model_ms, overhead_ms) = (record.model_ms.unwrap(), record.overhead_ms.unwrap());
    assert!(record.queued_ms >= 0.0 && model_ms >= 0.0 && overhead_ms > 0.0);
    assert!(record.queued_ms + model_ms + overhead_ms <= latency_ms);
    assert_eq!(coordinator.task(record.task_id).await.unwrap(), record);

    let info = coordinator.worker("w1").unwrap();
    assert_eq!(info.pid, Some(std::process::id()));
    assert_eq!((info.state, info.device.as_str()), (WorkerState::Ready, "cpu:0"));
    let stats = coordinator.stats();
    assert_eq!((stats.tasks.succeeded, stats.workers.ready, stats.latency_ms.count), (1, 1, 1));
    coordinator.stop().await;
    assert!(matches!(coordinator.submit(task("echo")), Err(Error::Stopped)));
}

#[tokio::test(flavor = "multi_thread")]
async fn large_tensors_of_every_kind_survive_the_trip() {
    let (coordinator, pki) = coordinator().await;
    let _worker = Worker::start(&coordinator, &pki, "w1", 2, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let mut spec = task("echo");
    let pixels: Vec<f32> = (0u16..60_000).map(f32::from).collect();
    let wide: Vec<u8> = (0..40 << 20).map(|i: u32| i.to_le_bytes()[1]).collect();
    spec.inputs = vec![
        NamedTensor::new("image", Tensor::from_slice([3, 100, 200], &pixels).unwrap()),
        NamedTensor::new("empty", Tensor::zeros(DType::I64, [0, 5]).unwrap()),
        NamedTensor::new("wide", Tensor::from_slice([wide.len()], &wide).unwrap()),
        NamedTensor::new("scalar", Tensor::scalar(true).unwrap()),
    ];
    let record = coordinator.run(spec.clone()).await.unwrap();
    assert_eq!(record.error, None);
    assert!(record.outputs.as_ref() == Some(&spec.inputs), "bytes differ");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_executor_are_final_and_say_why() {
    let (coordinator, pki) = coordinator().await;
    let _worker = Worker::start(&coordinator, &pki, "w1", 2, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let cases = [
        ("bad-input", 1, TaskErrorKind::BadInput, "input \"x\" has rank 1, expected 4"),
        (
            "panics",
            1,
            TaskErrorKind::ModelFailed,
            "the executor did not finish: it panicked: on purpose",
        ),
        ("exhausted", 3, TaskErrorKind::Unavailable, "gave up after 3 attempts: out of memory"),
    ];
    for (name, attempts, code, message) in cases {
        let mut spec = task(name);
        spec.max_attempts = 3;
        let record = coordinator.run(spec).await.unwrap();
        let error = record.error.expect(name);
        assert_eq!((record.state, record.attempts), (TaskState::Failed, attempts), "{name}");
        assert_eq!(error.code, code, "{name}");
        assert!(error.message.starts_with(message), "{error}");
    }
    // The worker still works.
    assert_eq!(coordinator.run(task("echo")).await.unwrap().state, TaskState::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_share_the_work_under_every_strategy() {
    let (coordinator, pki) = coordinator().await;
    let _a = Worker::start(&coordinator, &pki, "a", 4, &Echo::open());
    let _b = Worker::start(&coordinator, &pki, "b", 4, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    for strategy in lgp_distributed::balancing_strategies() {
        coordinator.set_balancing(strategy).unwrap();
        assert_eq!(coordinator.balancing(), strategy);
        let before: Vec<u64> = coordinator.workers().iter().map(|w| w.completed).collect();
        // They sleep, so the delays of a busy machine are small in comparison.
        let ids: Vec<_> = (0..200).map(|_| coordinator.submit(task("brief")).unwrap()).collect();
        for id in ids {
            assert_eq!(coordinator.wait(id).await.unwrap().state, TaskState::Succeeded);
        }
        let shares: Vec<u64> =
            coordinator.workers().iter().zip(before).map(|(w, b)| w.completed - b).collect();
        // Strategies that measure may prefer one of two equal workers.
        let least = if ["adaptive", "balanced"].contains(&strategy) { 1 } else { 50 };
        assert!(shares.iter().all(|&s| s >= least), "{strategy}: {shares:?}");
        assert_eq!(shares.iter().sum::<u64>(), 200, "{strategy}");
    }
    assert!(matches!(
        coordinator.set_balancing("magic"),
        Err(Error::UnknownBalancing { known, .. })
            if known == lgp_distributed::balancing_strategies()
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_tasks_end_at_once_and_give_their_slot_back_later() {
    let (coordinator, pki) = coordinator().await;
    let slow = Echo::shut();
    let _worker = Worker::start(&coordinator, &pki, "w1", 1, &slow);
    coordinator.wait_for_workers(1).await.unwrap();
    let running = coordinator.submit(task("echo")).unwrap();
    let waiting = coordinator.submit(task("echo")).unwrap();
    let third = coordinator.submit(task("echo")).unwrap();
    eventually("execution", || (slow.begun.load(Ordering::SeqCst) == 1).then_some(())).await;
    for id in [waiting, running] {
        let record = coordinator.cancel(id).await.unwrap();
        assert_eq!(record.state, TaskState::Cancelled);
        assert_eq!(record.error.unwrap().code, TaskErrorKind::Cancelled);
        assert_eq!(coordinator.cancel(id).await.unwrap().state, TaskState::Cancelled);
    }
    // The executor does not check for a stop, so its slot stays taken while it runs.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(coordinator.state(third).unwrap(), TaskState::Queued);
    slow.let_go();
    assert_eq!(coordinator.wait(third).await.unwrap().state, TaskState::Succeeded);
    assert_eq!(coordinator.state(running).unwrap(), TaskState::Cancelled);
    assert_eq!(slow.begun.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn urgent_tasks_overtake_and_keys_stand_for_one_task() {
    let (coordinator, pki) = coordinator().await;
    let mut spec = task("echo");
    spec.idempotency_key = Some("order-66".into());
    spec.priority = Priority::Low;
    let id = coordinator.submit(spec.clone()).unwrap();
    assert_eq!(coordinator.submit(spec.clone()).unwrap(), id);
    let mut other = spec.clone();
    other.inputs[0].name = "y".into();
    match coordinator.submit(other) {
        Err(Error::Conflict { key, existing }) => {
            assert_eq!((key.as_str(), existing), ("order-66", id))
        }
        other => panic!("{other:?}"),
    }
    let mut urgent = task("echo");
    urgent.priority = Priority::Critical;
    let urgent = coordinator.submit(urgent).unwrap();
    let gate = Echo::shut();
    let _worker = Worker::start(&coordinator, &pki, "w1", 1, &gate);
    let running = || (coordinator.state(urgent).unwrap() == TaskState::Running).then_some(());
    eventually("the urgent task runs", running).await;
    assert_eq!(coordinator.state(id).unwrap(), TaskState::Queued);
    gate.let_go();
    assert_eq!(coordinator.wait(id).await.unwrap().state, TaskState::Succeeded);
    assert_eq!(coordinator.submit(spec).unwrap(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_and_records_are_bounded() {
    let pki = Pki::generate().unwrap();
    let config = lgp_distributed::CoordinatorConfig {
        queue_tasks_max: 3,
        retained_tasks_max: 2,
        ..config()
    };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    let ids: Vec<_> = (0..3).map(|_| coordinator.submit(task("echo")).unwrap()).collect();
    match coordinator.submit(task("echo")) {
        Err(Error::Overloaded { queued: 3, queued_bytes: 36, retry_after }) => {
            assert!(retry_after >= Duration::from_millis(50));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(coordinator.stats().overloaded, 1);
    let _worker = Worker::start(&coordinator, &pki, "w1", 1, &Echo::open());
    coordinator.wait(ids[2]).await.unwrap();
    assert!(matches!(coordinator.task(ids[0]).await, Err(Error::Expired { .. })));
    assert_eq!(coordinator.tasks(&TaskFilter::default()).await.unwrap().tasks.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_reach_every_worker_also_later_ones() {
    let (coordinator, pki) = coordinator().await;
    let _a = Worker::start(&coordinator, &pki, "a", 1, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let report = coordinator.load(model("digits")).await.unwrap();
    assert_eq!(report.len(), 1);
    assert_eq!(report[0].1, Ok(()));
    let _b = Worker::start(&coordinator, &pki, "b", 1, &Echo::open());
    let loaded = || {
        let workers = coordinator.workers();
        (workers.len() == 2 && workers.iter().all(|w| w.models == ["digits/1"])).then_some(())
    };
    eventually("the model is on both", loaded).await;

    let report = coordinator.load(model("missing")).await.unwrap();
    assert!(report.iter().all(|(_, result)| result.is_err()), "{report:?}");
    let error = coordinator.run(task("missing")).await.unwrap().error.unwrap();
    assert_eq!(error.code, TaskErrorKind::ModelNotFound);
    assert_eq!(error.message, "no worker could load model missing/1: no such model");
    coordinator.unload(&model("missing"));
    assert_eq!(coordinator.models(), [model("digits")]);
}
