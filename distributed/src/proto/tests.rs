//! The core, step by step: what the simulation leaves to chance.

use crate::error::Error;
use crate::executor::{DeviceStatus, ExecError, ExecutorStatus};
use crate::proto::Order;
use crate::proto::balance::by_name;
use crate::proto::core::Core;
use crate::proto::membership::Join;
use crate::proto::message::{AttemptId, Heartbeat};
use crate::proto::models::ModelNeeds;
use crate::proto::state::{Action, Completion, CoreConfig, Digest, SessionId, Timing};
use crate::task::{ModelRef, TaskErrorKind, TaskId, TaskSpec, TaskState};
use crate::worker_info::WorkerState;
use lgp_memory::{DType, NamedTensor, Tensor};
use std::sync::Arc;
use std::time::Duration;

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn core() -> Core {
    let config = CoreConfig {
        epoch: 9,
        balancing: by_name("least_loaded").expect("in the table"),
        queue_tasks_max: 3,
        queue_bytes_max: 1_000,
        retained_tasks_max: 10,
        retained_bytes_max: 1_000,
        keys_kept_for: ms(60_000),
        keys_max: 50,
        durable: true,
        thrift: 0.0,
        timing: Timing::default(),
    };
    Core::new(ms(0), config, 1)
}

pub(super) fn spec() -> TaskSpec {
    let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
    TaskSpec::new(model, Vec::new())
}

pub(super) fn submit(core: &mut Core, now: Duration, spec: TaskSpec) -> TaskId {
    core.submit(now, order(spec, 10)).expect("there is room")
}

pub(super) fn order(spec: TaskSpec, input_bytes: usize) -> Order {
    let (digest, queued_bytes) = (Digest::default(), input_bytes);
    Order { spec: Arc::new(spec), input_bytes, queued_bytes, digest, within: Vec::new() }
}

pub(super) fn join(core: &mut Core, now: Duration, name: &str, slots: u32) -> SessionId {
    let id = name.parse().expect("a name");
    let status = ExecutorStatus::default();
    let (threads, input_bytes_max) = (slots, u64::MAX);
    let join = Join { id, incarnation: 0, pid: None, slots, threads, status, input_bytes_max };
    core.join(now, join).expect("none is later")
}

/// Empties the actions; answers the dispatches among them.
fn dispatched(core: &mut Core) -> Vec<(SessionId, AttemptId)> {
    std::iter::from_fn(|| core.next_action(ms(0)))
        .filter_map(|action| match action {
            Action::Dispatch { session, id, .. } => Some((session, id)),
            _ => None,
        })
        .collect()
}

pub(super) fn done() -> Completion {
    Completion::Done { outputs: Vec::new(), model: ms(2), batch: 1 }
}

fn beat(held: &[AttemptId]) -> Heartbeat {
    let held: Vec<(AttemptId, bool)> = held.iter().map(|id| (*id, true)).collect();
    Heartbeat::all(&held, ExecutorStatus::default()).remove(0)
}

#[test]
fn only_the_current_attempt_of_the_current_session_completes() {
    let mut core = core();
    let first = join(&mut core, ms(0), "w", 1);
    let task = submit(&mut core, ms(0), spec());
    let (session, old) = dispatched(&mut core)[0];
    assert_eq!((session, old.attempt, old.epoch), (first, 1, 9));
    // The worker comes back under the same name: a new session and a new attempt.
    let second = join(&mut core, ms(10), "w", 1);
    let redone = dispatched(&mut core);
    let new = AttemptId { attempt: 2, ..old };
    assert_eq!(redone, [(second, new)]);
    for (session, id) in [
        (first, old),
        (first, new),
        (second, old),
        (second, AttemptId { epoch: 8, ..new }),
        (second, AttemptId { seq: 99, ..new }),
        (77, new),
    ] {
        assert!(!core.complete(ms(20), session, id, done()), "{session} {id:?}");
        assert_eq!(core.record(ms(20), task).expect("known").state, TaskState::Running);
    }
    assert!(core.complete(ms(30), second, new, done()));
    assert!(!core.complete(ms(31), second, new, done()), "the same answer again");
    let record = core.record(ms(40), task).expect("known");
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 2));
    // 10 ms until the last dispatch, 2 in the model, 18 of the 30 left over.
    let times = (record.queued_ms, record.model_ms, record.overhead_ms);
    assert_eq!(times, (10.0, Some(2.0), Some(18.0)));
    assert_eq!(core.stats(ms(40)).stale_completions, 7);
}

