//! Workers: their silence, their heartbeats, and what they take.

use super::*;
use crate::proto::membership::Parting;

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
    // Then the worker stays silent.
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

/// A worker that takes inputs of at most `input_bytes_max` bytes.
fn join_with_limit(core: &mut Core, now: Duration, name: &str, input_bytes_max: u64) -> SessionId {
    let join = joining((name, core.next_session()), 2);
    let join = Join { threads: 1, input_bytes_max, ..join };
    core.join(now, join).expect("none is later").0
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
        // The small worker is free, but does not count.
        let third = core.submit(ms(1), order(spec(), 101)).expect("there is room");
        assert_eq!(dispatched(&mut core), []);
        let why = core.explain(ms(1), third).expect("known").here();
        let text = "worker small: takes inputs of fewer bytes";
        assert!(why.iter().any(|(_, line)| line == text), "{why:?}");
        // Tasks whose inputs it takes need not wait behind the larger one.
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
    core.disconnected(ms(2), large, Parting::Ended);
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
        core.tick(ms(at));
        for beat in Heartbeat::all(&held, ExecutorStatus::default()) {
            let bytes = frame::encode(Kind::Heartbeat, &beat, 0, 0).expect("it fits");
            let read = frame::decode(Kind::Heartbeat, &bytes[frame::PREFIX_BYTES..]);
            core.heartbeat(ms(at), session, read.expect("our own"));
        }
    }
    let now = core.workers(ms(30_000)).remove(0);
    assert_eq!((now.running, now.queued), (12_000, 12_000));
    // The attempt that the heartbeat would name but does not has ended.
    let (lost, rest) = held.split_at(1);
    for at in (30_500..=41_000).step_by(500) {
        core.tick(ms(at));
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
