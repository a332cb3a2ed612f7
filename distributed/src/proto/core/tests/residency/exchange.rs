//! Models whose sizes turn out otherwise, and variants.

use super::{Cluster, model, ms};
use crate::executor::ExecError;
use crate::proto::balance::by_name;
use crate::proto::models::ModelNeeds;
use crate::proto::state::Action;

#[test]
fn what_turns_out_too_large_gets_more_room_until_there_is_no_more() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("a", 4);
    cluster.load("b", 4);
    cluster.core.load(cluster.now, &model("c"), ModelNeeds::default());
    let mut tries = 0;
    for _ in 0..10 {
        while let Some(action) = cluster.core.next_action(cluster.now) {
            match action {
                Action::Load { session, device, model } if model.name == "c" => {
                    tries += 1;
                    let full = Err(ExecError::unavailable("out of memory"));
                    let result = if tries < 3 { full } else { Ok(Some(9)) };
                    cluster.core.loaded(cluster.now, session, device, &model, result, None);
                }
                Action::Dispatch { session, id, model, .. } => {
                    cluster.running.push((session, id, model.name.clone()));
                }
                Action::Unload { session, device, model } => {
                    cluster.core.unloaded(cluster.now, session, device, &model);
                }
                _ => {}
            }
        }
        if tries < 3 {
            assert_eq!(cluster.core.load_report(&model("c")), None, "it is still being tried");
        }
        cluster.now += ms(500);
        cluster.core.tick(cluster.now);
    }
    let report = cluster.core.load_report(&model("c")).expect("it is known");
    assert!(report[0].1.is_ok(), "{report:?}");
    assert_eq!(tries, 3, "beside both others, beside one, and alone");
    // Now its size is known.
    let needs = ModelNeeds { memory_bytes: Some(2), ..ModelNeeds::default() };
    cluster.core.load(cluster.now, &model("d"), needs);
    cluster.settle();
    assert!(cluster.seen().contains(&"drop c on 1".to_owned()));
}

#[test]
fn the_variant_that_is_done_first_answers() {
    let mut cluster = Cluster::new("adaptive");
    cluster.join("w", None);
    let variants = vec![model("fast"), model("slow")];
    for name in ["fast", "slow"] {
        cluster.load(name, 1);
    }
    let needs = ModelNeeds { variants, ..ModelNeeds::default() };
    cluster.core.load(cluster.now, &model("m"), needs);
    cluster.settle();
    let mut runs = std::collections::BTreeMap::new();
    let mut last = None;
    for _ in 0..60 {
        last = Some(cluster.submit("m"));
        let name = cluster.running[0].2.clone();
        let took = match name.as_str() {
            "fast" => 5,
            "m" => 20,
            _ => 40,
        };
        *runs.entry(name).or_insert(0) += 1;
        cluster.end_all(ms(took));
    }
    assert_eq!(runs.values().sum::<u32>(), 60);
    assert!(runs["fast"] > 50 && runs["m"] >= 1 && runs["slow"] >= 1, "{runs:?}");
    let record = cluster.core.record(cluster.now, last.expect("some ran")).expect("known");
    assert_eq!((record.model.name.as_str(), record.variant), ("m", Some(model("fast"))));
    // Other strategies run the model that was asked for.
    cluster.core.set_balancing(by_name("least_loaded").expect("in the table"));
    cluster.submit("m");
    assert_eq!(cluster.running[0].2, "m");
}

#[test]
fn an_exchange_that_turns_out_too_small_is_begun_anew() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("c", 5);
    cluster.wait(ms(1));
    cluster.load("a", 3);
    cluster.confirms = false;
    cluster.load("b", 6);
    assert_eq!(cluster.seen(), ["load c on 1", "load a on 1", "drop c on 1"]);
    // Beside the model that stays there is no room any more.
    let needs = ModelNeeds { memory_bytes: Some(8), ..ModelNeeds::default() };
    cluster.core.set_needs(cluster.now, &model("a"), needs);
    cluster.confirms = true;
    cluster.core.unloaded(cluster.now, 1, 0, &model("c"));
    cluster.settle();
    let seen = cluster.seen();
    assert!(seen.ends_with(&["load b on 1".into()]), "{seen:?}");
    assert!(cluster.core.load_report(&model("b")).is_some());
}

#[test]
fn a_load_is_tried_again_when_something_goes_that_was_not_in_the_books() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("a", 6);
    assert_eq!(cluster.seen(), ["load a on 1"]);
    let gone = |cluster: &mut Cluster| {
        cluster.core.unloaded(cluster.now, 1, 0, &model("b"));
        cluster.settle();
        cluster.seen()
    };
    assert_eq!(gone(&mut cluster), [""; 0], "nothing has failed");
    // A task of a model that the core did not place has loaded that model first.
    let full = Err(ExecError::unavailable("does not fit"));
    cluster.core.loaded(cluster.now, 1, 0, &model("a"), full, None);
    assert_eq!(gone(&mut cluster), ["load a on 1"]);
}
