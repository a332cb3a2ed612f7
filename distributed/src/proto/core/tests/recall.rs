//! Which attempts are recalled, which are not, and what becomes of them.

use crate::executor::ExecutorStatus;
use crate::proto::balance::by_name;
use crate::proto::core::Core;
use crate::proto::core::tests::{core as small_core, done, joining, ms, spec, submit};
use crate::proto::membership::{Join, Parting};
use crate::proto::message::{AttemptId, Heartbeat};
use crate::proto::state::{Action, Completion, SessionId};
use crate::task::{Priority, TaskId, TaskSpec, TaskState};
use crate::worker_info::WorkerState;
use std::time::Duration;

type At = (SessionId, AttemptId);

fn core() -> Core {
    let mut core = small_core();
    core.config.queue_tasks_max = 100;
    core
}

/// A worker of one thread that holds up to four tasks.
fn join(core: &mut Core, now: Duration, name: &str) -> SessionId {
    let join = Join { threads: 1, ..joining((name, 0), 4) };
    core.join(now, join).expect("none is later").0
}

fn of(priority: Priority) -> TaskSpec {
    // One failure would end the task.
    TaskSpec { priority, max_attempts: 1, ..spec() }
}

/// Empties the actions; returns the dispatches and the recalls among them.
fn acts(core: &mut Core) -> (Vec<At>, Vec<At>) {
    let (mut sent, mut recalled) = (Vec::new(), Vec::new());
    while let Some(action) = core.next_action(ms(0)) {
        match action {
            Action::Dispatch { session, id, .. } => sent.push((session, id)),
            Action::Recall { session, id } => recalled.push((session, id)),
            _ => {}
        }
    }
    (sent, recalled)
}

/// A heartbeat that names attempts, each with whether it has begun.
fn beat(core: &mut Core, now: Duration, session: SessionId, held: &[(At, bool)]) {
    let held: Vec<(AttemptId, bool)> = held.iter().map(|((_, id), begun)| (*id, *begun)).collect();
    for beat in Heartbeat::all(&held, ExecutorStatus::default()) {
        core.heartbeat(now, session, beat);
    }
}

fn took(model: Duration) -> Completion {
    Completion::Done { outputs: Vec::new(), model, batch: 1, joined: false }
}

fn state(core: &Core, id: TaskId) -> (TaskState, u32) {
    let record = core.record(ms(0), id).expect("known");
    (record.state, record.attempts)
}

#[test]
fn background_makes_room_for_urgent_tasks_and_loses_nothing_but_time() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w");
    let back: Vec<TaskId> =
        (0..4).map(|_| submit(&mut core, ms(0), of(Priority::Background))).collect();
    let (sent, _) = acts(&mut core);
    let held: Vec<(At, bool)> = sent.iter().map(|at| (*at, *at == sent[0])).collect();
    beat(&mut core, ms(1), session, &held);
    submit(&mut core, ms(2), of(Priority::Low));
    assert_eq!(acts(&mut core), (vec![], vec![]), "low is not urgent");
    let urgent = submit(&mut core, ms(3), of(Priority::Critical));
    assert_eq!(acts(&mut core), (vec![], vec![sent[3]]), "the one that goes last, once");
    core.tick(ms(4));
    beat(&mut core, ms(4), session, &held);
    assert_eq!(acts(&mut core), (vec![], vec![]), "one for one");
    submit(&mut core, ms(5), of(Priority::Normal));
    assert_eq!(acts(&mut core).1, [sent[2]]);

    assert!(core.complete(ms(6), session, sent[3].1, Completion::Refused));
    let (again, _) = acts(&mut core);
    assert_eq!((again.len(), again[0].1.seq), (1, urgent.seq));
    assert_eq!(state(&core, back[3]), (TaskState::Queued, 1));
    assert_eq!(core.workers(ms(6))[0].state, WorkerState::Ready, "it does not leave");
    assert!(!core.complete(ms(6), session, sent[3].1, Completion::Refused), "said again");
    // The other recall came too late.
    assert!(core.complete(ms(7), session, sent[2].1, done()));
    assert_eq!(state(&core, back[2]), (TaskState::Succeeded, 1));
    acts(&mut core);
    for (session, id) in [sent[0], sent[1], again[0]] {
        assert!(core.complete(ms(8), session, id, done()));
    }
    let (last, _) = acts(&mut core);
    assert!(last.iter().any(|(_, id)| id.seq == back[3].seq && id.attempt == 2), "{last:?}");
    let stats = core.stats(ms(8));
    assert_eq!((stats.yielded, stats.moved, stats.retries), (1, 0, 0));
    let why: Vec<String> = core
        .explain(ms(8), back[3])
        .expect("known")
        .here()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let asked = format!("asked back from worker w: task {urgent}, which is more urgent");
    assert!(why.iter().any(|line| line.contains(&asked)), "{why:?}");
    assert!(why.iter().any(|line| line.ends_with("came back unbegun, as asked")), "{why:?}");
}

