//! Results are kept until they are read, and removed when they are discarded.

use crate::common::{Echo, Worker, config, coordinator, eventually, model, task};
use lgp_distributed::{
    Coordinator, CoordinatorConfig, Error, Pki, TaskFilter, TaskId, TaskRecord, TaskSpec, TaskState,
};
use std::time::Duration;

fn durable(name: &str) -> TaskSpec {
    TaskSpec { durable: true, ..task(name) }
}

/// Whether a task was accepted once and its result is gone.
fn expired(record: Result<TaskRecord, Error>) -> bool {
    matches!(record, Err(Error::Expired { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_many_tasks_wait_until_they_are_asked_for() {
    const BATCHES: usize = 12;
    const BATCH: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("tasks.journal"));
    // Few enough records stay in memory that most are read back.
    let settings =
        || CoordinatorConfig { journal: journal.clone(), retained_tasks_max: 500, ..config() };
    let pki = Pki::generate().unwrap();
    let first = Coordinator::start(settings(), &pki).await.unwrap();
    let worker = Worker::start(&first, &pki, "w", 8, &Echo::open());
    let mut ids: Vec<TaskId> = Vec::new();
    for _ in 0..BATCHES {
        let batch = (0..BATCH).map(|_| (durable("echo"), vec![])).collect();
        ids.extend(first.submit_all(batch).await.unwrap());
    }
    while first.stats().tasks.succeeded < (BATCHES * BATCH) as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut shown = None;
    for id in &ids {
        let record = first.task(*id).await.unwrap();
        assert_eq!(
            (record.state, &record.outputs),
            (TaskState::Succeeded, &Some(task("echo").inputs))
        );
        shown.get_or_insert(record);
    }
    assert_eq!(first.wait(ids[0]).await.unwrap(), first.task(ids[0]).await.unwrap());
    let why = first.explain(ids[0]).await.unwrap();
    assert_eq!(why.last().map(|(_, what)| what.as_str()), Some("succeeded"), "{why:?}");

    // The pages together list all tasks.
    let mut listed = Vec::new();
    let mut filter = TaskFilter { limit: 700, ..TaskFilter::default() };
    loop {
        let page = first.tasks(&filter).await.unwrap();
        assert!(page.tasks.iter().all(|task| task.outputs.is_none()));
        listed.extend(page.tasks.iter().map(|task| task.task_id));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    listed.reverse();
    assert_eq!(listed, ids);
    let failed = TaskFilter { state: Some(TaskState::Failed), ..TaskFilter::default() };
    assert!(first.tasks(&failed).await.unwrap().tasks.is_empty());

    assert_eq!(first.let_go(ids[0]).await.unwrap(), TaskState::Succeeded);
    assert!(expired(first.task(ids[0]).await) && expired(first.wait(ids[0]).await));
    assert!(matches!(first.let_go(ids[0]).await, Err(Error::Expired { .. })));
    first.stop().await;
    drop(worker);

    let second = Coordinator::start(settings(), &pki).await.unwrap();
    assert!(expired(second.task(ids[0]).await));
    for id in &ids[1..] {
        assert_eq!(second.task(*id).await.unwrap().state, TaskState::Succeeded, "{id}");
    }
    let unheard = "ffff-1".parse().unwrap();
    assert!(matches!(second.task(unheard).await, Err(Error::UnknownTask { .. })));
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_its_task_after_the_result_was_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("tasks.journal"));
    let settings = || CoordinatorConfig { journal: journal.clone(), ..config() };
    let pki = Pki::generate().unwrap();
    let keyed = TaskSpec { idempotency_key: Some("k".into()), ..durable("echo") };
    let mut id = None;
    for life in 0..3 {
        let coordinator = Coordinator::start(settings(), &pki).await.unwrap();
        let _worker = Worker::start(&coordinator, &pki, "w", 1, &Echo::open());
        let ids = coordinator.submit_all(vec![(keyed.clone(), vec![])]).await.unwrap();
        assert_eq!(*id.get_or_insert(ids[0]), ids[0]);
        if life == 0 {
            coordinator.wait(ids[0]).await.unwrap();
            coordinator.let_go(ids[0]).await.unwrap();
        }
        assert!(expired(coordinator.task(ids[0]).await), "{life}");
        assert_eq!(coordinator.state(ids[0]).unwrap(), TaskState::Succeeded);
        // A discarded task still counts as succeeded for its dependants.
        let after = TaskSpec { depends_on: ids, ..durable("echo") };
        let after = coordinator.submit_all(vec![(after, vec![])]).await.unwrap();
        assert_eq!(coordinator.wait(after[0]).await.unwrap().state, TaskState::Succeeded);
        coordinator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_has_ended_is_let_go() {
    let (coordinator, pki) = coordinator().await;
    let gate = Echo::shut();
    let _worker = Worker::start(&coordinator, &pki, "w", 1, &gate);
    let id = coordinator.submit(task("echo")).unwrap();
    eventually("it runs", || (coordinator.state(id).unwrap() == TaskState::Running).then_some(()))
        .await;
    let early = coordinator.let_go(id).await;
    assert!(matches!(early, Err(Error::NotEnded { state: TaskState::Running, .. })), "{early:?}");
    let other = TaskFilter { model: Some(model("other").name), ..TaskFilter::default() };
    assert!(coordinator.tasks(&other).await.unwrap().tasks.is_empty());
    gate.let_go();
    coordinator.wait(id).await.unwrap();
    coordinator.let_go(id).await.unwrap();
    assert!(expired(coordinator.task(id).await));
    coordinator.stop().await;
}
