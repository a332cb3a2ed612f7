//! Which tasks are accepted, kept and saved.

use super::*;
use crate::proto::membership::Parting;

#[test]
fn the_queue_refuses_by_count_and_bytes_but_never_when_empty() {
    let mut core = core();
    let put = |core: &mut Core, bytes| core.submit(ms(0), order(spec(), bytes));
    put(&mut core, 5_000).expect("an empty queue takes anything");
    assert!(matches!(put(&mut core, 1), Err(Error::Overloaded { queued: 1, .. })));
    let first = core.tasks.iter().find(|task| !task.is_terminal()).expect("one").id().seq;
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
        core.complete(
            now,
            session,
            id,
            Completion::Done { outputs, model: ms(0), batch: 1, joined: false },
        );
        while core.next_action(now).is_some() {}
    };
    let first = submit(&mut core, ms(0), keyed.clone());
    finish(&mut core, ms(1), 600);
    assert_eq!(submit(&mut core, ms(1), keyed.clone()), first, "the key stands for it");
    let second = submit(&mut core, ms(2), spec());
    finish(&mut core, ms(2), 600);
    assert!(matches!(core.record(ms(2), first), Err(Error::Expired { .. })), "no room");
    assert_eq!(submit(&mut core, ms(2), keyed.clone()), first, "its key stands for it");
    let third = submit(&mut core, ms(3), spec());
    finish(&mut core, ms(3), 600);
    assert!(matches!(core.record(ms(3), second), Err(Error::Expired { .. })), "no room");
    assert!(core.record(ms(3), third).is_ok());
    assert_eq!(core.known(), 1);
    for _ in 0..20 {
        submit(&mut core, ms(4), spec());
        finish(&mut core, ms(4), 0);
    }
    assert_eq!(core.known(), 10);
    core.heartbeat(ms(70_000), session, beat(&[]));
    submit(&mut core, ms(70_000), spec());
    finish(&mut core, ms(70_000), 0);
    let next = TaskId { seq: 1_000, ..first };
    assert!(matches!(core.record(ms(70_000), next), Err(Error::UnknownTask { .. })));
    assert_ne!(submit(&mut core, ms(70_001), keyed), first, "the key is free again");
    assert_eq!(core.stats(ms(70_001)).tasks.succeeded, 24);
}

#[test]
fn kept_results_refuse_nothing_and_stand_for_their_keys() {
    let mut core = core();
    let keyed = |n: u64| TaskSpec { durable: true, idempotency_key: Some(n.to_string()), ..spec() };
    let mut ids = Vec::new();
    for number in 0..60 {
        let id = submit(&mut core, ms(number), keyed(number));
        journal(&mut core, ms(number));
        core.cancel(ms(number), id).expect("known");
        journal(&mut core, ms(number));
        ids.push(id);
    }
    assert_eq!(core.known(), 2, "an eighth of ten, the others are in the journal alone");
    // There is room for 50 of something, and the first ten are as young as the others.
    let gone =
        |core: &Core, at: usize| matches!(core.find(ms(60), ids[at]), Err(Error::Expired { .. }));
    let stored =
        |core: &Core, at: usize| matches!(core.find(ms(60), ids[at]), Ok(Found::Stored(_)));
    assert!(gone(&core, 0) && stored(&core, 57) && core.record(ms(60), ids[58]).is_ok());
    for (number, id) in (0..).zip(&ids) {
        assert_eq!(submit(&mut core, ms(60), keyed(number)), *id, "its key stands for it");
    }
    // A discarded result is gone at once; only the key stays.
    assert!(matches!(core.let_go(ms(61), ids[49]), Ok((TaskState::Cancelled, true))));
    let told = journal(&mut core, ms(61));
    assert!(matches!(&told[..], [Change::Put(images)] if images[0].gone), "{told:?}");
    assert!(gone(&core, 49));
    assert!(matches!(core.let_go(ms(61), ids[49]), Err(Error::Expired { .. })));
    assert_eq!(submit(&mut core, ms(61), keyed(49)), ids[49]);
    core.tick(ms(60_049));
    let told = journal(&mut core, ms(60_049));
    assert!(told.iter().any(|change| matches!(change, Change::Remove(id) if *id == ids[49])));
    assert_ne!(submit(&mut core, ms(60_049), keyed(49)), ids[49]);
    let open = submit(&mut core, ms(60_050), spec());
    assert!(matches!(core.let_go(ms(60_050), open), Err(Error::NotEnded { .. })));
}