#[test]
fn what_has_begun_or_has_the_older_right_stays() {
    let mut core = core();
    let session = join(&mut core, ms(0), "w");
    for _ in 0..4 {
        submit(&mut core, ms(0), of(Priority::Background));
    }
    let (sent, _) = acts(&mut core);
    let held: Vec<(At, bool)> = sent.iter().map(|at| (*at, true)).collect();
    beat(&mut core, ms(1), session, &held);
    submit(&mut core, ms(2), of(Priority::Critical));
    assert_eq!(acts(&mut core).1, [], "all have begun");
    // An earlier heartbeat that comes later changes nothing.
    let held: Vec<(At, bool)> = sent.iter().map(|at| (*at, false)).collect();
    beat(&mut core, ms(3), session, &held);
    assert_eq!(acts(&mut core).1, []);

    let mut core = self::core();
    let session = join(&mut core, ms(0), "w");
    for _ in 0..4 {
        submit(&mut core, ms(0), of(Priority::Background));
    }
    acts(&mut core);
    for at in (500..50_000).step_by(500) {
        let held: Vec<(At, bool)> = (1..=4)
            .map(|seq| ((session, AttemptId { epoch: 9, seq, attempt: 1 }), false))
            .collect();
        beat(&mut core, ms(at), session, &held);
    }
    // The background task would go before the urgent one again, and be recalled again.
    submit(&mut core, ms(50_000), of(Priority::High));
    assert_eq!(acts(&mut core).1, []);
    submit(&mut core, ms(50_000), of(Priority::Critical));
    assert_eq!(acts(&mut core).1, [], "fifty seconds of waiting count more than four levels");
}

/// A core with a slow worker that holds four tasks, of which three wait, and its attempts.
fn slow_and_fast(slow: Duration, fast: Duration) -> (Core, [SessionId; 2], Vec<At>) {
    let mut core = core();
    // Other strategies would send recalled tasks back to where they came from.
    core.set_balancing(by_name("round_robin").expect("in the table"));
    let first = join(&mut core, ms(0), "slow");
    submit(&mut core, ms(0), of(Priority::Normal));
    let (sent, _) = acts(&mut core);
    assert!(core.complete(ms(1), first, sent[0].1, took(slow)));
    for _ in 0..4 {
        submit(&mut core, ms(2), of(Priority::Normal));
    }
    let (held, _) = acts(&mut core);
    let second = join(&mut core, ms(3), "fast");
    let waiting: Vec<(At, bool)> = held.iter().map(|at| (*at, *at == held[0])).collect();
    beat(&mut core, ms(4), first, &waiting);
    assert_eq!(acts(&mut core).1, [], "of the other nothing is known");
    submit(&mut core, ms(5), of(Priority::Normal));
    let (sent, _) = acts(&mut core);
    assert_eq!(sent[0].0, second);
    assert!(core.complete(ms(6), second, sent[0].1, took(fast)));
    beat(&mut core, ms(7), first, &waiting);
    (core, [first, second], held)
}

#[test]
fn what_waits_at_a_slow_worker_moves_to_an_idle_one_and_once() {
    let (mut core, [slow, fast], held) = slow_and_fast(ms(100), ms(10));
    // Both were measured; three attempts wait behind the one that runs, the last one longest.
    assert_eq!(acts(&mut core).1, [held[3], held[2], held[1]]);
    assert!(core.complete(ms(8), slow, held[3].1, Completion::Refused));
    assert!(core.complete(ms(8), slow, held[2].1, Completion::Refused));
    let (sent, _) = acts(&mut core);
    assert_eq!(sent.iter().map(|(session, _)| *session).collect::<Vec<_>>(), [fast, fast]);
    assert_eq!((core.stats(ms(8)).moved, core.stats(ms(8)).retries), (2, 0));
    let moved = TaskId { epoch: 9, seq: held[3].1.seq };
    let why = core.explain(ms(8), moved).expect("known").here();
    let text = "it would be done in 175 ms there, in 10 ms on worker fast, which is idle";
    assert!(why.iter().any(|(_, line)| line.ends_with(text)), "{why:?}");
    // They wait at that worker now. The other one is idle and faster, but they stay.
    assert!(core.complete(ms(9), slow, held[0].1, took(ms(1))));
    assert!(core.complete(ms(9), slow, held[1].1, took(ms(1))));
    core.complete(ms(9), fast, sent[0].1, took(ms(1_000)));
    beat(&mut core, ms(10), fast, &[(sent[1], false)]);
    assert_eq!(acts(&mut core).1, []);
}

#[test]
fn what_would_hardly_gain_stays_where_it_is() {
    for (slow, fast) in [(ms(10), ms(10)), (ms(100), ms(90)), (ms(2), ms(1))] {
        let (mut core, ..) = slow_and_fast(slow, fast);
        assert_eq!(acts(&mut core).1, [], "{slow:?} {fast:?}");
    }
}

#[test]
fn nobody_free_elsewhere_means_back_to_where_it_waited() {
    let (mut core, [slow, fast], held) = slow_and_fast(ms(100), ms(10));
    acts(&mut core);
    core.disconnected(ms(8), fast, Parting::Ended);
    assert!(core.complete(ms(9), slow, held[3].1, Completion::Refused));
    let (sent, _) = acts(&mut core);
    assert_eq!(sent, [(slow, AttemptId { attempt: 2, ..held[3].1 })]);
}
