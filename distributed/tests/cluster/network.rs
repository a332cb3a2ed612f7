//! Bad networks: datagrams that are lost, late, doubled or reordered, and cuts of one or both
//! directions. The relay itself is tested first.

use crate::common::{Echo, Worker, config, coordinator, eventually, model, task};
use crate::relay::{Relay, Weather};
use lgp_distributed::{
    Coordinator, CoordinatorConfig, Pki, TaskId, TaskState, WorkerConfig, WorkerState, run_worker,
};
use lgp_memory::{NamedTensor, Tensor};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A bad wireless link, which loses every twelfth datagram.
const BAD: Weather = Weather {
    lost_per_mille: 80,
    doubled_per_mille: 20,
    overtaken_per_mille: 50,
    delay: Duration::from_millis(20),
    jitter: Duration::from_millis(10),
    ..Weather::CALM
};

/// Sends numbered datagrams through a relay and returns the numbers that arrive.
fn through(weather: Weather, count: u32) -> (Vec<u32>, Relay) {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    sink.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let relay = Relay::start(sink.local_addr().unwrap(), 7).unwrap();
    relay.set(weather);
    let source = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = relay.addr();
    let sending = std::thread::spawn(move || {
        for number in 0..count {
            source.send_to(&number.to_le_bytes(), address).unwrap();
            // Slow enough that no socket's buffer overflows, which would lose more datagrams.
            if number % 16 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let mut buffer = [0; 4];
    let mut arrived = Vec::new();
    while sink.recv(&mut buffer).is_ok() {
        arrived.push(u32::from_le_bytes(buffer));
    }
    sending.join().unwrap();
    (arrived, relay)
}

#[test]
fn the_relay_passes_loses_doubles_and_reorders() {
    let (arrived, relay) = through(Weather::CALM, 1_000);
    assert!(arrived.iter().copied().eq(0..1_000), "{arrived:?} {:?}", relay.counts());

    let (arrived, relay) = through(BAD, 4_000);
    let counts = relay.counts();
    // Four standard deviations around the expected value.
    assert!((250..=390).contains(&counts.lost), "{counts:?}");
    assert!((40..=110).contains(&counts.doubled), "{counts:?}");
    assert!((130..=240).contains(&counts.overtaken), "{counts:?}");
    assert_eq!(u64::try_from(arrived.len()).unwrap(), counts.passed + counts.doubled);
    let turned = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(turned > 100, "{turned} of {} are out of order", arrived.len());
    // The same seed makes the same decisions.
    assert_eq!(relay.counts().lost, through(BAD, 4_000).1.counts().lost);

    for cut in [Weather::CUT, Weather { cut_forth: true, ..Weather::CALM }] {
        let (arrived, relay) = through(cut, 100);
        assert!(arrived.is_empty() && relay.counts().cut == 100, "{arrived:?}");
    }
    let (arrived, _) = through(Weather { cut_back: true, ..Weather::CALM }, 100);
    assert_eq!(arrived.len(), 100, "the other way is open");
}

/// A worker that reaches its coordinator only through a relay.
fn far(
    coordinator: &Coordinator,
    pki: &Pki,
    name: &str,
    slots: u32,
    echo: &Arc<Echo>,
) -> (Relay, Worker) {
    let seed = name.bytes().map(u64::from).sum();
    let relay = Relay::start(coordinator.quic_addr(), seed).unwrap();
    let config = WorkerConfig::new(relay.addr(), pki.issue_worker(name).unwrap(), slots);
    (relay, Worker::with(config, echo))
}

async fn succeed(coordinator: &Coordinator, ids: &[TaskId], attempts: u32, on: &str) {
    for id in ids {
        let record = coordinator.wait(*id).await.unwrap();
        let by = record.worker.as_ref().unwrap().as_str();
        assert_eq!((record.state, record.attempts), (TaskState::Succeeded, attempts), "{record:?}");
        assert_eq!(by, on);
    }
}

/// Submits tasks and waits until a blocked worker has begun them.
async fn begun(coordinator: &Coordinator, stuck: &Echo, count: usize) -> Vec<TaskId> {
    let before = stuck.begun.load(Ordering::SeqCst);
    let ids = (0..count).map(|_| coordinator.submit(task("echo")).unwrap()).collect();
    let all = || (stuck.begun.load(Ordering::SeqCst) == before + count).then_some(());
    eventually("execution", all).await;
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_network_slows_tasks_and_takes_no_worker_for_lost() {
    let (coordinator, pki) = coordinator().await;
    let links = ["a", "b"].map(|name| (name, far(&coordinator, &pki, name, 8, &Echo::open())));
    for (_, (relay, _)) in &links {
        relay.set(BAD);
    }
    coordinator.wait_for_workers(2).await.unwrap();
    let large: Vec<f32> = (0u16..10_000).map(f32::from).collect();
    let large = Tensor::from_slice([large.len()], &large).unwrap();
    let specs = (0..204).map(|number| {
        let mut spec = task("echo");
        if number % 50 == 0 {
            spec.inputs = vec![NamedTensor::new("x", large.clone())];
        }
        spec
    });
    let specs: Vec<_> = specs.collect();
    let ids: Vec<_> = specs.iter().map(|s| coordinator.submit(s.clone()).unwrap()).collect();
    for (id, spec) in ids.iter().zip(&specs) {
        let record = coordinator.wait(*id).await.unwrap();
        assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1), "{record:?}");
        assert!(record.outputs.as_ref() == Some(&spec.inputs), "bytes differ");
    }
    let stats = coordinator.stats();
    assert_eq!((stats.retries, stats.stale_completions), (0, 0));
    assert!(coordinator.workers().iter().all(|w| w.state == WorkerState::Ready && w.completed > 0));
    for (name, (relay, _)) in &links {
        let counts = relay.counts();
        let hit = counts.lost > 0 && counts.doubled > 0 && counts.overtaken > 0;
        assert!(hit, "{name} had no bad network: {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_falls_silent_is_given_up_and_comes_back_warm() {
    let (coordinator, pki) = coordinator().await;
    let stuck = Echo::shut();
    let (relay, _victim) = far(&coordinator, &pki, "a-victim", 2, &stuck);
    coordinator.wait_for_workers(1).await.unwrap();
    coordinator.load(model("echo")).await.unwrap();
    let ids = begun(&coordinator, &stuck, 2).await;
    let _other = Worker::start(&coordinator, &pki, "b-other", 2, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();

    relay.set(Weather::CUT);
    let began = Instant::now();
    succeed(&coordinator, &ids, 2, "b-other").await;
    // Two seconds to notice the loss, and a margin for a busy machine.
    assert!(began.elapsed() < Duration::from_millis(2_700), "{:?}", began.elapsed());
    assert_eq!(coordinator.worker("a-victim").unwrap().state, WorkerState::Lost);
    stuck.let_go();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(coordinator.worker("a-victim").unwrap().state, WorkerState::Lost);

    relay.set(Weather::CALM);
    let back = || {
        let victim = coordinator.worker("a-victim").unwrap();
        (victim.state == WorkerState::Ready && victim.models == ["echo/1"]).then_some(())
    };
    eventually("the worker is back with its model", back).await;
    assert_eq!(stuck.loads.load(Ordering::SeqCst), 1, "it had the model all the time");
    let before = coordinator.worker("a-victim").unwrap().completed;
    let works = || {
        coordinator.submit(task("echo")).unwrap();
        (coordinator.worker("a-victim").unwrap().completed > before).then_some(())
    };
    eventually("it works again", works).await;
    assert_eq!(coordinator.stats().tasks.failed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_silence_is_forgiven() {
    let (coordinator, pki) = coordinator().await;
    let stuck = Echo::shut();
    let (relay, _far) = far(&coordinator, &pki, "far", 1, &stuck);
    coordinator.wait_for_workers(1).await.unwrap();
    let ids = begun(&coordinator, &stuck, 1).await;
    let _idle = Worker::start(&coordinator, &pki, "idle", 1, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    for _ in 0..3 {
        relay.set(Weather::CUT);
        tokio::time::sleep(Duration::from_millis(600)).await;
        relay.set(Weather::CALM);
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    stuck.let_go();
    succeed(&coordinator, &ids, 1, "far").await;
    assert_eq!(coordinator.stats().retries, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_of_one_direction_are_noticed_too() {
    for (what, cut) in [
        ("nothing comes from it", Weather { cut_forth: true, ..Weather::CALM }),
        ("nothing reaches it", Weather { cut_back: true, ..Weather::CALM }),
    ] {
        let (coordinator, pki) = coordinator().await;
        let stuck = Echo::shut();
        let (relay, _victim) = far(&coordinator, &pki, "a-victim", 2, &stuck);
        coordinator.wait_for_workers(1).await.unwrap();
        let running = begun(&coordinator, &stuck, 2).await;
        let _other = Worker::start(&coordinator, &pki, "b-other", 2, &Echo::open());
        coordinator.wait_for_workers(2).await.unwrap();
        relay.set(cut);
        let began = Instant::now();
        succeed(&coordinator, &running, 2, "b-other").await;
        // The side that still receives but is not heard must give up first: its transport's 2.5 s
        // come before the coordinator's 2 s.
        assert!(began.elapsed() < Duration::from_millis(6_500), "{what}: {:?}", began.elapsed());
        stuck.let_go();
        relay.set(Weather::CALM);
        let back = || (coordinator.stats().workers.ready == 2).then_some(());
        eventually("the worker is back", back).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_never_end_keep_nobody_out() {
    let (coordinator, pki) = coordinator().await;
    // Their packets arrive, but the answers to them are lost.
    let relay = Relay::start(coordinator.quic_addr(), 1).unwrap();
    relay.set(Weather { cut_back: true, ..Weather::CALM });
    let mut half_open = tokio::task::JoinSet::new();
    for number in 0..100 {
        let identity = pki.issue_worker(&format!("half-{number}")).unwrap();
        let config = WorkerConfig::new(relay.addr(), identity, 1);
        half_open.spawn(run_worker(config, Echo::open(), std::future::pending()));
    }
    let all = || (relay.counts().cut >= 100).then_some(());
    eventually("the coordinator has answered a hundred", all).await;
    let began = Instant::now();
    let _worker = Worker::start(&coordinator, &pki, "rightful", 1, &Echo::open());
    let record = coordinator.run(task("echo")).await.unwrap();
    assert_eq!(record.state, TaskState::Succeeded);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(coordinator.workers().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_workers_come_back_at_once() {
    let (first, pki) = coordinator().await;
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..50 {
        let identity = pki.issue_worker(&format!("w{number}")).unwrap();
        let config = WorkerConfig::new(first.quic_addr(), identity, 1);
        workers.spawn(run_worker(config, Echo::open(), std::future::pending()));
    }
    first.wait_for_workers(50).await.unwrap();
    first.load(model("echo")).await.unwrap();
    first.stop().await;
    // Long enough that all of them are waiting between two attempts.
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let again = CoordinatorConfig { quic_addr: first.quic_addr(), ..config() };
    let second = Coordinator::start(again, &pki).await.unwrap();
    let began = Instant::now();
    let all = second.wait_for_workers(50);
    tokio::time::timeout(Duration::from_secs(15), all).await.expect("they come back").unwrap();
    println!("50 workers were back after {:?}", began.elapsed());
    let ids: Vec<_> = (0..500).map(|_| second.submit(task("echo")).unwrap()).collect();
    for id in ids {
        assert_eq!(second.wait(id).await.unwrap().state, TaskState::Succeeded);
    }
    assert_eq!(second.stats().retries, 0);
}
