//! Both ends of a link, peers that misbehave, and tasks whose tensors travel through a link.

use super::link::Link;
use super::message::Message;
use super::pool::{Budget, LENT_MAX};
use super::{SharedMemory, accept_offer};
use crate::net::tests::{connect, coordinator, frame, hello, keep_beating};
use crate::net::transport::wire;
use crate::proto::message::{
    AttemptId, Kind, OutcomeHeader, SharedBody, TaskHeader, VERSION, Verdict, Welcome,
};
use crate::proto::tensors::{describe, plan};
use crate::worker_info::Transport;
use crate::{Coordinator, ModelRef, TaskErrorKind, TaskSpec, TaskState};
use lgp_memory::{NamedTensor, Tensor};
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const PLENTY: usize = 64 << 20;

fn id(seq: u64) -> AttemptId {
    AttemptId { epoch: 7, seq, attempt: 1 }
}

/// Two tensors, the first of which has `count` elements.
fn tensors(values: f32, count: usize) -> Vec<NamedTensor> {
    let x = Tensor::from_slice([count], &vec![values; count]).unwrap();
    let mask = Tensor::from_slice([3], &[true, false, true]).unwrap();
    vec![NamedTensor::new("x", x), NamedTensor::new("mask", mask)]
}

/// Both ends of a link that has begun, with a budget each.
fn pair(bytes_max: usize) -> (Arc<Link>, Arc<Link>, Arc<Budget>) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (here, there) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let budget = Budget::new(bytes_max);
    let link = |socket, budget| Arc::new(Link::new(socket, budget, true));
    (link(here, Arc::clone(&budget)), link(there, Budget::new(bytes_max)), budget)
}

fn lend(link: &Link, id: AttemptId, tensors: &[NamedTensor]) -> Option<SharedBody> {
    link.lend(id, tensors, describe(tensors).unwrap().1)
}

fn take(
    link: &Link,
    id: AttemptId,
    body: SharedBody,
    like: &[NamedTensor],
) -> crate::Result<Vec<NamedTensor>> {
    let planned = plan(describe(like).unwrap().0, usize::try_from(body.bytes).unwrap()).unwrap();
    link.take(id, body.ticket, planned)
}

#[test]
fn messages_survive_the_trip_and_noise_has_no_meaning() {
    let messages =
        [Message::Body { ticket: 1 << 40, id: id(9) }, Message::Done { ticket: 3 }, Message::Go];
    for message in messages {
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
    for noise in [&[][..], &[1; 31], &[1; 33], &[0; 32], &[255; 32]] {
        assert_eq!(Message::decode(noise), None, "{noise:?}");
    }
}

#[test]
fn tensors_arrive_as_they_were_and_buffers_serve_again() {
    let (here, there, _) = pair(PLENTY);
    for (seq, count) in [(1, 20_000), (2, 20_001), (3, 1), (4, 0), (5, 150_000)] {
        for (from, to) in [(&here, &there), (&there, &here)] {
            let sent = tensors(seq as f32, count);
            let body = lend(from, id(seq), &sent).expect("there is room");
            assert_eq!(take(to, id(seq), body, &sent).unwrap(), sent);
        }
    }
    // Of the five, two take a buffer of 128 KiB, two one of 64 KiB and one of 1 MiB.
    assert_eq!((here.counts(), there.counts()), ((0, 0, (5, 2)), (0, 0, (5, 2))));
}

#[test]
fn a_buffer_of_an_attempt_that_was_given_up_serves_no_other() {
    let (here, there, _) = pair(PLENTY);
    let (first, second) = (tensors(1.0, 20_000), tensors(2.0, 20_000));
    let stale = lend(&here, id(1), &first).expect("there is room");
    // The first attempt is cancelled, and its worker has not heard of it.
    let body = lend(&here, id(2), &second).expect("there is room");
    assert_eq!(take(&there, id(2), body, &second).unwrap(), second);
    assert_eq!(here.counts(), (1, 0, (2, 0)), "one is still lent");
    let body = lend(&here, id(3), &second).expect("there is room");
    assert_eq!(here.counts(), (1 + 1, 0, (3, 1)), "the other one serves again");
    assert_eq!(take(&there, id(1), stale, &first).unwrap(), first, "and nobody wrote to it");
    assert_eq!(take(&there, id(3), body, &second).unwrap(), second);
    assert_eq!(here.counts().0, 0);
}

#[test]
fn memory_of_another_attempt_is_not_read() {
    let (here, there, _) = pair(PLENTY);
    let sent = tensors(1.0, 20_000);
    let body = lend(&here, id(1), &sent).expect("there is room");
    let error = take(&there, AttemptId { attempt: 2, ..id(1) }, body, &sent).unwrap_err();
    assert!(error.to_string().contains("not for"), "{error}");
    // Both sides go on over QUIC.
    assert!(!there.tidy() && !here.tidy());
    assert_eq!(lend(&here, id(3), &sent), None);
    let error = take(&there, id(1), body, &sent).unwrap_err();
    assert!(error.to_string().contains("no shared memory came"), "{error}");
}

#[test]
fn memory_that_could_shrink_or_is_too_short_harms_nobody() {
    let memfd = |bytes: u64, seals: SealFlags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("test", flags).unwrap());
        file.set_len(bytes).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let like = tensors(1.0, 20_000);
    let bytes = u64::try_from(describe(&like).unwrap().1).unwrap();
    let cases = [
        (memfd(bytes, SealFlags::empty()), "may shrink"),
        (memfd(bytes - 1, SealFlags::SHRINK), "80002 bytes, and 80003 were announced"),
        (memfd(0, SealFlags::SHRINK), "0 bytes, and 80003"),
        (tempfile::tempfile().unwrap(), "Invalid argument"),
        (File::open("/dev/zero").unwrap(), "Invalid argument"),
    ];
    for (file, expected) in cases {
        let (here, there, _) = pair(PLENTY);
        assert!(here.post(Message::Body { ticket: 1, id: id(1) }, Some(file.as_fd())).unwrap());
        let error = take(&there, id(1), SharedBody { ticket: 1, bytes }, &like).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!there.tidy() && !here.tidy());
    }
}

