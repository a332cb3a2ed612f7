//! Transfers of inputs that are cut, damaged or refused, between a worker and a coordinator by
//! hand, and the other way round.

mod rig;

use super::Answer;
use crate::net::tests::{connect, coordinator, frame, hello, keep_beating};
use crate::net::transport::rpc::{self, Ask};
use crate::net::transport::wire::{self, Start};
use crate::proto::message::{
    Kind, OutcomeHeader, TaskHeader, TensorBlob, TensorRange, VERSION, Verdict,
};
use crate::{Coordinator, CoordinatorConfig, ExecErrorKind, ModelRef, Pki, TaskSpec};
use lgp_memory::{DType, NamedTensor, Tensor};
use rig::*;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[tokio::test]
async fn a_transfer_goes_on_where_stream_and_connection_were_cut() {
    let rig = rig();
    let first = rig.greet().await;
    let _lost = rig.task(&first, 1, rig.blob).await;
    let (offset, send) = rig.question(&first).await;
    assert_eq!(offset, 0);
    rig.serve(send, &rig.run[..300_000]).await;
    // The stream ended early: the same connection is asked for the rest.
    let (offset, send) = rig.question(&first).await;
    assert_eq!(offset, 300_000);
    rig.serve(send, &rig.run[300_000..1_000_001]).await;
    let (offset, _send) = rig.question(&first).await;
    assert_eq!(offset, 1_000_001);
    // The connection is cut, too, and the next attempt comes over another one.
    first.connection.close(0u32.into(), b"cut");
    let second = rig.greet().await;
    let answer = rig.task(&second, 2, rig.blob).await;
    let (offset, send) = rig.question(&second).await;
    assert_eq!(offset, 1_000_001, "each byte was served once");
    rig.serve(send, &rig.run[offset..]).await;
    assert_eq!(outcome(answer).await, Ok(rig.inputs.clone()));
    // A finished transfer is not kept.
    let _answer = rig.task(&second, 3, rig.blob).await;
    assert_eq!(rig.question(&second).await.0, 0);
}

