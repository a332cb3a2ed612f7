//! Workers that come back: what goes on, and what others have begun meanwhile.

use super::*;
use crate::proto::membership::Parting;

/// A worker of one process with a task under way.
fn busy(core: &mut Core) -> (SessionId, TaskId, AttemptId) {
    let (session, resumed) = connect(core, ms(0), ("w", 7), 2);
    assert!(!resumed);
    let task = submit(core, ms(0), spec());
    let held = dispatched(core)[0].1;
    core.heartbeat(ms(400), session, beat(&[held]));
    (session, task, held)
}

fn attempts(core: &Core, now: Duration, task: TaskId) -> (TaskState, u32) {
    let record = core.record(now, task).expect("known");
    (record.state, record.attempts)
}

#[test]
fn what_a_worker_holds_goes_on_over_a_new_connection() {
    let mut core = core();
    let (old, task, held) = busy(&mut core);
    core.disconnected(ms(500), old, Parting::Broken);
    assert_eq!(core.workers(ms(500))[0].state, WorkerState::Away);
    let other = join(&mut core, ms(600), "other", 1);
    assert_eq!(dispatched(&mut core), [], "its work is not given away: {other}");
    let (new, resumed) = connect(&mut core, ms(1_500), ("w", 7), 2);
    assert!(resumed && new > other);
    assert!(!core.complete(ms(1_600), old, held, done()), "the old session has ended");
    core.heartbeat(ms(1_700), new, beat(&[held]));
    assert!(core.complete(ms(1_800), new, held, done()));
    assert_eq!(attempts(&core, ms(1_800), task), (TaskState::Succeeded, 1));
}

#[test]
fn a_worker_that_was_lost_keeps_what_nobody_else_has_begun() {
    let mut core = core();
    let (old, task, held) = busy(&mut core);
    core.disconnected(ms(500), old, Parting::Broken);
    (2..17).for_each(|quarter| core.tick(ms(250 * quarter)));
    assert_eq!(attempts(&core, ms(4_200), task), (TaskState::Queued, 1), "its silence was noticed");
    let (new, resumed) = connect(&mut core, ms(9_000), ("w", 7), 2);
    assert!(resumed);
    assert_eq!(attempts(&core, ms(9_000), task), (TaskState::Running, 1));
    assert_eq!(dispatched(&mut core), [], "it is not sent again");
    assert!(core.complete(ms(9_100), new, held, done()));
    assert_eq!(attempts(&core, ms(9_100), task), (TaskState::Succeeded, 1));
}

#[test]
fn what_hung_does_not_go_on_in_a_worker_that_did_not_hear_that_it_is_replaced() {
    let mut core = core();
    let (old, _) = connect(&mut core, ms(0), ("w", 7), 2);
    let spec = TaskSpec { run_limit: Some(ms(500)), max_attempts: 2, ..spec() };
    let task = submit(&mut core, ms(0), spec);
    let held = dispatched(&mut core)[0].1;
    for now in (50..=2_000).step_by(50) {
        core.tick(ms(now));
        core.heartbeat(ms(now), old, beat(&[held]));
    }
    assert_eq!(core.stats(ms(2_000)).hangs, 1);
    let other = join(&mut core, ms(2_050), "other", 1);
    let (new, _) = connect(&mut core, ms(2_100), ("w", 7), 2);
    core.heartbeat(ms(2_150), new, beat(&[held]));
    for now in (2_200..=6_000).step_by(50) {
        core.tick(ms(now));
        core.heartbeat(ms(now), other, beat(&[]));
        core.heartbeat(ms(now), new, beat(&[held]));
    }
    let (state, attempts) = attempts(&core, ms(6_000), task);
    assert_eq!((state, attempts), (TaskState::Running, 2), "it has another attempt");
    assert_eq!(core.stats(ms(6_000)).hangs, 1, "one run, however often its worker is replaced");
}

#[test]
fn who_is_revoked_while_away_is_lost_at_once_and_its_name_free() {
    let mut core = core();
    let (old, task, held) = busy(&mut core);
    core.disconnected(ms(500), old, Parting::Broken);
    core.worker_revoked(ms(600), "w");
    assert_eq!(core.workers(ms(600))[0].state, WorkerState::Lost);
    let other = join(&mut core, ms(2_000), "other", 1);
    let [(session, again)] = dispatched(&mut core)[..] else { panic!("it is sent again") };
    assert!(session == other && again != held);
    assert!(core.complete(ms(2_100), other, again, done()));
    assert_eq!(attempts(&core, ms(2_100), task), (TaskState::Succeeded, 2));
}

