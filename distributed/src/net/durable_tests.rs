//! Durable submissions on a log that has no room: nothing of a refused submission is left.

use crate::control::log::{Each, Opened, Opener, Place};
use crate::control::memory::Memory;
use crate::net::coordinator::gate::Services;
use crate::net::outside::unix_ms;
use crate::net::tests::ANY;
use crate::{
    Coordinator, CoordinatorConfig, Error, JournalError, ModelRef, Pki, TaskFilter, TaskRecord,
    TaskSpec, TaskState,
};
use lgp_memory::{NamedTensor, Tensor};
use std::time::Duration;

struct Rig {
    folder: tempfile::TempDir,
    pki: Pki,
    log: Memory,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, pki: Pki::generate().expect("random numbers"), log: Memory::default() }
    }

    async fn start(&self) -> Coordinator {
        self.start_on(Box::new(self.log.clone())).await
    }

    async fn start_on(&self, place: Box<dyn Place>) -> Coordinator {
        let journal = Some(self.folder.path().join("tasks.journal"));
        let config = CoordinatorConfig { quic_addr: ANY, journal, ..Default::default() };
        let started =
            Coordinator::start_on(Some(place), config, &self.pki, Services::default()).await;
        started.expect("a free port")
    }
}

fn task(key: &str, durable: bool) -> TaskSpec {
    let model = ModelRef { name: "echo".into(), version: 1, sha256: "00".repeat(32) };
    let x = Tensor::from_slice([3_000], &[1_u8; 3_000]).expect("small");
    let mut spec = TaskSpec::new(model, vec![NamedTensor::new("x", x)]);
    spec.idempotency_key = Some(key.into());
    spec.durable = durable;
    spec
}

/// Ten tasks that depend on one another, and two more that live in memory.
fn batch() -> Vec<(TaskSpec, Vec<usize>)> {
    let durable = (0..10).map(|at| {
        let within = if at > 0 { vec![at - 1] } else { Vec::new() };
        (task(&format!("d{at}"), true), within)
    });
    let others = [(task("m0", false), vec![4]), (task("m1", false), Vec::new())];
    durable.chain(others).collect()
}

async fn listed(coordinator: &Coordinator) -> Vec<TaskRecord> {
    coordinator.tasks(&TaskFilter::default()).await.expect("readable").tasks
}

#[tokio::test]
async fn a_submission_that_finds_no_room_leaves_nothing() {
    let rig = Rig::new();
    let coordinator = rig.start().await;
    let kept = coordinator.submit_all(vec![(task("kept", true), vec![])]).await.expect("room");
    // Half of them would fit.
    rig.log.limit(Some(20_000));
    for _ in 0..2 {
        let refused = coordinator.submit_all(batch()).await;
        assert!(matches!(refused, Err(Error::NotSaved { .. })), "{refused:?}");
        let known: Vec<_> = listed(&coordinator).await.iter().map(|task| task.task_id).collect();
        assert_eq!(known, kept, "no task of it is known, cancelled or not");
        assert_eq!(rig.log.keys().len(), 1);
        assert_eq!(coordinator.stats().tasks.submitted, 1);
    }
    rig.log.limit(None);
    let ids = coordinator.submit_all(batch()).await.expect("room");
    let known = listed(&coordinator).await;
    assert_eq!(known.len(), 13);
    assert!(known.iter().all(|task| task.state == TaskState::Queued), "{known:?}");
    assert_eq!(coordinator.submit_all(batch()).await.expect("known"), ids, "by their keys");
    coordinator.stop().await;
    let next = rig.start().await;
    let again: Vec<_> = listed(&next).await.iter().rev().map(|task| task.task_id).collect();
    assert_eq!(again, [&kept[..], &ids[..10]].concat(), "in order, the durable ones");
    next.stop().await;
}

