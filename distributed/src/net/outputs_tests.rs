//! Outputs of durable tasks that lie in files beside the journal: shared, damaged, without room, slow.

use crate::control::embedded::Embedded;
use crate::control::log::Place;
use crate::control::memory::Memory;
use crate::net::coordinator::gate::Services;
use crate::net::tests::{ANY, Runs};
use crate::{
    Coordinator, CoordinatorConfig, Error, Executor, JournalError, ModelRef, Pki, TaskId,
    TaskRecord, TaskSpec, TaskState, WorkerConfig, run_worker,
};
use lgp_memory::{NamedTensor, Tensor};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

fn spread(from: u32, count: u32) -> Vec<NamedTensor> {
    let values: Vec<u32> = (from..from + count).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    let bytes = Tensor::from_slice([3], &[7_u8, 8, 9]).expect("small");
    let values = Tensor::from_slice([values.len()], &values).expect("there is memory");
    vec![NamedTensor::new("y", values), NamedTensor::new("z", bytes)]
}

/// Returns as many numbers as it is asked for.
pub(super) fn spreading() -> Arc<dyn Executor> {
    Arc::new(Runs(|inputs: &[NamedTensor]| {
        let asked = inputs[0].tensor.as_slice::<u32>().expect("two numbers");
        spread(asked[0], asked[1])
    }))
}

/// A coordinator's folder, and its log where that is in memory.
struct Rig {
    folder: tempfile::TempDir,
    pki: Pki,
    log: Option<Memory>,
}

impl Rig {
    fn new(log: Option<Memory>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, pki: Pki::generate().expect("random numbers"), log }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn start(&self) -> Coordinator {
        self.start_on(self.path("journal")).await
    }

    /// Starts a coordinator that reads results from the disk each time.
    async fn start_on(&self, journal: PathBuf) -> Coordinator {
        let place = match &self.log {
            Some(log) => Box::new(log.clone()) as Box<dyn Place>,
            None => Box::new(Embedded(journal.clone())) as _,
        };
        let config = CoordinatorConfig {
            quic_addr: ANY,
            journal: Some(journal),
            retained_tasks_max: 0,
            ..Default::default()
        };
        let started = Coordinator::start_on(Some(place), config, &self.pki, Services::default());
        started.await.expect("a free port")
    }

    fn work(&self, coordinator: &Coordinator, name: &str) -> JoinHandle<crate::Result<()>> {
        let identity = self.pki.issue_worker(name).expect("random numbers");
        let config = WorkerConfig::new(coordinator.quic_addr(), identity, 2);
        tokio::spawn(run_worker(config, spreading(), std::future::pending()))
    }

    fn files(&self) -> Vec<PathBuf> {
        files(&self.path("journal.inputs"))
    }

    async fn files_are(&self, count: usize) {
        eventually("files go", || self.files().len() == count).await;
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("readable").path()).collect()
}

async fn eventually(what: &str, there: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if there() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}: not within 10 s");
}

pub(super) async fn submit(coordinator: &Coordinator, from: u32, count: u32) -> TaskId {
    let model = ModelRef { name: "spread".into(), version: 1, sha256: "00".repeat(32) };
    let x = Tensor::from_slice([2], &[from, count]).expect("small");
    let spec = TaskSpec::new(model, vec![NamedTensor::new("x", x)]);
    let spec = TaskSpec { durable: true, ..spec };
    coordinator.submit_all(vec![(spec, Vec::new())]).await.expect("room")[0]
}

pub(super) async fn ended(coordinator: &Coordinator, id: TaskId) {
    let record = coordinator.wait(id).await.expect("it ends");
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1), "{:?}", record.error);
}

/// The outputs are those that were computed, to the bit.
pub(super) fn is_right(record: &TaskRecord, from: u32, count: u32) {
    assert!(record.outputs == Some(spread(from, count)), "task {} has others", record.task_id);
}

/// 1 MB.
pub(super) const COUNT: u32 = 250_000;