#[test]
fn silence_is_suspicious_then_fatal_within_two_seconds() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 2);
    let task = submit(&mut core, ms(0), spec());
    let held = dispatched(&mut core)[0].1;
    core.heartbeat(ms(500), session, beat(&[held]));
    // Silent for 1.2 s: nothing new goes there, nothing is taken away.
    core.tick(ms(1_700));
    let second = submit(&mut core, ms(1_700), spec());
    assert_eq!(dispatched(&mut core), []);
    assert_eq!(core.record(ms(1_700), task).expect("known").state, TaskState::Running);
    // A sign of life clears the suspicion.
    core.heartbeat(ms(1_800), session, beat(&[held]));
    assert_eq!(dispatched(&mut core)[0].1.seq, second.seq);
    // Then nothing more.
    let mut lost_at = None;
    while let Some(at) = core.next_timeout().filter(|at| *at < ms(10_000)) {
        core.tick(at);
        if core.workers(at)[0].state == WorkerState::Lost {
            lost_at.get_or_insert(at);
        }
    }
    let lost_at = lost_at.expect("noticed") - ms(1_800);
    assert!(lost_at > ms(1_700) && lost_at <= ms(2_000), "{lost_at:?}");
    for task in [task, second] {
        assert_eq!(core.record(ms(9_000), task).expect("known").state, TaskState::Queued);
    }
}

#[test]
fn attempts_without_an_answer_are_repeated_until_enough_is_enough() {
    // (how each attempt ends, the error of the task)
    let unavailable =
        || Completion::Error { error: ExecError::unavailable("out of memory"), model: ms(1) };
    let broken = || Completion::Broken { reason: "reset".into() };
    for (end, at_once, code) in [
        (unavailable as fn() -> Completion, false, TaskErrorKind::Unavailable),
        (broken as fn() -> Completion, true, TaskErrorKind::WorkerLost),
    ] {
        let mut core = core();
        join(&mut core, ms(0), "w", 1);
        let task = submit(&mut core, ms(0), TaskSpec { max_attempts: 3, ..spec() });
        let mut now = ms(0);
        for attempt in 1..=3 {
            let (session, id) = dispatched(&mut core)[0];
            assert_eq!(id.attempt, attempt);
            assert!(core.complete(now, session, id, end()));
            let waits = core.record(now, task).expect("known").state == TaskState::Queued;
            assert_eq!(waits, attempt < 3 && !(attempt == 1 && at_once), "{code:?} {attempt}");
            now += ms(300);
            core.heartbeat(now, session, beat(&[]));
            core.tick(now);
        }
        let record = core.record(now, task).expect("known");
        let error = record.error.expect("failed");
        assert_eq!((record.state, error.code), (TaskState::Failed, code));
        assert!(error.message.starts_with("gave up after 3 attempts: "), "{error}");
    }
}

#[test]
fn shared_memory_that_fails_costs_neither_task_nor_worker_anything() {
    let mut core = core();
    join(&mut core, ms(0), "w", 1);
    let task = submit(&mut core, ms(0), TaskSpec { max_attempts: 1, ..spec() });
    // More often than a breaker takes.
    for attempt in 1..=10 {
        let (session, id) = dispatched(&mut core)[0];
        assert_eq!(id.attempt, attempt);
        assert!(core.complete(ms(1), session, id, Completion::Unshared));
    }
    let (session, id) = dispatched(&mut core)[0];
    assert!(core.complete(ms(2), session, id, done()));
    assert_eq!(core.record(ms(3), task).expect("known").state, TaskState::Succeeded);
}