#[test]
fn what_is_lent_can_be_neither_written_nor_truncated_by_its_reader() {
    let budget = Budget::new(PLENTY);
    let mut pool = super::pool::Pool::new(budget);
    let buffer = pool.get(40_000).unwrap().expect("there is room");
    let theirs = File::from(buffer.reader().try_clone_to_owned().unwrap());
    assert_eq!(theirs.metadata().unwrap().len(), 64 << 10);
    assert!(theirs.write_at(&[1], 0).is_err());
    assert!(theirs.set_len(0).is_err());
    let own = rustix::fs::fcntl_get_seals(&theirs).unwrap();
    assert!(own.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
}

#[test]
fn a_peer_without_manners_ends_the_lane_and_nothing_else() {
    // More buffers than were agreed.
    let (here, there, _) = pair(PLENTY);
    let file = File::open("/dev/null").unwrap();
    for ticket in 0..=u64::try_from(LENT_MAX).unwrap() {
        assert!(here.post(Message::Body { ticket, id: id(1) }, Some(file.as_fd())).unwrap());
    }
    assert!(!there.tidy());
    // A body without memory.
    let (here, there, _) = pair(PLENTY);
    assert!(here.post(Message::Body { ticket: 1, id: id(1) }, None).unwrap());
    assert!(!there.tidy());
    // A message about a ticket that was never given changes nothing.
    let (here, there, _) = pair(PLENTY);
    assert!(here.post(Message::Done { ticket: 99 }, None).unwrap());
    assert!(there.tidy());
    // The end of the other process.
    drop(here);
    assert!(!there.tidy());
    assert_eq!(lend(&there, id(1), &tensors(1.0, 20_000)), None);
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let (here, there, budget) = pair(256 << 10);
    let sent = tensors(1.0, 20_000);
    let first = lend(&here, id(1), &sent).expect("there is room");
    lend(&here, id(2), &sent).expect("there is room");
    assert_eq!((lend(&here, id(3), &sent), budget.taken()), (None, 256 << 10));
    assert_eq!(take(&there, id(1), first, &sent).unwrap(), sent);
    // Idle buffers make room for another size.
    let small = tensors(1.0, 10_000);
    assert!(lend(&here, id(4), &small).is_some());
    assert_eq!(budget.taken(), (128 << 10) + (64 << 10));
    drop(here);
    assert_eq!(budget.taken(), 0);
}

/// A worker by hand: a connection, its streams and its link.
struct Hand {
    _endpoint: Endpoint,
    connection: Connection,
    _control: RecvStream,
    shared_memory: Arc<SharedMemory>,
}

impl Hand {
    async fn join(coordinator: &Coordinator, pki: &crate::Pki, name: &str) -> Self {
        let identity = pki.issue_worker(name).unwrap();
        let (endpoint, connection) = connect(coordinator, &identity).await;
        let mut reports = connection.open_uni().await.unwrap();
        reports.write_all(&frame(Kind::Hello, &hello(name, VERSION))).await.unwrap();
        let mut control = connection.accept_uni().await.unwrap();
        let welcome: Welcome =
            wire::expect_report(&mut control, Kind::Welcome, "welcome").await.unwrap();
        let shared_memory = Arc::default();
        accept_offer(&welcome.link.expect("an invitation"), &shared_memory, PLENTY).unwrap();
        let hand = Self { _endpoint: endpoint, connection, _control: control, shared_memory };
        while hand.shared_memory.tidy() != Transport::SharedMemory {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        keep_beating(reports);
        while coordinator.worker(name).unwrap().transport != Transport::SharedMemory {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        hand
    }

    /// The next task's header, and its inputs.
    async fn task(&self) -> (TaskHeader, Vec<NamedTensor>, SendStream) {
        let (send, mut recv) = self.connection.accept_bi().await.unwrap();
        let start = wire::Start::read(&mut recv).await.unwrap();
        let header: TaskHeader = start.header(Kind::Task, "task").unwrap();
        let (metas, shared) = (header.tensors.clone(), header.shared);
        let inputs = start
            .tensors_from(&self.shared_memory, &mut recv, header.id, metas, shared)
            .await
            .unwrap();
        (header, inputs, send)
    }

    async fn answer(
        &self,
        mut send: SendStream,
        id: AttemptId,
        shared: SharedBody,
        like: &[NamedTensor],
    ) {
        let verdict = Verdict::Done(describe(like).unwrap().0);
        let outcome = OutcomeHeader { shared: Some(shared), ..OutcomeHeader::of(id, verdict) };
        send.write_all(&frame(Kind::Outcome, &outcome)).await.unwrap();
        send.finish().unwrap();
    }
}

fn task(inputs: &[NamedTensor]) -> TaskSpec {
    let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
    TaskSpec { max_attempts: 1, ..TaskSpec::new(model, inputs.to_vec()) }
}

#[tokio::test]
async fn large_tensors_of_a_task_lie_in_shared_memory_both_ways() {
    let (coordinator, pki) = coordinator().await;
    let hand = Hand::join(&coordinator, &pki, "w").await;
    let sent = tensors(1.0, 20_000);
    let id = coordinator.submit(task(&sent)).unwrap();
    let (header, inputs, send) = hand.task().await;
    assert!(header.shared.is_some(), "the stream carried a header alone");
    assert_eq!(inputs, sent);
    let outputs = tensors(2.0, 200_000);
    let bytes = describe(&outputs).unwrap().1;
    let shared = hand.shared_memory.lend(header.id, &outputs, bytes).await.expect("there is room");
    hand.answer(send, header.id, shared, &outputs).await;
    let record = coordinator.wait(id).await.unwrap();
    assert_eq!((record.state, record.outputs), (TaskState::Succeeded, Some(outputs)));

    // Small tensors follow their header.
    let small = tensors(1.0, 100);
    let id = coordinator.submit(task(&small)).unwrap();
    let (header, inputs, _send) = hand.task().await;
    assert_eq!((header.shared, inputs), (None, small));
    coordinator.cancel(id).await.unwrap();
    coordinator.stop().await;
}

#[tokio::test]
async fn an_answer_with_the_memory_of_an_older_attempt_is_refused_and_quic_takes_over() {
    let (coordinator, pki) = coordinator().await;
    let hand = Hand::join(&coordinator, &pki, "w").await;
    let sent = tensors(1.0, 20_000);
    let id = coordinator.submit(task(&sent)).unwrap();
    let (header, _, send) = hand.task().await;
    let older = AttemptId { seq: header.id.seq + 1, ..header.id };
    let bytes = describe(&sent).unwrap().1;
    let shared = hand.shared_memory.lend(older, &sent, bytes).await.expect("there is room");
    hand.answer(send, header.id, shared, &sent).await;
    // The attempt broke by nobody's fault; the next one comes without shared memory.
    let (header, inputs, send) = hand.task().await;
    assert_eq!((header.id.attempt, header.shared, inputs), (2, None, sent.clone()));
    while coordinator.worker("w").unwrap().transport != Transport::Quic {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    hand.answer(send, header.id, shared, &sent).await;
    let record = coordinator.wait(id).await.unwrap();
    // A worker that answers with memory that is not shared any more is to blame.
    let error = record.error.expect("one failure was allowed");
    assert_eq!((record.state, error.code), (TaskState::Failed, TaskErrorKind::WorkerLost));
    coordinator.stop().await;
}

#[tokio::test]
async fn who_was_not_invited_is_not_let_in() {
    let (coordinator, pki) = coordinator().await;
    let identity = pki.issue_worker("w").unwrap();
    let (_endpoint, connection) = connect(&coordinator, &identity).await;
    let mut reports = connection.open_uni().await.unwrap();
    reports.write_all(&frame(Kind::Hello, &hello("w", VERSION))).await.unwrap();
    let mut control = connection.accept_uni().await.unwrap();
    let welcome: Welcome =
        wire::expect_report(&mut control, Kind::Welcome, "welcome").await.unwrap();
    let offer = welcome.link.expect("an invitation");
    let settled = |shared_memory: &Arc<SharedMemory>| {
        // The coordinator closes the link of a worker that it refuses, and sends Go to another.
        (0..400).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            match (shared_memory.tidy(), shared_memory.link()) {
                (Transport::SharedMemory, _) => Some(true),
                (Transport::Quic, None) => Some(false),
                _ => None,
            }
        })
    };
    let mut guess = offer.clone();
    guess.nonce[0] ^= 1;
    let expected = [(&guess, Some(false)), (&offer, Some(true)), (&offer, Some(false))];
    for (offer, expected) in expected {
        let shared_memory = Arc::default();
        accept_offer(offer, &shared_memory, PLENTY).unwrap();
        assert_eq!(settled(&shared_memory), expected, "a nonce counts once");
    }
    // A name that no process here has, as on another machine.
    let elsewhere =
        crate::proto::message::SharedMemoryOffer { name: "lgp-elsewhere".into(), ..offer };
    assert!(accept_offer(&elsewhere, &Arc::default(), PLENTY).is_err());
    coordinator.stop().await;
}