#[tokio::test]
async fn later_submissions_that_depend_on_a_refused_one_fail_or_are_refused_with_it() {
    let rig = Rig::new();
    let coordinator = rig.start().await;
    rig.log.limit(Some(4_000));
    // The second submission waits until the first one is refused, because they share a key.
    let (first, second) = tokio::join!(
        coordinator.submit_all(batch()),
        coordinator.submit_all(vec![(task("d3", true), vec![]), (task("new", true), vec![0])]),
    );
    assert!(matches!(first, Err(Error::NotSaved { .. })), "{first:?}");
    assert!(matches!(second, Err(Error::NotSaved { .. })), "{second:?}");
    assert!(listed(&coordinator).await.is_empty());
    assert_eq!(rig.log.keys(), []);
    coordinator.stop().await;
}

#[tokio::test]
async fn who_runs_a_task_hears_of_its_refusal_and_only_of_its_own() {
    let rig = Rig::new();
    let coordinator = rig.start().await;
    rig.log.limit(Some(2_000));
    let refused = coordinator.run(task("alone", true)).await;
    assert!(matches!(refused, Err(Error::NotSaved { .. })), "{refused:?}");
    assert!(listed(&coordinator).await.is_empty());
    // There is room for the task, but not for the batch that came before with its key.
    rig.log.limit(Some(4_000));
    let cancelling = async {
        loop {
            if let [task] = &listed(&coordinator).await[..] {
                break coordinator.cancel(task.task_id).await.expect("known");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let all = async {
        tokio::join!(
            coordinator.submit_all(batch()),
            coordinator.run(task("d3", true)),
            tokio::time::timeout(Duration::from_secs(10), cancelling),
        )
    };
    let (batch, run, cancelled) = all.await;
    assert!(matches!(batch, Err(Error::NotSaved { .. })), "{batch:?}");
    cancelled.expect("it was accepted");
    assert_eq!(run.expect("it has room").state, TaskState::Cancelled);
    coordinator.stop().await;
}

#[tokio::test]
async fn what_ends_while_the_journal_decides_is_forgotten_with_the_rest() {
    let rig = Rig::new();
    let coordinator = rig.start().await;
    let failed = coordinator.submit_all(vec![(task("first", true), vec![])]).await.expect("room");
    coordinator.cancel(failed[0]).await.expect("known");
    coordinator.wait(failed[0]).await.expect("it ends");
    // These tasks have failed before they are recorded, because their dependency has.
    let doomed = |key: &str, durable| {
        (TaskSpec { depends_on: vec![failed[0]], ..task(key, durable) }, Vec::new())
    };
    // They are recorded as they ended, without their inputs.
    rig.log.limit(Some(300));
    let both = || vec![doomed("a", true), doomed("b", false)];
    let refused = coordinator.submit_all(both()).await;
    assert!(matches!(refused, Err(Error::NotSaved { .. })), "{refused:?}");
    assert_eq!(listed(&coordinator).await.len(), 1);
    rig.log.limit(None);
    for id in coordinator.submit_all(both()).await.expect("room") {
        assert_eq!(coordinator.wait(id).await.expect("known").state, TaskState::Failed);
    }
    assert_eq!(coordinator.stats().tasks.failed, 2);
    coordinator.stop().await;
}

/// A log on a slow disk.
struct Slow(Memory);

impl Place for Slow {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        std::thread::sleep(Duration::from_millis(600));
        self.0.open(opener, each)
    }
}

/// Deadlines go on by this clock in the next coordinator.
#[tokio::test]
async fn the_clock_is_right_however_long_the_journal_took_to_open() {
    let rig = Rig::new();
    let coordinator = rig.start_on(Box::new(Slow(rig.log.clone()))).await;
    let clock = coordinator.shared().read(|_, now| now);
    let off = Duration::from_millis(unix_ms()).abs_diff(clock);
    assert!(off < Duration::from_millis(300), "{off:?}");
    coordinator.stop().await;
}
