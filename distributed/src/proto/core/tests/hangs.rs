//! Limits of runs, what becomes of a run that does not stop, and time in which the coordinator stood
//! still.

use super::{beat, core, dispatched, done, join, ms, spec, submit};
use crate::proto::core::Core;
use crate::proto::message::AttemptId;
use crate::proto::state::{Action, Completion, SessionId};
use crate::task::{TaskErrorKind, TaskSpec, TaskState};
use std::time::Duration;

fn limited(limit: u64, max_attempts: u32) -> TaskSpec {
    TaskSpec { run_limit: Some(ms(limit)), max_attempts, ..spec() }
}

/// Empties the actions; returns the sessions whose runs must stop, and those to be replaced.
fn asked(core: &mut Core) -> (Vec<SessionId>, Vec<SessionId>) {
    let (mut stop, mut replace) = (Vec::new(), Vec::new());
    for action in std::iter::from_fn(|| core.next_action(Duration::ZERO)) {
        match action {
            Action::Stop { session, .. } => stop.push(session),
            Action::Replace { session, .. } => replace.push(session),
            _ => {}
        }
    }
    (stop, replace)
}

/// Time passes, and a worker keeps naming the attempts that it holds.
fn pass(core: &mut Core, from: u64, to: u64, session: SessionId, held: &[AttemptId]) {
    for now in (from..=to).step_by(50) {
        core.tick(ms(now));
        core.heartbeat(ms(now), session, beat(held));
    }
}

#[test]
fn a_run_that_stops_at_its_limit_frees_its_slot_and_fails_its_task() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    let task = submit(&mut core, ms(0), limited(500, 1));
    let id = dispatched(&mut core)[0].1;
    // Its time begins when a thread has taken it.
    pass(&mut core, 1_000, 1_450, session, &[id]);
    assert_eq!(asked(&mut core), (vec![], vec![]));
    pass(&mut core, 1_500, 1_500, session, &[id]);
    assert_eq!(asked(&mut core), (vec![session], vec![]));
    core.released(ms(1_600), session, id);
    let error = core.record(ms(1_600), task).expect("known").error.expect("failed");
    assert_eq!(error.code, TaskErrorKind::RunLimit, "{error}");
    assert!(error.message.contains("limit of 500ms"), "{error}");
    submit(&mut core, ms(1_700), spec());
    assert_eq!(dispatched(&mut core).len(), 1, "the slot is free");
    pass(&mut core, 1_700, 5_000, session, &[]);
    assert_eq!(core.stats(ms(5_000)).hangs, 0);
}

#[test]
fn an_answer_that_takes_long_to_arrive_is_no_run() {
    for heard in [1_400, 1_550] {
        let mut core = core();
        let session = join(&mut core, ms(0), "w", 1);
        let task = submit(&mut core, ms(0), limited(500, 1));
        let id = dispatched(&mut core)[0].1;
        pass(&mut core, 1_000, heard, session, &[id]);
        // Before its limit, or after it was asked to stop there.
        core.answering(session, id);
        pass(&mut core, heard, 20_000, session, &[id]);
        assert!(asked(&mut core).1.is_empty(), "nobody is replaced for a slow line");
        assert!(core.complete(ms(20_000), session, id, done()));
        let record = core.record(ms(20_000), task).expect("known");
        assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1));
        assert_eq!(core.stats(ms(20_000)).hangs, 0);
    }
}