#[tokio::test(flavor = "multi_thread")]
async fn large_outputs_lie_beside_the_journal_until_they_are_let_go() {
    let rig = Rig::new(None);
    let first = rig.start().await;
    let worker = rig.work(&first, "w");
    let mut ids = Vec::new();
    for number in 0..30 {
        ids.push(submit(&first, number, COUNT).await);
    }
    for (number, id) in (0..).zip(&ids) {
        ended(&first, *id).await;
        is_right(&first.task(*id).await.expect("kept"), number, COUNT);
    }
    let small = submit(&first, 0, 1_000).await;
    ended(&first, small).await;
    assert_eq!(rig.files().len(), 30, "what is small does not lie there");
    let length = |path: &PathBuf| path.metadata().expect("a file").len();
    assert!(rig.files().iter().all(|file| length(file) == 1_000_003));
    let bytes = first.journal_bytes().expect("a file");
    assert!(bytes < 8 << 20, "{bytes} bytes of a journal that names 30 MB");
    // A list reads no outputs.
    assert_eq!(first.tasks(&crate::TaskFilter::default()).await.expect("readable").tasks.len(), 31);
    first.let_go(ids[0]).await.expect("it has ended");
    rig.files_are(29).await;
    first.stop().await;
    worker.abort();
    std::fs::write(rig.path("journal.inputs").join("00".repeat(32)), "left").expect("room");

    let second = rig.start().await;
    assert_eq!(rig.files().len(), 29, "what belongs to nobody went");
    assert!(matches!(second.task(ids[0]).await, Err(Error::Expired { .. })));
    for (number, id) in (1..).zip(&ids[1..]) {
        is_right(&second.task(*id).await.expect("kept"), number, COUNT);
        is_right(&second.wait(*id).await.expect("kept"), number, COUNT);
    }
    is_right(&second.task(small).await.expect("kept"), 0, 1_000);
    let why = second.explain(ids[1]).await.expect("kept");
    assert_eq!(why.last().map(|(_, what)| what.as_str()), Some("succeeded"), "{why:?}");
    for id in &ids[1..] {
        second.let_go(*id).await.expect("it has ended");
    }
    rig.files_are(0).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_with_the_same_outputs_share_a_file() {
    let rig = Rig::new(None);
    let first = rig.start().await;
    let worker = rig.work(&first, "w");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(submit(&first, 5, COUNT).await);
    }
    for id in &ids {
        ended(&first, *id).await;
    }
    assert_eq!(rig.files().len(), 1);
    first.let_go(ids[0]).await.expect("it has ended");
    first.stop().await;
    worker.abort();
    let second = rig.start().await;
    second.let_go(ids[1]).await.expect("it has ended");
    drop(second.shared().blob_store().expect("a journal").pause().await);
    is_right(&second.task(ids[2]).await.expect("kept"), 5, COUNT);
    assert_eq!(rig.files().len(), 1);
    second.let_go(ids[2]).await.expect("it has ended");
    rig.files_are(0).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_an_error_of_its_task_and_of_copies() {
    let rig = Rig::new(None);
    let coordinator = rig.start().await;
    let _worker = rig.work(&coordinator, "w");
    let sound = submit(&coordinator, 9, COUNT).await;
    ended(&coordinator, sound).await;
    let known = rig.files();
    let id = submit(&coordinator, 1, COUNT).await;
    ended(&coordinator, id).await;
    let new = rig.files().into_iter().find(|file| !known.contains(file)).expect("its file");
    let bytes = std::fs::read(&new).expect("readable");
    let mut flipped = bytes.clone();
    flipped[500_000] ^= 1;
    let cut = bytes[..999_999].to_vec();
    for (contents, part) in [
        (Some(flipped), "another digest than its name"),
        (Some(cut), "it has 999999 bytes, expected 1000003"),
        (None, "cannot be used"),
    ] {
        match contents {
            Some(contents) => std::fs::write(&new, contents).expect("room"),
            None => std::fs::remove_file(&new).expect("it is there"),
        }
        for read in [coordinator.task(id).await, coordinator.wait(id).await] {
            let Err(Error::ResultLost { id: of, reason }) = read else { panic!("{read:?}") };
            assert!(of == id && reason.contains(part), "{reason}");
        }
        let copied = coordinator.back_up(rig.path("copy")).await;
        let Err(Error::Journal(JournalError::Io { source, .. })) = copied else {
            panic!("{copied:?}")
        };
        assert!(source.to_string().contains("cannot be used"), "{source}");
        assert!(!rig.path("copy").exists() && !rig.path("copy.inputs").exists());
    }
    assert_eq!(coordinator.state(id).expect("known"), TaskState::Succeeded);
    is_right(&coordinator.task(sound).await.expect("kept"), 9, COUNT);
    // Putting the file back brings the result back.
    std::fs::write(&new, &bytes).expect("room");
    is_right(&coordinator.task(id).await.expect("kept"), 1, COUNT);
    coordinator.back_up(rig.path("copy")).await.expect("all is there");
    std::fs::remove_file(&new).expect("it is there");
    coordinator.let_go(id).await.expect("it has ended");
    rig.files_are(1).await;
    // The store hears of the release a moment later.
    let mut copied = coordinator.back_up(rig.path("later")).await;
    for _ in 0..250 {
        if copied.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            copied = coordinator.back_up(rig.path("later")).await;
        }
    }
    copied.expect("what is needed is there");
    coordinator.stop().await;
    assert_eq!(files(&rig.path("later.inputs")).len(), 1);
    let copy = rig.start_on(rig.path("copy")).await;
    is_right(&copy.task(id).await.expect("kept"), 1, COUNT);
    is_right(&copy.task(sound).await.expect("kept"), 9, COUNT);
    copy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_find_no_room_go_into_the_journal_or_wait() {
    let rig = Rig::new(Some(Memory::default()));
    let log = rig.log.clone().expect("in memory");
    let first = rig.start().await;
    let worker = rig.work(&first, "w");
    // The outputs cannot be written there.
    let folder = rig.path("journal.inputs");
    std::fs::remove_dir(&folder).expect("empty");
    std::fs::write(&folder, "in the way").expect("room");
    let inline = submit(&first, 1, COUNT).await;
    ended(&first, inline).await;
    is_right(&first.task(inline).await.expect("in the journal"), 1, COUNT);
    // The journal has no room either.
    log.limit(Some(1_200_000));
    let waits = submit(&first, 2, COUNT).await;
    let unsaved = || first.shared().read(|core, now| core.explain(now, waits));
    eventually("it is told", || format!("{:?}", unsaved()).contains("no room")).await;
    assert_eq!(first.state(waits).expect("known"), TaskState::Running);
    std::fs::remove_file(&folder).expect("there");
    std::fs::create_dir(&folder).expect("room");
    ended(&first, waits).await;
    assert_eq!(rig.files().len(), 1);
    first.stop().await;
    worker.abort();
    let second = rig.start().await;
    is_right(&second.task(inline).await.expect("kept"), 1, COUNT);
    is_right(&second.task(waits).await.expect("kept"), 2, COUNT);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_are_written_slowly_are_computed_once() {
    let rig = Rig::new(None);
    let coordinator = rig.start().await;
    let worker = rig.work(&coordinator, "w");
    let blob_store = coordinator.shared().blob_store().expect("a journal");
    let held_up = blob_store.held_up().await;
    let id = submit(&coordinator, 3, COUNT).await;
    let slots = || coordinator.workers().iter().map(|worker| worker.completed).sum::<u64>();
    eventually("it is computed", || slots() == 1).await;
    // Its worker has done its part, and may go.
    worker.abort();
    let _other = rig.work(&coordinator, "v");
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(coordinator.state(id).expect("known"), TaskState::Running);
    // Other tasks do not wait for it.
    let small = submit(&coordinator, 0, 10).await;
    ended(&coordinator, small).await;
    // A stop waits for it now.
    let stopping = tokio::spawn({
        let coordinator = coordinator.clone();
        async move { coordinator.stop().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!stopping.is_finished());
    drop(held_up);
    stopping.await.expect("it stops");
    assert_eq!(rig.files().len(), 1);
    let next = rig.start().await;
    let record = next.task(id).await.expect("kept");
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1));
    is_right(&record, 3, COUNT);
    next.stop().await;
}