#[test]
fn inputs_that_are_lost_end_the_task_at_once() {
    let mut core = core();
    join(&mut core, ms(0), "w", 1);
    let task = submit(&mut core, ms(0), spec());
    let (session, id) = dispatched(&mut core)[0];
    let lost = Completion::NoInputs { reason: "damaged".into() };
    assert!(core.complete(ms(1), session, id, lost));
    let error = core.record(ms(1), task).expect("known").error.expect("nobody can run it");
    assert_eq!((error.code, error.message.as_str()), (TaskErrorKind::InputsLost, "damaged"));
    assert_eq!(core.stats(ms(1)).breakers_opened, 0);
}

#[test]
fn a_refusal_costs_the_task_nothing() {
    let mut core = core();
    join(&mut core, ms(0), "a", 1);
    let task = submit(&mut core, ms(0), TaskSpec { max_attempts: 1, ..spec() });
    let (session, id) = dispatched(&mut core)[0];
    assert!(core.complete(ms(1), session, id, Completion::Refused));
    // It held nothing else: it may go, and is no longer listed.
    assert!(core.workers(ms(1)).is_empty());
    join(&mut core, ms(2), "b", 1);
    let (session, id) = dispatched(&mut core)[0];
    assert!(core.complete(ms(3), session, id, done()));
    assert_eq!(core.record(ms(3), task).expect("known").state, TaskState::Succeeded);
    assert_eq!(core.stats(ms(3)).retries, 0);
}

#[test]
fn an_attempt_that_its_worker_does_not_hold_expires() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    submit(&mut core, ms(0), spec());
    let (_, id) = dispatched(&mut core)[0];
    for at in (500..=10_000).step_by(500) {
        core.heartbeat(ms(at), session, beat(&[]));
        assert_eq!(dispatched(&mut core), [], "the lease runs");
    }
    core.heartbeat(ms(10_500), session, beat(&[]));
    assert_eq!(dispatched(&mut core), [(session, AttemptId { attempt: 2, ..id })]);
    // An attempt that is held is left alone, however long it takes.
    let second = AttemptId { attempt: 2, ..id };
    for at in (11_000..60_000).step_by(500) {
        core.heartbeat(ms(at), session, beat(&[second]));
    }
    // The heartbeat that no longer names it may come before its answer.
    core.heartbeat(ms(60_000), session, beat(&[]));
    assert!(core.complete(ms(60_001), session, second, done()));
}

#[test]
fn a_cancelled_attempt_keeps_its_slot_until_it_is_released() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    let first = submit(&mut core, ms(0), spec());
    let (_, id) = dispatched(&mut core)[0];
    let second = submit(&mut core, ms(0), spec());
    // A release of what is still wanted is an answer that never comes: it is ignored.
    core.released(ms(1), session, id);
    assert_eq!(core.record(ms(1), first).expect("known").state, TaskState::Running);
    core.cancel(ms(2), first).expect("known");
    assert_eq!(dispatched(&mut core), []);
    core.released(ms(3), session, id);
    assert_eq!(dispatched(&mut core)[0].1.seq, second.seq);
    // Released by a late answer, or by a heartbeat that no longer names it.
    core.cancel(ms(4), second).expect("known");
    let third = submit(&mut core, ms(4), spec());
    core.heartbeat(ms(400), session, beat(&[]));
    assert_eq!(dispatched(&mut core), [], "the request may be under way");
    core.heartbeat(ms(600), session, beat(&[]));
    assert_eq!(dispatched(&mut core)[0].1.seq, third.seq);
}

#[test]
fn the_queue_refuses_by_count_and_bytes_but_never_when_empty() {
    let mut core = core();
    let put = |core: &mut Core, bytes| core.submit(ms(0), order(spec(), bytes));
    put(&mut core, 5_000).expect("an empty queue takes anything");
    assert!(matches!(put(&mut core, 1), Err(Error::Overloaded { queued: 1, .. })));
    let first = core.open().next().expect("one");
    core.cancel(ms(0), TaskId { epoch: 9, seq: first }).expect("known");
    for _ in 0..3 {
        put(&mut core, 100).expect("room");
    }
    let full = put(&mut core, 1).expect_err("three wait");
    assert!(matches!(full, Error::Overloaded { queued: 3, queued_bytes: 300, .. }), "{full}");
    assert_eq!(core.stats(ms(0)).overloaded, 2);
}