#[test]
fn what_another_has_begun_is_stopped() {
    let mut core = core();
    let (old, task, held) = busy(&mut core);
    core.disconnected(ms(500), old, Parting::Ended);
    let other = join(&mut core, ms(600), "other", 1);
    let [(session, second)] = dispatched(&mut core)[..] else { panic!("it is sent again") };
    assert_eq!((session, second.attempt), (other, 2));
    let (new, resumed) = connect(&mut core, ms(700), ("w", 7), 2);
    assert!(resumed);
    let stops = std::iter::from_fn(|| core.next_action(ms(700))).filter(
        |action| matches!(action, Action::Cancel { session, id } if (*session, *id) == (new, held)),
    );
    assert_eq!(stops.count(), 1);
    assert!(!core.complete(ms(800), new, held, done()));
    assert!(core.complete(ms(900), other, second, done()));
    assert_eq!(attempts(&core, ms(900), task), (TaskState::Succeeded, 2));
}

#[test]
fn what_a_worker_does_not_bring_back_is_done_again_at_once() {
    let mut core = core();
    let (old, task, held) = busy(&mut core);
    core.disconnected(ms(500), old, Parting::Broken);
    let (new, _) = connect(&mut core, ms(600), ("w", 7), 2);
    core.heartbeat(ms(600), new, beat(&[]));
    let [(session, second)] = dispatched(&mut core)[..] else { panic!("it is sent again") };
    assert_eq!((session, second.seq, second.attempt), (new, held.seq, 2));
    assert_eq!(attempts(&core, ms(600), task), (TaskState::Running, 2));
}

#[test]
fn another_process_or_one_that_was_away_for_longer_than_the_lease_begins_anew() {
    for (incarnation, at) in [(8, 600), (7, 20_000)] {
        let mut core = core();
        let (old, ..) = busy(&mut core);
        core.disconnected(ms(500), old, Parting::Broken);
        (500..at).step_by(250).for_each(|now| core.tick(ms(now)));
        let (new, resumed) = connect(&mut core, ms(at), ("w", incarnation), 2);
        assert!(!resumed, "process {incarnation} after {at} ms");
        let sent = dispatched(&mut core);
        assert_eq!(sent.iter().map(|(to, id)| (*to, id.attempt)).collect::<Vec<_>>(), [(new, 2)]);
    }
}

/// The worker holds attempts of another stint, of which this one knows nothing.
#[test]
fn a_worker_that_did_not_hear_of_a_stint_does_not_go_on_with_it() {
    for earlier in [false, true] {
        let mut core = core();
        let (old, task, _) = busy(&mut core);
        core.disconnected(ms(500), old, Parting::Broken);
        let stint = earlier.then_some(Stint { epoch: 8, session: old });
        let join = Join { stint, ..joining(("w", 7), 2) };
        let (session, stint) = core.join(ms(600), join).expect("none is later");
        assert_eq!(stint, Stint { epoch: 9, session });
        let sent = dispatched(&mut core);
        assert!(matches!(sent[..], [(to, id)] if (to, id.attempt) == (session, 2)), "{sent:?}");
        assert_eq!(attempts(&core, ms(600), task), (TaskState::Running, 2));
    }
}

#[test]
fn the_limit_of_a_run_counts_from_its_beginning() {
    let mut core = core();
    let (old, _) = connect(&mut core, ms(0), ("w", 7), 2);
    submit(&mut core, ms(0), TaskSpec { run_limit: Some(ms(3_000)), ..spec() });
    let held = dispatched(&mut core)[0].1;
    core.heartbeat(ms(400), old, beat(&[held]));
    core.disconnected(ms(500), old, Parting::Broken);
    let (new, _) = connect(&mut core, ms(1_500), ("w", 7), 2);
    let stopped = |core: &mut Core, at| {
        core.heartbeat(ms(at), new, beat(&[held]));
        core.tick(ms(at));
        let stop =
            |action| matches!(action, Action::Stop { session, id } if (session, id) == (new, held));
        std::iter::from_fn(|| core.next_action(ms(at))).any(stop)
    };
    assert!((1_500..=3_300).step_by(100).all(|at| !stopped(&mut core, at)));
    assert!(stopped(&mut core, 3_400));
}
