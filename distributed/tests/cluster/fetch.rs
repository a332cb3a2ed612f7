//! Workers without models fetch them, resume broken transfers, and verify what they received.

use crate::common::{Echo, Worker, config, task};
use lgp_distributed::{
    BlobFile, BlobPart, BlobSource, Coordinator, ExecError, ExecErrorKind, Executor,
    ExecutorStatus, ModelCache, ModelRef, Pki, Services, Stop, TaskState,
};
use lgp_memory::NamedTensor;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Models by their digests, each in two files.
struct Registry(BTreeMap<String, Vec<BlobFile>>);

impl BlobSource for Registry {
    fn find(&self, sha256: &str) -> std::io::Result<Option<Vec<BlobFile>>> {
        assert!(sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit()));
        Ok(self.0.get(sha256).cloned())
    }
}

type Kept = (Vec<u8>, Vec<BlobPart>);

/// An executor that fetches models, and runs them as an echo.
struct Fetching {
    echo: Arc<Echo>,
    folder: PathBuf,
    /// The received models, by digest.
    kept: Mutex<BTreeMap<String, Kept>>,
    /// The announced sizes in bytes.
    announced: Mutex<Vec<u64>>,
    bytes_max: u64,
}

impl ModelCache for Fetching {
    fn lacks(&self, model: &ModelRef) -> Option<PathBuf> {
        let kept = self.kept.lock().unwrap().contains_key(&model.sha256);
        (!kept).then(|| self.folder.join(&model.sha256))
    }

    fn make_room(&self, _: &ModelRef, bytes: u64) -> Result<(), ExecError> {
        self.announced.lock().unwrap().push(bytes);
        if bytes <= self.bytes_max { Ok(()) } else { Err(ExecError::unavailable("no room")) }
    }

    fn keep(&self, model: &ModelRef, path: &Path, parts: &[BlobPart]) -> Result<(), ExecError> {
        let bytes = std::fs::read(path).unwrap();
        self.kept.lock().unwrap().insert(model.sha256.clone(), (bytes, parts.to_vec()));
        std::fs::remove_file(path).unwrap();
        Ok(())
    }
}

impl Executor for Fetching {
    fn load(&self, device: usize, model: &ModelRef) -> Result<(), ExecError> {
        assert!(self.lacks(model).is_none(), "loaded before it was there");
        self.echo.load(device, model)
    }
    fn unload(&self, device: usize, model: &ModelRef) {
        self.echo.unload(device, model);
    }
    fn execute(
        &self,
        device: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        assert!(self.lacks(model).is_none(), "executed before it was there");
        self.echo.execute(device, model, inputs, stop)
    }
    fn status(&self) -> ExecutorStatus {
        self.echo.status()
    }
    fn cache(&self) -> Option<&dyn ModelCache> {
        Some(self)
    }
}

struct Rig {
    coordinator: Coordinator,
    pki: Pki,
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
    model: ModelRef,
}

/// A coordinator with one model of five million bytes.
async fn rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> =
        (0..5_000_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let sha256: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let parts = [("model.onnx", &bytes[..3_000_001]), ("weights/w.bin", &bytes[3_000_001..])];
    let mut files = Vec::new();
    for (number, (name, part)) in parts.into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, part).unwrap();
        files.push(BlobFile { name: name.into(), path });
    }
    // The registered file changed since.
    let changed = folder.path().join("changed");
    std::fs::write(&changed, b"other bytes").unwrap();
    let changed = vec![BlobFile { name: "model.onnx".into(), path: changed }];
    let stray = vec![BlobFile { name: "../model.onnx".into(), path: folder.path().join("0") }];
    let registry = [(sha256.clone(), files), ("0".repeat(64), changed), ("1".repeat(64), stray)];
    let models: Arc<dyn BlobSource> = Arc::new(Registry(registry.into()));
    let pki = Pki::generate().unwrap();
    let services = Services { models: Some(models), ..Services::default() };
    let coordinator = Coordinator::start_with(config(), &pki, services).await.unwrap();
    let model = ModelRef { name: "echo".into(), version: 1, sha256 };
    Rig { coordinator, pki, folder, bytes, model }
}

impl Rig {
    fn executor(&self) -> Arc<Fetching> {
        Arc::new(Fetching {
            echo: Echo::open(),
            folder: self.folder.path().join("partial"),
            kept: Mutex::default(),
            announced: Mutex::default(),
            bytes_max: 10_000_000,
        })
    }

