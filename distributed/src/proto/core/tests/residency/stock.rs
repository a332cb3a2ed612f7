//! Models that workers hold but the core did not place, and orders that take their time.

use super::{Cluster, model, ms};
use crate::executor::{DeviceStatus, ExecError, ExecutorStatus};
use crate::proto::message::Heartbeat;
use crate::proto::models::ModelNeeds;
use crate::proto::state::Action;
use crate::task::TaskState;

/// A device that has models, and so many bytes for models.
pub(super) fn device(memory: Option<u64>, models: &[&str]) -> DeviceStatus {
    let models = models.iter().map(|name| model(name)).collect();
    DeviceStatus { vram_total_bytes: memory, models, ..DeviceStatus::default() }
}

/// The worker of a session reports its models.
pub(super) fn beat(cluster: &mut Cluster, session: u64, device: DeviceStatus) {
    cluster.now += ms(500);
    for beat in Heartbeat::all(&[], ExecutorStatus::of(device)) {
        cluster.core.heartbeat(cluster.now, session, beat);
    }
    cluster.settle();
}

#[test]
fn what_a_worker_brings_along_is_taken_into_the_books_as_far_as_it_fits() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.load("a", 6);
    cluster.load("b", 6);
    cluster.come("w", device(Some(10), &["b", "a"]));
    // The model that it named first fits; both do not.
    assert_eq!(cluster.seen(), ["drop a on 1"]);
    cluster.submit("b");
    assert_eq!(cluster.seen(), ["run b on 1"]);
}

#[test]
fn what_was_unloaded_while_its_worker_was_away_is_let_go_of() {
    let mut cluster = Cluster::new("least_loaded");
    for memory in [None, Some(10)] {
        cluster.come("w", device(memory, &["gone"]));
        let session = cluster.core.next_session() - 1;
        // A caller may be about to ask for the model.
        beat(&mut cluster, session, device(memory, &["gone"]));
        assert_eq!(cluster.seen(), [""; 0]);
        for _ in 0..21 {
            beat(&mut cluster, session, device(memory, &["gone"]));
        }
        assert_eq!(cluster.seen(), [format!("drop gone on {session}")]);
    }
}

#[test]
fn what_nobody_asked_the_cluster_to_have_stays_while_tasks_use_it_and_is_adopted_when_wanted() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    for _ in 0..30 {
        cluster.submit("lazy");
        cluster.end_all(ms(1));
        beat(&mut cluster, 1, device(Some(10), &["lazy"]));
    }
    assert!(cluster.seen().iter().all(|what| what == "run lazy on 1"));
    cluster.load("lazy", 10);
    assert_eq!(cluster.seen(), ["load lazy on 1"], "the caller hears from the worker itself");
    assert!(cluster.core.load_report(&model("lazy")).expect("settled")[0].1.is_ok());
}

#[test]
fn what_is_there_unasked_takes_room_and_goes_first_when_that_is_needed() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.come("w", device(Some(10), &["stray"]));
    cluster.core.load(
        cluster.now,
        &model("a"),
        ModelNeeds { memory_bytes: Some(4), ..ModelNeeds::default() },
    );
    // The size of the stray is unknown: no model is known to fit beside it.
    cluster.settle();
    assert_eq!(cluster.seen(), ["drop stray on 1", "load a on 1"]);
}

#[test]
fn a_late_attempt_that_loaded_what_had_left_gains_it_no_place() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("a", 6);
    cluster.load("b", 6);
    assert_eq!(cluster.seen(), ["load a on 1", "drop a on 1", "load b on 1"]);
    beat(&mut cluster, 1, device(Some(10), &["a", "b"]));
    assert_eq!(cluster.seen(), ["drop a on 1"]);
    // Where it fits it stays, and counts.
    cluster.load("c", 3);
    cluster.core.unload(cluster.now, &model("c"));
    cluster.settle();
    cluster.load("c", 3);
    cluster.seen();
    beat(&mut cluster, 1, device(Some(10), &["b", "c"]));
    cluster.load("d", 3);
    assert_eq!(cluster.seen().first().map(String::as_str), Some("drop b on 1"));
}

#[test]
fn room_is_promised_when_what_had_it_is_gone() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("a", 6);
    cluster.confirms = false;
    cluster.load("b", 6);
    assert_eq!(cluster.seen(), ["load a on 1", "drop a on 1"]);
    assert_eq!(cluster.core.load_report(&model("b")), None, "it is to come");
    // The order, or its confirmation, was lost.
    for _ in 0..21 {
        beat(&mut cluster, 1, device(Some(10), &["a"]));
    }
    assert_eq!(cluster.seen(), ["drop a on 1"]);
    cluster.core.unloaded(cluster.now, 1, 0, &model("a"));
    cluster.settle();
    assert_eq!(cluster.seen(), ["load b on 1"]);
}