#[test]
fn records_are_kept_up_to_a_count_and_a_size_and_those_with_keys_for_a_time() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    let keyed = TaskSpec { idempotency_key: Some("k".into()), ..spec() };
    let finish = |core: &mut Core, now: Duration, bytes: usize| {
        let (_, id) = dispatched(core)[0];
        let tensor = Tensor::zeros(DType::U8, [bytes]).expect("small");
        let outputs = vec![NamedTensor::new("y", tensor)];
        core.complete(now, session, id, Completion::Done { outputs, model: ms(0), batch: 1 });
        while core.next_action(now).is_some() {}
    };
    let first = submit(&mut core, ms(0), keyed.clone());
    finish(&mut core, ms(1), 600);
    assert_eq!(submit(&mut core, ms(1), keyed.clone()), first, "the key stands for it");
    let second = submit(&mut core, ms(2), spec());
    finish(&mut core, ms(2), 600);
    assert!(core.record(ms(2), second).is_ok(), "what has a key takes no room from others");
    let third = submit(&mut core, ms(3), spec());
    finish(&mut core, ms(3), 600);
    assert!(matches!(core.record(ms(3), second), Err(Error::UnknownTask { .. })), "no room");
    assert!(core.record(ms(3), third).is_ok() && core.record(ms(3), first).is_ok());
    for _ in 0..20 {
        submit(&mut core, ms(4), spec());
        finish(&mut core, ms(4), 0);
    }
    assert_eq!(core.records(ms(5)).len(), 11);
    core.heartbeat(ms(70_000), session, beat(&[]));
    submit(&mut core, ms(70_000), spec());
    finish(&mut core, ms(70_000), 0);
    assert!(matches!(core.record(ms(70_000), first), Err(Error::UnknownTask { .. })));
    assert_ne!(submit(&mut core, ms(70_001), keyed), first, "the key is free again");
    assert_eq!(core.stats(ms(70_001)).tasks.succeeded, 24);
}

#[test]
fn more_keys_than_can_be_kept_are_refused() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    for number in 0..51 {
        let keyed = TaskSpec { idempotency_key: Some(number.to_string()), ..spec() };
        let submitted = core.submit(ms(0), order(keyed, 0));
        if number == 50 {
            assert!(matches!(submitted, Err(Error::Overloaded { .. })), "{submitted:?}");
            break;
        }
        submitted.expect("there is room");
        let (_, id) = dispatched(&mut core)[0];
        assert!(core.complete(ms(0), session, id, done()));
    }
    submit(&mut core, ms(0), spec());
}

#[test]
fn deadlines_end_tasks_wherever_they_are() {
    let mut core = core();
    let hurried = TaskSpec { deadline: Some(ms(100)), ..spec() };
    let queued = submit(&mut core, ms(0), hurried.clone());
    core.tick(ms(99));
    assert_eq!(core.record(ms(99), queued).expect("known").state, TaskState::Queued);
    assert_eq!(core.next_timeout(), Some(ms(100)));
    core.tick(ms(100));
    assert_eq!(core.record(ms(100), queued).expect("known").state, TaskState::Failed);
    // While it waits for its next attempt.
    let session = join(&mut core, ms(200), "w", 1);
    let retried = submit(&mut core, ms(200), hurried);
    for _ in 0..3 {
        if let Some((_, id)) = dispatched(&mut core).first() {
            let error = ExecError::unavailable("busy");
            core.complete(ms(200), session, *id, Completion::Error { error, model: ms(0) });
        }
    }
    core.tick(ms(300));
    let record = core.record(ms(300), retried).expect("known");
    assert_eq!(record.error.expect("failed").code, TaskErrorKind::DeadlineExceeded);
    assert!(core.is_idle());
    // Nothing is left that would wake the timer but the watch over the worker.
    core.tick(ms(400));
    core.disconnected(ms(400), session, true);
    core.tick(ms(1_000));
    assert_eq!(core.next_timeout(), None);
}