    fn start(&self, executor: &Arc<Fetching>) -> Worker {
        Worker::start(&self.coordinator, &self.pki, "far", 1, executor)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_fetches_what_it_is_told_to_load() {
    let rig = rig().await;
    let executor = rig.executor();
    let _worker = rig.start(&executor);
    rig.coordinator.wait_for_workers(1).await.unwrap();
    let report = rig.coordinator.load(rig.model.clone()).await.unwrap();
    assert_eq!(report.into_iter().map(|(_, r)| r).collect::<Vec<_>>(), [Ok(())]);
    let (bytes, parts) = executor.kept.lock().unwrap()[&rig.model.sha256].clone();
    assert!(bytes == rig.bytes);
    let parts: Vec<_> = parts.iter().map(|p| (p.name.as_str(), p.bytes)).collect();
    assert_eq!(parts, [("model.onnx", 3_000_001), ("weights/w.bin", 1_999_999)]);
    let mut spec = task("echo");
    spec.model = rig.model.clone();
    assert_eq!(rig.coordinator.run(spec).await.unwrap().state, TaskState::Succeeded);
    assert_eq!(*executor.announced.lock().unwrap(), [5_000_000], "fetched once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_goes_on_where_it_was_cut_off() {
    let rig = rig().await;
    for (left, announced) in [
        (rig.bytes[..4_000_000].to_vec(), vec![1_000_000]),
        (rig.bytes[..3_000_001].to_vec(), vec![1_999_999]),
        (rig.bytes.clone(), vec![0]),
        // Bytes of another file are detected at the end; then the transfer starts anew.
        (vec![7; 4_999_999], vec![1, 5_000_000]),
        (vec![7; 6_000_000], vec![5_000_000]),
    ] {
        let executor = rig.executor();
        std::fs::create_dir_all(&executor.folder).unwrap();
        std::fs::write(executor.folder.join(&rig.model.sha256), &left).unwrap();
        let _worker = rig.start(&executor);
        rig.coordinator.wait_for_workers(1).await.unwrap();
        let mut spec = task("echo");
        spec.model = rig.model.clone();
        // The model is not loaded yet, so it is fetched for the task.
        assert_eq!(rig.coordinator.run(spec).await.unwrap().state, TaskState::Succeeded);
        assert!(executor.kept.lock().unwrap()[&rig.model.sha256].0 == rig.bytes);
        assert_eq!(*executor.announced.lock().unwrap(), announced, "{} were left", left.len());
        rig.coordinator.shutdown_worker("far").unwrap();
        while !rig.coordinator.workers().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_fetched_is_said() {
    let rig = rig().await;
    let executor = rig.executor();
    let _worker = rig.start(&executor);
    rig.coordinator.wait_for_workers(1).await.unwrap();
    for (sha256, kind, part) in [
        ("0".repeat(64), ExecErrorKind::Unavailable, "its digest is"),
        ("1".repeat(64), ExecErrorKind::Failed, "oddly"),
        ("2".repeat(64), ExecErrorKind::ModelNotFound, "the coordinator has no files"),
        ("../../../etc/passwd".into(), ExecErrorKind::ModelNotFound, "has no digest"),
        (String::new(), ExecErrorKind::ModelNotFound, "has no digest"),
    ] {
        let model = ModelRef { name: "bad".into(), version: 1, sha256: sha256.clone() };
        let report = rig.coordinator.load(model.clone()).await.unwrap();
        let (_, result) = report.first().expect("one worker");
        let error = result.as_ref().expect_err(&sha256);
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(part), "{error}");
        rig.coordinator.unload(&model);
    }
    assert!(executor.kept.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_room_is_not_taken() {
    let rig = rig().await;
    let executor = rig.executor();
    let executor = Arc::new(Fetching { bytes_max: 1, ..Arc::into_inner(executor).unwrap() });
    let _worker = rig.start(&executor);
    rig.coordinator.wait_for_workers(1).await.unwrap();
    let report = rig.coordinator.load(rig.model.clone()).await.unwrap();
    assert!(report[0].1.as_ref().is_err_and(|e| e.message == "no room"), "{report:?}");
    let collected = std::fs::metadata(executor.folder.join(&rig.model.sha256)).unwrap();
    assert_eq!(collected.len(), 0, "nothing was fetched");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_shares_the_files_fetches_nothing() {
    let rig = rig().await;
    let _worker = Worker::start(&rig.coordinator, &rig.pki, "near", 1, &Echo::open());
    rig.coordinator.wait_for_workers(1).await.unwrap();
    let report = rig.coordinator.load(rig.model.clone()).await.unwrap();
    assert!(report[0].1.is_ok());
}