#[tokio::test]
async fn an_attempt_that_is_not_wanted_ends_while_its_inputs_are_fetched() {
    let rig = rig();
    let mut greeted = rig.greet().await;
    let answer = rig.task(&greeted, 1, rig.blob).await;
    let (_, mut slow) = rig.question(&greeted).await;
    rpc::write(&mut slow, &Answer::Found(rig.blob.bytes)).await.unwrap();
    slow.write_all(&rig.run[..1_000_000]).await.unwrap();
    wire::write_report(&mut greeted.control, Kind::Recall, &attempt_id(1)).await.unwrap();
    let error = outcome(answer).await.expect_err("it was asked back");
    assert_eq!(error.message, "refused");
    // A cancelled attempt ends as soon, and the next one continues after the bytes that came.
    let mut answer = rig.task(&greeted, 2, rig.blob).await;
    let (offset, _slow) = rig.question(&greeted).await;
    assert!(offset > 0, "{offset}");
    answer.stop(0u32.into()).unwrap();
    let released = async {
        loop {
            let (kind, _) = wire::read_report(&mut greeted.reports).await.unwrap();
            if kind == Kind::Released {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), released).await.expect("it lets go at once");
    // A worker that is to leave gives back attempts that it has not begun.
    let answer = rig.task(&greeted, 3, rig.blob).await;
    let (_, _slow) = rig.question(&greeted).await;
    wire::write_report(&mut greeted.control, Kind::Drain, &()).await.unwrap();
    let error = outcome(answer).await.expect_err("it leaves");
    assert_eq!(error.message, "refused");
}

#[tokio::test]
async fn tasks_wait_for_room_for_their_inputs() {
    let executor = Arc::new(Echo { shut: Mutex::new(true), ..Echo::default() });
    let rig = rig_of(Arc::clone(&executor));
    let greeted = rig.greet().await;
    let first = rig.task(&greeted, 1, rig.blob).await;
    let (_, send) = rig.question(&greeted).await;
    rig.serve(send, &rig.run).await;
    // The first task has its inputs and runs; with those of the second it would be 4 MB of 3.
    let second = rig.task(&greeted, 2, rig.blob).await;
    let asked = tokio::time::timeout(Duration::from_millis(300), rig.question(&greeted)).await;
    assert!(asked.is_err(), "there is no room");
    *executor.shut.lock().unwrap() = false;
    executor.opened.notify_all();
    assert_eq!(outcome(first).await, Ok(rig.inputs.clone()));
    let (_, send) = rig.question(&greeted).await;
    rig.serve(send, &rig.run).await;
    assert_eq!(outcome(second).await, Ok(rig.inputs.clone()));
}

#[tokio::test]
async fn damaged_inputs_are_refused_and_begun_anew() {
    let rig = rig();
    let greeted = rig.greet().await;
    let mut damaged = rig.run.clone();
    damaged[1_234_567] ^= 1;
    let answer = rig.task(&greeted, 1, rig.blob).await;
    for _ in 0..3 {
        let (offset, send) = rig.question(&greeted).await;
        assert_eq!(offset, 0);
        rig.serve(send, &damaged).await;
    }
    let error = outcome(answer).await.expect_err("nothing of it is believed");
    assert_eq!(error.kind, ExecErrorKind::Unavailable);
    assert!(error.message.contains("another digest"), "{error}");
    // One good transfer after a bad one is enough.
    let answer = rig.task(&greeted, 2, rig.blob).await;
    for run in [&damaged, &rig.run] {
        let (offset, send) = rig.question(&greeted).await;
        assert_eq!(offset, 0);
        rig.serve(send, run).await;
    }
    assert_eq!(outcome(answer).await, Ok(rig.inputs.clone()));
}

#[tokio::test]
async fn inputs_that_are_unknown_or_too_long_are_given_to_others() {
    let rig = rig();
    let greeted = rig.greet().await;
    let answer = rig.task(&greeted, 1, rig.blob).await;
    for _ in 0..3 {
        let (_, mut send) = rig.question(&greeted).await;
        rpc::write(&mut send, &Answer::Unknown).await.unwrap();
        send.finish().unwrap();
    }
    let error = outcome(answer).await.expect_err("nobody has them");
    assert!(error.message.contains("has no such inputs"), "{error}");
    assert_eq!(error.kind, ExecErrorKind::Unavailable);
    // A header whose tensors do not fit its blob gets no answer, and nothing is allocated for it.
    let huge = TensorBlob { bytes: 1 << 50, ..rig.blob };
    let mut answer = rig.task(&greeted, 2, huge).await;
    assert!(answer.read_to_end(100).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_worker_takes_no_more_than_it_is_set_to() {
    let input_cache = super::TensorCache::new(1_000, 1);
    let (coordinator, pki) = coordinator().await;
    let (_endpoint, connection) = connect(&coordinator, &pki.issue_worker("w").unwrap()).await;
    let blob = TensorBlob { sha256: [0; 32], bytes: 1_001 };
    let error = input_cache
        .fetch(super::Peer::Coordinator(&connection), blob, Vec::new())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "1001 bytes of inputs, at most 1000 are accepted");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_coordinator_serves_inputs_while_an_attempt_needs_them() {
    let (coordinator, pki) = coordinator().await;
    serves(coordinator, pki, false).await;
    // Inputs of durable tasks lie on the disk.
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki::generate().unwrap();
    let config = CoordinatorConfig {
        quic_addr: "127.0.0.1:0".parse().unwrap(),
        journal: Some(folder.path().join("journal")),
        ..CoordinatorConfig::default()
    };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    serves(coordinator, pki, true).await;
}

async fn serves(coordinator: Coordinator, pki: Pki, durable: bool) {
    let (_endpoint, connection) = connect(&coordinator, &pki.issue_worker("w").unwrap()).await;
    let mut reports = connection.open_uni().await.unwrap();
    reports.write_all(&frame(Kind::Hello, &hello("w", VERSION))).await.unwrap();
    keep_beating(reports);
    let count = (64 << 20) + 1;
    let inputs = vec![
        NamedTensor::new("x", Tensor::zeros(DType::U8, [count]).unwrap()),
        NamedTensor::new("y", Tensor::from_slice([3], &[1u8, 2, 3]).unwrap()),
    ];
    let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
    let spec = TaskSpec { durable, ..TaskSpec::new(model, inputs) };
    let id = coordinator.submit_all(vec![(spec, Vec::new())]).await.unwrap()[0];
    let (mut send, mut recv) = connection.accept_bi().await.unwrap();
    let start = Start::read(&mut recv).await.unwrap();
    let header: TaskHeader = start.header(Kind::Task, "task").unwrap();
    let blob = header.blob.expect("too long to follow");
    assert_eq!(blob.bytes, u64::try_from(count).unwrap() + 3);
    let ask = async |sha256, offset| {
        let (mut send, mut recv) = connection.open_bi().await.unwrap();
        rpc::write(&mut send, &Ask::Tensors(TensorRange { sha256, offset })).await.unwrap();
        send.finish().unwrap();
        let answer: Answer = rpc::read(&mut recv).await.unwrap();
        (answer, recv.read_to_end(100 << 20).await.unwrap())
    };
    let mut hash = Sha256::new();
    for (offset, expected) in [(0, 0), (blob.bytes - 4, 0), (blob.bytes - 2, 2)] {
        let (answer, bytes) = ask(blob.sha256, offset).await;
        assert!(matches!(answer, Answer::Found(bytes) if bytes == blob.bytes));
        assert_eq!(bytes.len(), usize::try_from(blob.bytes - offset).unwrap());
        assert_eq!((bytes[0], bytes.last()), (expected, Some(&3)));
        if offset == 0 {
            hash.update(&bytes);
        }
    }
    assert_eq!(<[u8; 32]>::from(hash.finalize()), blob.sha256);
    for (sha256, offset) in [([0; 32], 0), (blob.sha256, blob.bytes), (blob.sha256, u64::MAX)] {
        let (answer, bytes) = ask(sha256, offset).await;
        assert_eq!(matches!(answer, Answer::Unknown), sha256 == [0; 32]);
        assert!(bytes.is_empty());
    }
    let verdict = Verdict::Done(Vec::new());
    let done = OutcomeHeader::of(header.id, verdict);
    send.write_all(&frame(Kind::Outcome, &done)).await.unwrap();
    send.finish().unwrap();
    coordinator.wait(id).await.unwrap();
    assert!(matches!(ask(blob.sha256, 0).await.0, Answer::Unknown), "its task has ended");
    coordinator.stop().await;
}

#[tokio::test]
async fn inputs_in_memory_outlive_a_durable_task_that_has_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki::generate().unwrap();
    let config = CoordinatorConfig {
        quic_addr: "127.0.0.1:0".parse().unwrap(),
        journal: Some(folder.path().join("journal")),
        ..CoordinatorConfig::default()
    };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    let mut workers = Vec::new();
    for name in ["v", "w"] {
        let (endpoint, connection) = connect(&coordinator, &pki.issue_worker(name).unwrap()).await;
        let mut reports = connection.open_uni().await.unwrap();
        reports.write_all(&frame(Kind::Hello, &hello(name, VERSION))).await.unwrap();
        keep_beating(reports);
        workers.push((endpoint, connection));
    }
    coordinator.wait_for_workers(2).await.unwrap();
    let count = (64 << 20) + 1;
    let inputs = vec![NamedTensor::new("x", Tensor::zeros(DType::U8, [count]).unwrap())];
    let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
    let in_memory = TaskSpec::new(model, inputs);
    let durable = TaskSpec { durable: true, ..in_memory.clone() };
    let first = coordinator.submit_all(vec![(durable, Vec::new())]).await.unwrap()[0];
    coordinator.submit_all(vec![(in_memory, Vec::new())]).await.unwrap();
    // Both attempts are under way, and wait for their inputs.
    let mut attempts = Vec::new();
    for (_, connection) in &workers {
        let (send, mut recv) = connection.accept_bi().await.unwrap();
        let start = Start::read(&mut recv).await.unwrap();
        let header: TaskHeader = start.header(Kind::Task, "task").unwrap();
        attempts.push((send, recv, header.blob.expect("too long to follow")));
    }
    let blob = attempts[0].2;
    assert_eq!(blob, attempts[1].2);
    coordinator.cancel(first).await.unwrap();
    let inputs = folder.path().join("journal.inputs");
    while std::fs::read_dir(&inputs).unwrap().next().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut send, mut recv) = workers[0].1.open_bi().await.unwrap();
    rpc::write(&mut send, &Ask::Tensors(TensorRange { sha256: blob.sha256, offset: 0 }))
        .await
        .unwrap();
    send.finish().unwrap();
    let answer: Answer = rpc::read(&mut recv).await.unwrap();
    assert!(matches!(answer, Answer::Found(bytes) if bytes == blob.bytes));
    assert_eq!(recv.read_to_end(100 << 20).await.unwrap().len(), count);
    coordinator.stop().await;
}