#[test]
fn a_load_whose_order_or_answer_went_missing_is_noticed() {
    let mut core = core();
    let model = spec().model;
    core.load(ms(0), &model, ModelNeeds::default());
    let session = join(&mut core, ms(0), "w", 1);
    let ordered = |core: &mut Core| {
        std::iter::from_fn(|| core.next_action(ms(0)))
            .filter(|a| matches!(a, Action::Load { .. }))
            .count()
    };
    assert_eq!(ordered(&mut core), 1);
    submit(&mut core, ms(0), spec());
    for at in (500..=10_000).step_by(500) {
        core.heartbeat(ms(at), session, beat(&[]));
    }
    assert_eq!((ordered(&mut core), core.load_report(&model)), (0, None));
    core.heartbeat(ms(10_500), session, beat(&[]));
    assert_eq!(ordered(&mut core), 1, "ordered anew");
    let mut loaded = beat(&[]);
    let models = vec![model.clone()];
    let device = DeviceStatus { models, ..DeviceStatus::default() };
    loaded.status = Some(ExecutorStatus::of(device));
    core.heartbeat(ms(11_000), session, loaded);
    assert_eq!(dispatched(&mut core).len(), 1, "the heartbeat says that it is there");
    assert_eq!(core.load_report(&model).expect("settled").len(), 1);
}

#[test]
fn a_long_chain_ends_with_its_first_task() {
    let mut core = core();
    core.config.queue_tasks_max = 20_000;
    let link =
        |at: usize| Order { within: at.checked_sub(1).into_iter().collect(), ..order(spec(), 0) };
    let ids = core.submit_all(ms(0), (0..10_000).map(link).collect()).expect("there is room");
    core.cancel(ms(1), ids[0]).expect("known");
    let last = core.record(ms(1), ids[9_999]).expect("known");
    let error = last.error.expect("failed");
    assert_eq!((last.state, error.code), (TaskState::Failed, TaskErrorKind::DependencyFailed));
    let first = ids[0].to_string();
    assert!(error.message.contains(&first) && error.message.len() < 200, "{error}");
    assert!(core.is_idle());
}

#[test]
fn a_coordinator_that_stops_leaves_durable_tasks_as_they_are() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    let durable = TaskSpec { durable: true, max_attempts: 1, ..spec() };
    let id = core.submit(ms(0), order(durable, 0)).expect("there is room");
    let mut tickets = Vec::new();
    while let Some(action) = core.next_action(ms(0)) {
        if let Action::Record { ticket, .. } = action {
            tickets.push(ticket);
        }
    }
    core.recorded(ms(1), tickets[0]);
    assert_eq!(dispatched(&mut core).len(), 1);
    core.stop(ms(2));
    core.disconnected(ms(2), session, false);
    while let Some(action) = core.next_action(ms(2)) {
        assert!(!matches!(action, Action::Record { .. }), "{action:?}");
    }
    assert!(!core.record(ms(2), id).expect("known").state.is_terminal());
}

#[test]
fn a_durable_task_depends_only_on_what_is_durable_too() {
    let mut core = core();
    let durable = TaskSpec { durable: true, ..spec() };
    let orders = vec![order(spec(), 0), Order { within: vec![0], ..order(durable.clone(), 0) }];
    let refused = core.submit_all(ms(0), orders);
    assert!(matches!(refused, Err(Error::InvalidTask { .. })), "{refused:?}");
    let fleeting = submit(&mut core, ms(0), spec());
    let refused = core.submit(ms(0), order(TaskSpec { depends_on: vec![fleeting], ..durable }, 0));
    assert!(matches!(refused, Err(Error::InvalidTask { .. })), "{refused:?}");
}

/// A worker that takes inputs of so many bytes.
fn join_with_limit(core: &mut Core, now: Duration, name: &str, input_bytes_max: u64) -> SessionId {
    let (id, status) = (name.parse().expect("a name"), ExecutorStatus::default());
    let (slots, threads) = (2, 1);
    let join = Join { id, incarnation: 0, pid: None, slots, threads, status, input_bytes_max };
    core.join(now, join).expect("none is later")
}