#[test]
fn a_model_that_is_wanted_again_before_it_has_gone_comes_back() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("a", 6);
    cluster.confirms = false;
    for name in ["a", "b"] {
        cluster.core.unload(cluster.now, &model("a"));
        cluster.load(name, 6);
        assert_eq!(cluster.core.load_report(&model(name)), None, "{name} is to come");
        assert_eq!(cluster.seen().last().map(String::as_str), Some("drop a on 1"));
        cluster.core.unloaded(cluster.now, 1, 0, &model("a"));
        cluster.settle();
        assert_eq!(cluster.seen(), [format!("load {name} on 1")]);
    }
}

#[test]
fn models_that_exclude_each_other_are_not_loaded_at_once() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    let needs = || ModelNeeds { memory_bytes: Some(6), ..ModelNeeds::default() };
    // Both models failed once.
    for name in ["a", "b"] {
        cluster.core.load(cluster.now, &model(name), needs());
        let failed = Err(ExecError::failed("a bad file"));
        while let Some(action) = cluster.core.next_action(cluster.now) {
            if let Action::Load { session, device, model } = action {
                cluster.core.loaded(cluster.now, session, device, &model, failed.clone(), None);
            }
        }
    }
    let mut ordered = Vec::new();
    for name in ["a", "b"] {
        cluster.core.load(cluster.now, &model(name), needs());
        while let Some(action) = cluster.core.next_action(cluster.now) {
            if let Action::Load { model, .. } = action {
                ordered.push(model.name);
            }
        }
    }
    assert_eq!(ordered, ["a"]);
}

#[test]
fn sizes_are_those_of_the_device_s_backend() {
    let mut cluster = Cluster::new("least_loaded");
    let on = |backend: &str, memory| DeviceStatus {
        backend: backend.into(),
        ..device(Some(memory), &[])
    };
    cluster.come("slow", on("cpu", 100));
    cluster.come("card", on("opencl", 10));
    let m = model("m");
    cluster.core.load(cluster.now, &m, ModelNeeds::default());
    while let Some(action) = cluster.core.next_action(cluster.now) {
        if let Action::Load { session, device, model } = action {
            let bytes = if session == 1 { 50 } else { 8 };
            cluster.core.loaded(cluster.now, session, device, &model, Ok(Some(bytes)), None);
        }
    }
    // The known size is more than the card has, but another card was seen to hold the model.
    cluster.come("card2", on("opencl", 10));
    assert_eq!(cluster.seen(), ["load m on 3"]);
    cluster.come("cuda", on("cuda", 10));
    assert_eq!(cluster.seen(), [""; 0], "the largest counts where no device of a kind was seen");
    let report = cluster.core.load_report(&m).expect("settled");
    let failed: Vec<&str> =
        report.iter().filter(|(_, r)| r.is_err()).map(|(id, _)| id.as_str()).collect();
    assert_eq!(failed, ["cuda"]);
}

#[test]
fn loading_takes_what_the_worker_says_and_not_what_it_waited_for_its_turn() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", None);
    let m = model("m");
    let load_ms = |cluster: &Cluster| cluster.core.placement.wanted(&m).expect("wanted").load_ms();
    cluster.core.load(cluster.now, &m, ModelNeeds::default());
    cluster.core.loaded(ms(60_000), 1, 0, &m, Ok(None), Some(ms(200)));
    assert_eq!(load_ms(&cluster), 200.0);
    // The model was there already.
    cluster.core.loaded(ms(61_000), 1, 0, &m, Ok(None), None);
    assert_eq!(load_ms(&cluster), 200.0);
}

#[test]
fn a_task_whose_model_found_no_room_waits_until_it_is_known_what_has_it() {
    for stray in [true, false] {
        let mut cluster = Cluster::new("least_loaded");
        cluster.join("w", Some(10));
        let a = model("a");
        let needs = ModelNeeds { memory_bytes: Some(6), ..ModelNeeds::default() };
        cluster.core.load(cluster.now, &a, needs);
        let full = Err(ExecError::unavailable("no room"));
        cluster.core.loaded(cluster.now, 1, 0, &a, full, None);
        while cluster.core.next_action(cluster.now).is_some() {}
        let task = cluster.submit("a");
        // A task of a model that no caller asked for was faster, and so was the first heartbeat.
        beat(&mut cluster, 1, device(Some(10), &[]));
        assert_eq!(cluster.state(task), TaskState::Queued);
        let there: &[&str] = if stray { &["lazy"] } else { &[] };
        beat(&mut cluster, 1, device(Some(10), there));
        cluster.wait(ms(300));
        match stray {
            true => assert_eq!(cluster.seen(), ["drop lazy on 1", "load a on 1", "run a on 1"]),
            false => assert_eq!(cluster.state(task), TaskState::Failed, "nothing is in its way"),
        }
    }
}

#[test]
fn a_list_from_before_a_load_takes_nothing_back() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", None);
    cluster.load("a", 6);
    beat(&mut cluster, 1, device(None, &[]));
    assert_eq!(cluster.core.workers(cluster.now)[0].models, ["a/1"]);
}
