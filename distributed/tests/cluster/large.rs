//! Inputs that are too long for a frame, in a whole cluster.

use crate::common::{Echo, Runs, Worker, config, eventually, model, task};
use lgp_distributed::{
    Coordinator, CoordinatorConfig, Error, JournalError, Pki, TaskErrorKind, TaskId, TaskSpec,
    TaskState, WorkerConfig,
};
use lgp_memory::{NamedTensor, Tensor};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The digest and the shape of each input.
fn digests(inputs: &[NamedTensor]) -> Vec<NamedTensor> {
    let digest = |input: &NamedTensor| {
        let digest = Sha256::digest(input.tensor.as_bytes()).to_vec();
        let shape: Vec<i64> = input.tensor.shape().iter().map(|&d| d as i64).collect();
        let shape = Tensor::from_slice([shape.len()], &shape).unwrap();
        let digest = Tensor::from_slice([digest.len()], &digest).unwrap();
        [NamedTensor::new(&input.name, digest), NamedTensor::new("shape", shape)]
    };
    inputs.iter().flat_map(digest).collect()
}

fn inputs(counts: &[usize]) -> Vec<NamedTensor> {
    let input = |&count: &usize| {
        let values: Vec<u32> = (0..count as u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
        NamedTensor::new(format!("x{count}"), Tensor::from_slice([1, count], &values).unwrap())
    };
    counts.iter().map(input).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_beyond_a_frame_arrive_whole() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let _worker = Worker::start(&coordinator, &pki, "w", 2, &Arc::new(Runs(digests)));
    // One tensor of 100 MiB, and several of 64 MiB and four bytes in total; the last ones fit.
    let cases = [&[26_214_400][..], &[9_000_000, 1, 0, 7_777_216], &[9_000_000, 7_777_216]];
    let submitted: Vec<_> = cases
        .into_iter()
        .map(|counts| {
            let inputs = inputs(counts);
            let expected = digests(&inputs);
            (coordinator.submit(TaskSpec::new(model("hash"), inputs)).unwrap(), expected)
        })
        .collect();
    for (id, expected) in submitted {
        let record = coordinator.wait(id).await.unwrap();
        assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
        assert_eq!(record.outputs, Some(expected));
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn inputs_beyond_the_settings_are_refused() {
    let pki = Pki::generate().unwrap();
    let config = CoordinatorConfig { input_bytes_max: 11, ..config() };
    let coordinator = Coordinator::start(config, &pki).await.unwrap();
    for durable in [false, true] {
        let spec = TaskSpec { durable, ..task("echo") };
        let error = coordinator.submit_all(vec![(spec, Vec::new())]).await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { given: 12, limit: 11, .. }), "{error}");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn a_task_beyond_all_workers_settings_fails_and_says_why() {
    let pki = Pki::generate().unwrap();
    let coordinator = Coordinator::start(config(), &pki).await.unwrap();
    let identity = pki.issue_worker("w").unwrap();
    let mut settings = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
    settings.input_bytes_max = 64 << 20;
    let _worker = Worker::with(settings, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let spec = TaskSpec::new(model("echo"), inputs(&[(16 << 20) + 1]));
    let record = coordinator.run(spec.clone()).await.unwrap();
    let error = record.error.expect("it takes less");
    assert_eq!((error.code, record.attempts), (TaskErrorKind::TooLarge, 0));
    assert!(error.message.contains("at most 67108864 are accepted"), "{error}");
    // Another worker takes the task, even if the first one is idle.
    let _large = Worker::start(&coordinator, &pki, "large", 1, &Echo::open());
    coordinator.wait_for_workers(2).await.unwrap();
    let record = coordinator.run(spec).await.unwrap();
    assert_eq!(record.worker.expect("it ran").as_str(), "large");
    coordinator.stop().await;
}

/// A way to damage a file.
type Damage = fn(&Path);

/// A coordinator's folder with a journal and large inputs.
struct Kept {
    folder: tempfile::TempDir,
    pki: Pki,
}

impl Kept {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), pki: Pki::generate().unwrap() }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("tasks.journal")
    }

    fn inputs(&self) -> PathBuf {
        self.folder.path().join("tasks.journal.inputs")
    }

    async fn start(&self, journal: PathBuf) -> Coordinator {
        let config = CoordinatorConfig { journal: Some(journal), ..config() };
        Coordinator::start(config, &self.pki).await.unwrap()
    }

    fn work(&self, coordinator: &Coordinator) -> Worker {
        Worker::start(coordinator, &self.pki, "w", 2, &Arc::new(Runs(digests)))
    }

    /// Submits a durable task with `count` numbers.
    async fn submit(&self, coordinator: &Coordinator, count: usize) -> TaskId {
        let spec = TaskSpec::new(model("hash"), inputs(&[count]));
        let spec = TaskSpec { durable: true, ..spec };
        coordinator.submit_all(vec![(spec, Vec::new())]).await.unwrap()[0]
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_inputs_beyond_a_frame_survive_and_go_with_their_task() {
    let kept = Kept::new();
    let count = 26_214_400;
    let first = kept.start(kept.journal()).await;
    let id = kept.submit(&first, count).await;
    let found = files(&kept.inputs());
    assert_eq!(found.len(), 1, "{found:?}");
    let written = std::fs::read(&found[0]).unwrap();
    let expected = digests(&inputs(&[count]));
    let name = found[0].file_name().unwrap().to_str().unwrap();
    let digest: String = Sha256::digest(&written).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(name, digest);
    assert_eq!(expected[0].tensor.as_bytes(), &Sha256::digest(&written)[..]);
    assert!(first.journal_bytes().unwrap() < 10 << 20, "the journal has a reference");
    let copy = kept.folder.path().join("copy");
    first.back_up(copy.clone()).await.unwrap();
    first.stop().await;

    // Files that a crash left have no owner.
    for left in ["00".repeat(32), format!("{name}#1"), "else".into()] {
        std::fs::write(kept.inputs().join(left), "left").unwrap();
    }
    // The copy has its own inputs.
    let of_copy = kept.folder.path().join("copy.inputs");
    for (journal, folder) in [(kept.journal(), kept.inputs()), (copy, of_copy)] {
        let next = kept.start(journal).await;
        assert_eq!(files(&folder), [folder.join(name)]);
        let _worker = kept.work(&next);
        let record = next.wait(id).await.unwrap();
        assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
        assert_eq!(record.outputs.as_ref(), Some(&expected));
        eventually("its inputs go", || files(&folder).is_empty().then_some(())).await;
        next.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_inputs_that_are_lost_fail_their_task_and_nobody_else() {
    let kept = Kept::new();
    let first = kept.start(kept.journal()).await;
    let mut damage: Vec<(TaskId, Damage, &str)> = Vec::new();
    let mut known = Vec::new();
    let cases: [(Damage, &str); 4] = [
        (|path| std::fs::remove_file(path).unwrap(), "cannot be used: "),
        (
            |path| {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                file.set_len(70_000_000).unwrap();
            },
            "it has 70000000 bytes, expected",
        ),
        (
            |path| {
                let mut bytes = std::fs::read(path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(path, bytes).unwrap();
            },
            "another digest than its name",
        ),
        (|_| (), ""),
    ];
    for (at, (change, part)) in cases.into_iter().enumerate() {
        let id = kept.submit(&first, 17_600_000 + at).await;
        let new = files(&kept.inputs()).into_iter().find(|path| !known.contains(path)).unwrap();
        known.push(new);
        damage.push((id, change, part));
    }
    first.stop().await;
    for (path, (_, change, _)) in known.iter().zip(&damage) {
        change(path);
    }
    let second = kept.start(kept.journal()).await;
    let _worker = kept.work(&second);
    for (id, _, part) in damage {
        let record = second.wait(id).await.unwrap();
        match record.error {
            None => assert_eq!(part, "", "{:?}", record.state),
            Some(error) => {
                assert_eq!(error.code, TaskErrorKind::InputsLost, "{error}");
                assert!(!part.is_empty() && error.message.contains(part), "{part}: {error}");
            }
        }
        assert_eq!(record.attempts, 1, "{part}: no other attempt would find them");
    }
    assert_eq!(second.stats().retries, 0, "the worker is not to blame");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_inputs_that_cannot_be_written_are_refused() {
    let kept = Kept::new();
    let coordinator = kept.start(kept.journal()).await;
    let submit = async || {
        let spec = TaskSpec::new(model("hash"), inputs(&[17_600_000]));
        let spec = TaskSpec { durable: true, ..spec };
        coordinator.submit_all(vec![(spec, Vec::new())]).await
    };
    std::fs::remove_dir(kept.inputs()).unwrap();
    std::fs::write(kept.inputs(), "in the way").unwrap();
    let refused = submit().await;
    assert!(matches!(refused, Err(Error::NotSaved { .. })), "{refused:?}");
    assert_eq!(coordinator.stats().tasks.submitted, 0);
    std::fs::remove_file(kept.inputs()).unwrap();
    std::fs::create_dir(kept.inputs()).unwrap();
    let ids = submit().await.unwrap();
    assert_eq!(files(&kept.inputs()).len(), 1);
    // Cancelled tasks no longer need their inputs.
    coordinator.cancel(ids[0]).await.unwrap();
    eventually("its inputs go", || files(&kept.inputs()).is_empty().then_some(())).await;
    coordinator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_inputs_stay_until_the_last_task_that_has_them_ends() {
    let kept = Kept::new();
    let count = 17_600_000;
    let first = kept.start(kept.journal()).await;
    let ids = [kept.submit(&first, count).await, kept.submit(&first, count).await];
    assert_ne!(ids[0], ids[1]);
    assert_eq!(files(&kept.inputs()).len(), 1, "equal inputs lie there once");
    first.cancel(ids[0]).await.unwrap();
    first.stop().await;
    let second = kept.start(kept.journal()).await;
    let third = kept.submit(&second, count).await;
    second.cancel(third).await.unwrap();
    assert_eq!(files(&kept.inputs()).len(), 1);
    let _worker = kept.work(&second);
    let record = second.wait(ids[1]).await.unwrap();
    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
    assert_eq!(record.outputs, Some(digests(&inputs(&[count]))));
    eventually("its inputs go", || files(&kept.inputs()).is_empty().then_some(())).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_task_with_the_same_lost_inputs_is_told() {
    let kept = Kept::new();
    let damage: [Damage; 2] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| {
            let mut bytes = std::fs::read(path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(path, bytes).unwrap();
        },
    ];
    for change in damage {
        let coordinator = kept.start(kept.journal()).await;
        let count = 17_600_000;
        let ids = [kept.submit(&coordinator, count).await, kept.submit(&coordinator, count).await];
        change(&files(&kept.inputs())[0]);
        let _worker = kept.work(&coordinator);
        for id in ids {
            let record = coordinator.wait(id).await.unwrap();
            let error = record.error.expect("its inputs are lost");
            assert_eq!((error.code, record.attempts), (TaskErrorKind::InputsLost, 1), "{error}");
        }
        coordinator.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_touches_no_other_copys_inputs() {
    let kept = Kept::new();
    let coordinator = kept.start(kept.journal()).await;
    kept.submit(&coordinator, 17_600_000).await;
    let (copy, beside) = (kept.folder.path().join("copy"), kept.folder.path().join("copy.inputs"));
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("another's"), "kept").unwrap();
    let refused = coordinator.back_up(copy.clone()).await;
    let Err(Error::Journal(JournalError::Exists { path })) = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(path, &beside);
    assert_eq!(std::fs::read(beside.join("another's")).unwrap(), b"kept");
    assert_eq!(files(&beside).len(), 1);
    assert!(!copy.exists() && !kept.folder.path().join("copy.new").exists());
    std::fs::remove_dir_all(&beside).unwrap();
    coordinator.back_up(copy.clone()).await.unwrap();
    assert!(copy.exists());
    assert_eq!(files(&beside).len(), 1);
    // A refused copy leaves none of its own files, and keeps the existing ones.
    let refused = coordinator.back_up(copy.clone()).await;
    assert!(matches!(refused, Err(Error::Journal(JournalError::Exists { .. }))), "{refused:?}");
    assert_eq!(files(&beside).len(), 1);
    coordinator.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_copy_that_was_cut_off_is_replaced() {
    use rustix::fs::{CWD, Mode, mkfifoat};
    let kept = Kept::new();
    let coordinator = kept.start(kept.journal()).await;
    let id = kept.submit(&coordinator, 17_600_000).await;
    let names = ["copy", "copy.inputs", "copy.new", "copy.inputs.new"];
    let [copy, beside, half, half_beside] = names.map(|name| kept.folder.path().join(name));
    let there = || [&copy, &beside, &half, &half_beside].map(|path| path.exists());
    // Opening the pipe blocks, which holds the copy up halfway.
    let pipe = kept.inputs().join("pipe");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let copying = tokio::spawn({
        let (coordinator, copy) = (coordinator.clone(), copy.clone());
        async move { coordinator.back_up(copy).await }
    });
    let begun = || (beside.exists() || half_beside.exists()).then_some(());
    eventually("inputs are copied", begun).await;
    let left = there();
    // Released before any assertion, because a failed test would wait for the copy.
    let end = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let refused = copying.await.unwrap();
    drop(end);
    assert_eq!(left, [false, false, true, true], "nothing has its name yet");
    assert!(matches!(refused, Err(Error::Journal(JournalError::Io { .. }))), "{refused:?}");
    assert_eq!(there(), [false; 4], "one that fails leaves nothing");

    // The state that a process killed at that point would leave.
    std::fs::remove_file(&pipe).unwrap();
    std::fs::write(&half, "half a journal").unwrap();
    std::fs::create_dir(&half_beside).unwrap();
    std::fs::write(half_beside.join("half"), "some inputs").unwrap();
    coordinator.back_up(copy.clone()).await.unwrap();
    assert_eq!(there(), [true, true, false, false]);
    coordinator.stop().await;
    let [copied, own] = [&beside, &kept.inputs()].map(|folder| files(folder));
    assert_eq!((copied.len(), own.len()), (1, 1), "{copied:?} {own:?}");
    assert_eq!(copied[0].file_name(), own[0].file_name());
    assert!(std::fs::read(&copied[0]).unwrap() == std::fs::read(&own[0]).unwrap());
    let next = kept.start(copy).await;
    assert_eq!(next.task(id).await.unwrap().task_id, id);
    next.stop().await;
}