#[test]
fn pages_hold_what_passes_newest_first() {
    let mut core = core();
    let mut ids = Vec::new();
    for number in 0..30 {
        let id = submit(&mut core, ms(number), TaskSpec { durable: true, ..spec() });
        journal(&mut core, ms(number));
        core.cancel(ms(number), id).expect("known");
        journal(&mut core, ms(number));
        ids.push(id);
    }
    let open = submit(&mut core, ms(40), spec());
    let page = |filter: &TaskFilter, below| {
        let page = core.page(ms(40), filter, below, filter.limit);
        let id = |found: &Found<_>| match found {
            Found::Here(TaskRecord { task_id, .. }) | Found::Stored(task_id) => *task_id,
        };
        (page.found.iter().map(id).collect::<Vec<_>>(), page.below)
    };
    let all = TaskFilter { limit: 2, ..TaskFilter::default() };
    assert_eq!(page(&all, u64::MAX), (vec![open, ids[29]], Some(ids[29].seq)));
    assert_eq!(page(&all, ids[2].seq), (vec![ids[1], ids[0]], None));
    let ended = TaskFilter { state: Some(TaskState::Cancelled), ..all.clone() };
    assert_eq!(page(&ended, u64::MAX).0, [ids[29], ids[28]]);
    let other = TaskFilter { model: Some("other".into()), ..all };
    assert_eq!(page(&other, u64::MAX), (Vec::new(), None));
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
    core.disconnected(ms(2), session, Parting::Ended);
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

#[test]
fn what_waits_is_counted_by_model() {
    let mut core = core();
    let of = |name: &str| {
        let model = ModelRef { name: name.into(), version: 1, sha256: String::new() };
        TaskSpec::new(model, Vec::new())
    };
    for name in ["a", "b", "a"] {
        submit(&mut core, ms(0), of(name));
    }
    let depths = |core: &Core| core.stats(ms(0)).queued_by_model.into_iter().collect::<Vec<_>>();
    assert_eq!(depths(&core), [("a/1".to_owned(), 2), ("b/1".to_owned(), 1)]);
    assert_eq!(core.scheduler.depth(&of("a").model), 2);
    join(&mut core, ms(0), "w", 2);
    assert_eq!(depths(&core), [("a/1".to_owned(), 1)]);
}

#[test]
fn an_end_goes_to_the_journal_once_its_outputs_lie_apart() {
    let mut config = config();
    config.retention.outputs_inline_max = 4;
    let mut core = Core::new(ms(0), config, 1);
    let session = join(&mut core, ms(0), "w", 1);
    let tensor = Tensor::zeros(DType::U8, [5]).expect("small");
    let outputs = vec![NamedTensor::new("y", tensor)];
    let sent = |core: &mut Core, now| {
        let actions: Vec<Action> = std::iter::from_fn(|| core.next_action(now)).collect();
        let ticket = actions.iter().find_map(|action| match action {
            Action::Record { ticket, change: Change::Put(images) } => {
                Some((*ticket, images[0].clone()))
            }
            _ => None,
        });
        let stored = actions
            .iter()
            .any(|a| matches!(a, Action::Store { outputs, .. } if !outputs.is_empty()));
        let begun = actions.iter().any(|a| matches!(a, Action::Dispatch { .. }));
        (stored, ticket, begun)
    };
    let id = submit(&mut core, ms(0), TaskSpec { durable: true, ..spec() });
    let (_, accepted, _) = sent(&mut core, ms(0));
    core.recorded(ms(0), accepted.expect("it is durable").0);
    let (_, attempt) = dispatched(&mut core)[0];
    let completion =
        Completion::Done { outputs: outputs.clone(), model: ms(2), batch: 1, joined: false };
    assert!(core.complete(ms(1), session, attempt, completion));
    let (stored, ticket, _) = sent(&mut core, ms(1));
    assert!(stored && ticket.is_none(), "first the outputs");
    // However long storing takes, and whatever becomes of the worker, the task is not run again.
    core.disconnected(ms(20_000), session, Parting::Ended);
    let other = join(&mut core, ms(20_000), "v", 1);
    core.heartbeat(ms(40_000), other, beat(&[]));
    core.tick(ms(40_000));
    assert_eq!(core.state(id).expect("known"), TaskState::Running);
    assert!(!sent(&mut core, ms(40_000)).2);
    // There is no room for the outputs, nor in the journal: all of it is tried again.
    assert!(core.stored(id.seq, None));
    let (stored, ticket, _) = sent(&mut core, ms(40_000));
    let (ticket, image) = ticket.expect("the journal is to keep them");
    assert_eq!((stored, image.tensor_bytes(), image.outputs_apart()), (false, 5, None));
    core.unrecorded(ms(40_000), ticket, "full");
    core.tick(ms(42_000));
    assert!(sent(&mut core, ms(42_000)).0, "they may find room by now");
    let blob = crate::proto::message::TensorBlob { sha256: [1; 32], bytes: 5 };
    let (tensors, _) = crate::proto::tensors::describe(&outputs).expect("small");
    let apart = crate::proto::image::Apart { blob, tensors };
    assert!(core.stored(id.seq, Some(apart.clone())));
    let (_, ticket, _) = sent(&mut core, ms(42_000));
    let (ticket, image) = ticket.expect("its end");
    assert_eq!((image.tensor_bytes(), image.outputs_apart()), (0, Some(&apart)));
    core.recorded(ms(42_000), ticket);
    let record = core.record(ms(42_000), id).expect("it is in memory");
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1));
    assert_eq!(record.outputs, Some(outputs));
    assert!(!core.stored(id.seq, None), "nobody waits for that any more");
}