#[test]
fn a_task_goes_where_its_inputs_are_taken_or_ends_with_that_reason() {
    for strategy in crate::proto::balance::balancing_strategies() {
        let mut core = core();
        core.set_balancing(by_name(strategy).expect("in the table"));
        let waits = core.submit(ms(0), order(spec(), 500)).expect("it is accepted when alone");
        let small = join_with_limit(&mut core, ms(0), "small", 100);
        let record = core.record(ms(0), waits).expect("known");
        let error = record.error.expect("nobody takes it");
        assert_eq!((record.state, error.code), (TaskState::Failed, TaskErrorKind::TooLarge));
        assert!(error.message.contains("500 bytes of inputs, at most 100"), "{error}");
        let large = join_with_limit(&mut core, ms(0), "large", 500);
        for _ in 0..2 {
            core.submit(ms(1), order(spec(), 500)).expect("there is room");
        }
        let sent = dispatched(&mut core);
        assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [large, large]);
        // The small one is free, and does not count.
        let third = core.submit(ms(1), order(spec(), 101)).expect("there is room");
        assert_eq!(dispatched(&mut core), []);
        let why = core.explain(ms(1), third).expect("known");
        let text = "worker small: takes inputs of fewer bytes";
        assert!(why.iter().any(|(_, line)| line == text), "{why:?}");
        // What is not too much for it need not wait behind what is.
        for _ in 0..3 {
            core.submit(ms(1), order(spec(), 100)).expect("there is room");
        }
        let sent = dispatched(&mut core);
        assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [small, small]);
        assert_eq!(core.stats(ms(1)).breakers_opened, 0);
    }
}

#[test]
fn who_takes_much_and_is_away_for_a_moment_is_waited_for() {
    let mut core = core();
    join_with_limit(&mut core, ms(0), "small", 100);
    let large = join_with_limit(&mut core, ms(0), "large", 500);
    let id = core.submit(ms(1), order(spec(), 500)).expect("there is room");
    assert_eq!(dispatched(&mut core).len(), 1);
    core.disconnected(ms(2), large, false);
    core.tick(ms(3_000));
    let record = core.record(ms(3_000), id).expect("known");
    assert_eq!((record.state, record.error), (TaskState::Queued, None));
    let large = join_with_limit(&mut core, ms(3_001), "large", 500);
    core.tick(ms(3_500));
    assert!(dispatched(&mut core).iter().any(|(at, _)| *at == large));
}

#[test]
fn heartbeats_of_any_length_fit_their_frames_and_renew_every_lease() {
    use crate::proto::frame;
    use crate::proto::message::Kind;
    let mut core = core();
    core.config.queue_tasks_max = 20_000;
    let session = join(&mut core, ms(0), "w", 12_000);
    for _ in 0..12_000 {
        submit(&mut core, ms(0), order(spec(), 0).spec.as_ref().clone());
    }
    let held: Vec<(AttemptId, bool)> =
        dispatched(&mut core).into_iter().map(|(_, id)| (id, false)).collect();
    assert_eq!(held.len(), 12_000);
    for at in (500..=30_000).step_by(500) {
        for beat in Heartbeat::all(&held, ExecutorStatus::default()) {
            let bytes = frame::encode(Kind::Heartbeat, &beat, 0, 0).expect("it fits");
            let read = frame::decode(Kind::Heartbeat, &bytes[frame::PREFIX_BYTES..]);
            core.heartbeat(ms(at), session, read.expect("our own"));
        }
    }
    let now = core.workers(ms(30_000)).remove(0);
    assert_eq!((now.running, now.queued), (12_000, 12_000));
    // What the one heartbeat that would name it does not name has ended.
    let (lost, rest) = held.split_at(1);
    for at in (30_500..=41_000).step_by(500) {
        for beat in Heartbeat::all(rest, ExecutorStatus::default()) {
            core.heartbeat(ms(at), session, beat);
        }
    }
    assert!(!core.holds(session, lost[0].0) && core.holds(session, rest[0].0));
    let longest = AttemptId { epoch: u64::MAX, seq: u64::MAX, attempt: u32::MAX };
    let beats = Heartbeat::all(&[(longest, true); 4_000], ExecutorStatus::default());
    for beat in beats {
        let bytes = frame::encode(Kind::Heartbeat, &beat, 0, 0).expect("it fits");
        assert!(bytes.len() < frame::HEADER_BYTES_MAX / 2, "{}", bytes.len());
    }
}
