//! Several coordinators of one cluster, of which one leads: workers and clients follow when it
//! steps down.

use crate::common::{Echo, Worker, config, eventually, task};
use lgp_distributed::{
    Client, Coordinator, CoordinatorConfig, Coordinators, Error, Identity, Pki, Result, Role,
    TaskSpec, TaskState, WorkerConfig,
};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Addresses that are free a moment before they are used.
fn free_addrs<const N: usize>() -> [SocketAddr; N] {
    let sockets: [UdpSocket; N] = std::array::from_fn(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.each_ref().map(|socket| socket.local_addr().unwrap())
}

fn list(addrs: &[SocketAddr]) -> Coordinators {
    let texts: Vec<String> = addrs.iter().map(ToString::to_string).collect();
    texts.join(",").parse().unwrap()
}

/// A coordinator as another machine would start it on the same folder.
async fn start(folder: &Path, quic_addr: SocketAddr) -> Result<(Coordinator, Pki)> {
    let pki = Pki::open(&folder.join("pki"))?;
    let journal = Some(folder.join("tasks.journal"));
    let config = CoordinatorConfig { quic_addr, journal, ..config() };
    Ok((Coordinator::start(config, &pki).await?, pki))
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_steps_down_workers_and_clients_follow_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let addrs: [SocketAddr; 2] = free_addrs();
    let (first, pki) = start(folder.path(), addrs[0]).await.unwrap();
    let refused = start(folder.path(), addrs[1]).await;
    assert!(matches!(refused, Err(Error::Led { .. })), "{refused:?}");

    let echo = Echo::shut();
    let config = WorkerConfig::new(list(&addrs), pki.issue_worker("w").unwrap(), 1);
    let worker = Worker::with(config, &echo);
    let id = first.submit_all(vec![(TaskSpec { durable: true, ..task("echo") }, vec![])]).await;
    let id = id.unwrap()[0];
    eventually("the task begins", || (echo.begun.load(Ordering::SeqCst) == 1).then_some(())).await;
    let kept = pki.issue(Role::Client, "c").unwrap();
    let client = Client::connect(list(&addrs), &kept).await.unwrap();
    first.stop().await;
    assert!(matches!(client.task(id).await, Err(Error::Connection(_))));

    // Another coordinator leads, while the process of the first one continues.
    let (second, _pki) = start(folder.path(), addrs[1]).await.unwrap();
    echo.let_go();
    let record = second.wait(id).await.unwrap();
    assert_eq!((record.state, record.worker.unwrap().as_str()), (TaskState::Succeeded, "w"));
    let client = Client::connect(list(&addrs), &kept).await.unwrap();
    assert_eq!(client.task(id).await.unwrap().state, TaskState::Succeeded);
    second.stop().await;

    // The first coordinator leads again, and remembers the task.
    let journal = Some(folder.path().join("tasks.journal"));
    let config = CoordinatorConfig { quic_addr: addrs[0], journal, ..crate::common::config() };
    let first = Coordinator::start(config, &pki).await.unwrap();
    assert_eq!(first.task(id).await.unwrap().state, TaskState::Succeeded);
    assert_eq!(first.run(task("echo")).await.unwrap().state, TaskState::Succeeded);
    worker.stop().await.unwrap();
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_is_gone_or_not_ours_keeps_nobody_from_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let [gone, strange, ours] = free_addrs();
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let (_stranger, _) = start(&elsewhere, strange).await.unwrap();
    let (coordinator, pki) = start(folder.path(), ours).await.unwrap();
    let identity: Identity = pki.issue_worker("w").unwrap();
    let config = WorkerConfig::new(list(&[gone, strange, ours]), identity.clone(), 1);
    let worker = Worker::with(config, &Echo::open());
    let reached = tokio::time::timeout(Duration::from_secs(30), coordinator.wait_for_workers(1));
    reached.await.expect("it goes on to the third").unwrap();
    worker.stop().await.unwrap();

    // If all coordinators refuse the worker, it ends with that error.
    let config = WorkerConfig::new(list(&[strange, strange]), identity, 1);
    let error = Worker::with(config, &Echo::open()).ended().await.expect_err("not its cluster");
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    coordinator.stop().await;
}
