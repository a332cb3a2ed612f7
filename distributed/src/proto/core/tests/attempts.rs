//! Attempts, and what their ends do to tasks.

use super::*;
use crate::proto::membership::Parting;

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
fn attempts_without_an_answer_are_repeated_until_enough_is_enough() {
    // (how each attempt ends, the error of the task)
    let unavailable =
        || Completion::Error { error: ExecError::unavailable("out of memory"), model: ms(1) };
    let broken = || Completion::Broken { reason: "reset".into() };
    for (end, code) in [
        (unavailable as fn() -> Completion, TaskErrorKind::Unavailable),
        (broken as fn() -> Completion, TaskErrorKind::WorkerLost),
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
            assert_eq!(waits, attempt < 3, "{code:?} {attempt}");
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
    // More often than a breaker allows.
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
    // The worker held nothing else: it may go, and is no longer listed.
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
        core.tick(ms(at));
        core.heartbeat(ms(at), session, beat(&[]));
        assert_eq!(dispatched(&mut core), [], "the lease runs");
    }
    core.tick(ms(10_500));
    core.heartbeat(ms(10_500), session, beat(&[]));
    assert_eq!(dispatched(&mut core), [(session, AttemptId { attempt: 2, ..id })]);
    // A held attempt is left alone, however long it takes.
    let second = AttemptId { attempt: 2, ..id };
    for at in (11_000..60_000).step_by(500) {
        core.tick(ms(at));
        core.heartbeat(ms(at), session, beat(&[second]));
    }
    // The heartbeat that no longer names the attempt may come before its answer.
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
    // A release of an attempt that is still wanted is ignored: its answer would never come.
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
fn deadlines_end_tasks_wherever_they_are() {
    let mut core = core();
    let hurried = TaskSpec { deadline: Some(ms(100)), ..spec() };
    let queued = submit(&mut core, ms(0), hurried.clone());
    core.tick(ms(99));
    assert_eq!(core.record(ms(99), queued).expect("known").state, TaskState::Queued);
    assert_eq!(core.next_timeout(), Some(ms(100)));
    core.tick(ms(100));
    assert_eq!(core.record(ms(100), queued).expect("known").state, TaskState::Failed);
    // The deadline comes while the task waits for its next attempt.
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
    // Only the watch over the worker is left to wake the timer.
    core.tick(ms(400));
    core.disconnected(ms(400), session, Parting::Farewell);
    core.tick(ms(1_000));
    assert_eq!(core.next_timeout(), None);
}