#[test]
fn a_run_that_does_not_stop_costs_its_worker_the_process_and_a_device_that_does_it_often() {
    let mut core = core();
    for life in 0..3 {
        let began = life * 10_000;
        let session = join(&mut core, ms(began), "w", 1);
        let task = submit(&mut core, ms(began), limited(500, 1));
        let id = dispatched(&mut core)[0].1;
        pass(&mut core, began, began + 1_450, session, &[id]);
        assert_eq!(asked(&mut core), (vec![session], vec![]), "a second to stop in");
        pass(&mut core, began + 1_500, began + 1_600, session, &[id]);
        assert_eq!(asked(&mut core), (vec![], vec![session]));
        let record = core.record(ms(began + 2_000), task).expect("known");
        assert_eq!(record.error.expect("failed").code, TaskErrorKind::RunLimit);
        assert!(!core.complete(ms(began + 2_000), session, id, done()), "too late");
    }
    let session = join(&mut core, ms(40_000), "w", 1);
    let task = submit(&mut core, ms(40_000), spec());
    assert_eq!(dispatched(&mut core), [], "its device is out");
    assert_eq!(core.workers(ms(40_000))[0].hangs, 3);
    assert_eq!(core.enable_worker(ms(41_000), "w").expect("known").len(), 1);
    let (at, id) = dispatched(&mut core)[0];
    assert_eq!(at, session);
    assert!(core.complete(ms(42_000), session, id, done()));
    assert_eq!(core.record(ms(42_000), task).expect("known").state, TaskState::Succeeded);
}

#[test]
fn losses_of_workers_do_not_count_as_attempts_but_have_a_bound() {
    let mut core = core();
    let task = submit(&mut core, ms(0), TaskSpec { max_attempts: 1, ..spec() });
    let mut now = ms(0);
    for loss in 1..=20 {
        join(&mut core, now, "w", 1);
        core.tick(now);
        assert_eq!(dispatched(&mut core).len(), 1, "loss {loss}");
        core.worker_exited(now, "w");
        let state = core.record(now, task).expect("known").state;
        assert_eq!(state, if loss < 20 { TaskState::Queued } else { TaskState::Failed });
        now += Duration::from_secs(30);
        core.tick(now);
    }
    let error = core.record(now, task).expect("known").error.expect("failed");
    assert_eq!(error.code, TaskErrorKind::WorkerLost, "{error}");
}

#[test]
fn who_stood_still_gives_its_workers_the_time_to_be_heard() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    submit(&mut core, ms(0), spec());
    let id = dispatched(&mut core)[0].1;
    pass(&mut core, 0, 1_000, session, &[id]);
    // Nothing for four seconds: neither ticks nor heartbeats.
    core.tick(ms(5_000));
    assert!(core.is_live(session), "the coordinator's own silence");
    core.heartbeat(ms(5_100), session, beat(&[id]));
    assert!(core.complete(ms(5_200), session, id, done()));
    for now in (5_300..8_000).step_by(50) {
        core.tick(ms(now));
    }
    assert!(!core.is_live(session), "the worker's");
}

/// What a worker said before it got a task says nothing about that task, however late it is heard.
#[test]
fn who_stood_still_does_not_take_tasks_for_lost_that_were_on_their_way() {
    for ticks_first in [true, false] {
        let mut core = core();
        let session = join(&mut core, ms(0), "w", 1);
        submit(&mut core, ms(0), spec());
        let id = dispatched(&mut core)[0].1;
        // Stopped for longer than a lease.
        if ticks_first {
            core.tick(ms(20_000));
        }
        core.heartbeat(ms(20_000), session, beat(&[]));
        core.tick(ms(20_000));
        assert!(core.is_current(session, id));
        // From now on every heartbeat counts.
        pass(&mut core, 20_000, 31_000, session, &[]);
        assert!(!core.is_current(session, id));
    }
}

#[test]
fn who_drains_in_time_has_its_work_done_elsewhere_and_says_which() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w", 1);
    let task = submit(&mut core, ms(0), spec());
    let id = dispatched(&mut core)[0].1;
    core.heartbeat(ms(10), session, beat(&[id]));
    assert!(core.drain_worker("w"));
    let other = join(&mut core, ms(20), "other", 1);
    assert_eq!(core.end_work(ms(30), "w"), [task]);
    let (at, again) = dispatched(&mut core)[0];
    assert_eq!((at, again.attempt), (other, 2));
    assert!(!core.complete(ms(40), session, id, Completion::Refused));
    assert!(core.complete(ms(50), other, again, done()));
    assert_eq!(core.record(ms(50), task).expect("known").state, TaskState::Succeeded);
}
