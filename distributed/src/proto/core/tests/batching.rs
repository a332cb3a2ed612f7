//! Models that say how their tasks are batched have places of their own at each device.

use super::*;
use crate::Batching;
use std::num::NonZeroU32;

fn model(name: &str) -> ModelRef {
    ModelRef { name: name.into(), version: 1, sha256: String::new() }
}

fn batching(max: u32) -> ModelNeeds {
    let max = NonZeroU32::new(max).expect("not zero");
    let batching = Some(Batching { max, preferred: Vec::new(), delay_us: 0 });
    ModelNeeds { batching, ..ModelNeeds::default() }
}

/// A core with one device that has both models.
fn rig(slots: u32, max: u32) -> (Core, SessionId) {
    let config = CoreConfig { queue_tasks_max: 1_000, queue_bytes_max: 1 << 20, ..config() };
    let mut core = Core::new(ms(0), config, 1);
    let session = join(&mut core, ms(0), "w", slots);
    core.load(ms(0), &model("a"), batching(max));
    core.load(ms(0), &model("b"), ModelNeeds::default());
    for name in ["a", "b"] {
        core.loaded(ms(0), session, 0, &model(name), Ok(None), None);
    }
    (core, session)
}

fn give(core: &mut Core, name: &str, count: usize) {
    for _ in 0..count {
        submit(core, ms(1), TaskSpec::new(model(name), Vec::new()));
    }
}

/// How many tasks of each model are dispatched now.
fn sent(core: &mut Core) -> (usize, usize) {
    let mut sent = (0, 0);
    while let Some(action) = core.next_action(ms(1)) {
        if let Action::Dispatch { model, .. } = action {
            if model.name == "a" { sent.0 += 1 } else { sent.1 += 1 }
        }
    }
    sent
}

/// Checks the counts that are kept, in builds that can.
fn check(core: &Core) {
    #[cfg(feature = "planted")]
    core.placement.check();
    assert!(core.placement.fleet().has_live());
}

#[test]
fn a_device_is_sent_as_many_as_a_batch_takes_beside_other_models() {
    let (mut core, session) = rig(1, 32);
    give(&mut core, "a", 40);
    assert_eq!(sent(&mut core), (32, 0));
    // A model without a batching finds the device's own slot free, and no more than that.
    give(&mut core, "b", 3);
    assert_eq!(sent(&mut core), (0, 1));
    let held: Vec<AttemptId> =
        (1..=32).map(|seq| AttemptId { epoch: 9, seq, attempt: 1 }).collect();
    // A task that ends makes room for a task of its own model.
    assert!(core.complete(ms(2), session, held[0], done()));
    assert_eq!(sent(&mut core), (1, 0));
    let b = AttemptId { epoch: 9, seq: 41, attempt: 1 };
    assert!(core.complete(ms(3), session, b, done()));
    assert_eq!(sent(&mut core), (0, 1));
    check(&core);
}

#[test]
fn places_follow_what_is_said_of_the_model() {
    let (mut core, session) = rig(2, 4);
    give(&mut core, "a", 20);
    assert_eq!(sent(&mut core), (8, 0), "two threads, and four for each");
    let needs = batching(6);
    core.set_needs(ms(2), &model("a"), needs);
    assert_eq!(sent(&mut core), (4, 0));
    check(&core);
    // Without places of its own it shares those of the device, which are taken now.
    core.set_needs(ms(2), &model("a"), ModelNeeds::default());
    give(&mut core, "b", 1);
    assert_eq!(sent(&mut core), (0, 0));
    check(&core);
    for seq in 1..=11 {
        core.complete(ms(3), session, AttemptId { epoch: 9, seq, attempt: 1 }, done());
    }
    let (a, b) = sent(&mut core);
    assert_eq!(a + b, 1, "one of the twelve is there, and two have a place");
    check(&core);
}

#[test]
fn the_device_with_more_free_places_of_the_model_gets_the_next() {
    let (mut core, first) = rig(1, 8);
    give(&mut core, "a", 8);
    assert_eq!(sent(&mut core), (8, 0));
    let second = join(&mut core, ms(2), "v", 1);
    for name in ["a", "b"] {
        core.loaded(ms(2), second, 0, &model(name), Ok(None), None);
    }
    core.complete(ms(3), first, AttemptId { epoch: 9, seq: 1, attempt: 1 }, done());
    give(&mut core, "a", 7);
    let to_second = dispatched(&mut core).iter().filter(|(to, _)| *to == second).count();
    assert_eq!(to_second, 7, "the other one has seven of eight");
    check(&core);
}
