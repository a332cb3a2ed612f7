//! Models that a person has unloaded while their tasks wait or run.

use super::stock::{beat, device};
use super::{Cluster, model, ms};
use crate::proto::state::{Action, Completion};
use crate::task::TaskState;

#[test]
fn tasks_of_a_model_that_was_withdrawn_wait_until_it_is_loaded_again() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("a", 6);
    let (running, waiting) = (cluster.submit("a"), cluster.submit("a"));
    assert_eq!(cluster.seen(), ["load a on 1", "run a on 1"]);
    let [(session, run, _)] = cluster.running[..] else { panic!("{:?}", cluster.running) };

    cluster.core.withdraw(cluster.now, &model("a"));
    cluster.settle();
    assert_eq!(cluster.seen(), ["drop a on 1"]);
    assert_eq!(cluster.core.end_runs_of(cluster.now, &model("a")), [running]);
    cluster.settle();
    let done = Completion::Done { outputs: Vec::new(), model: ms(1), batch: 1, joined: false };
    assert!(!cluster.core.complete(cluster.now, session, run, done), "nobody waits for it");
    let mut actions = std::iter::from_fn(|| cluster.core.next_action(cluster.now));
    assert!(actions.any(|action| matches!(action, Action::Changed)), "who waits for that looks");
    cluster.running.clear();

    cluster.wait(ms(60_000));
    assert_eq!(cluster.seen(), [""; 0], "nothing is sent, and nobody loads it again");
    for task in [running, waiting] {
        assert_eq!(cluster.state(task), TaskState::Queued);
        let why = cluster.core.explain(cluster.now, task).expect("known").here();
        assert!(why.last().is_some_and(|(_, text)| text.contains("was unloaded")), "{why:?}");
    }
    // Other models are not affected.
    cluster.load("b", 6);
    cluster.submit("b");
    assert_eq!(cluster.seen(), ["load b on 1", "run b on 1"]);
    cluster.end_all(ms(1));

    cluster.load("a", 4);
    for _ in 0..2 {
        cluster.end_all(ms(1));
    }
    assert_eq!(cluster.seen(), ["load a on 1", "run a on 1", "run a on 1"]);
    assert_eq!(cluster.state(running), TaskState::Succeeded);
    assert_eq!(cluster.state(waiting), TaskState::Succeeded);
}

#[test]
fn what_a_device_still_has_of_a_model_that_was_withdrawn_goes_at_once() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.load("a", 6);
    cluster.core.withdraw(cluster.now, &model("a"));
    cluster.submit("a");
    cluster.come("w", device(Some(10), &["a"]));
    assert_eq!(cluster.seen(), ["drop a on 1"], "though a task waits for it");
    beat(&mut cluster, 1, device(Some(10), &[]));
    assert_eq!(cluster.seen(), [""; 0]);
}
