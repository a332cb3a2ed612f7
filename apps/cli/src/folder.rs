//! The data folder: who owns it, and where its coordinator can be reached.
//!
//! A file lock tells who owns the folder. The system releases it when its process ends, so the folder of a killed owner
//! is free at once, whatever files the owner left behind.

use crate::failure::{Failure, Result};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where a running coordinator can be reached: what `start` prints and the runtime file holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    /// The coordinator's process.
    pub(crate) pid: u32,
    /// Base URL of the REST interface.
    pub(crate) http: String,
    /// Base URL of the REST interface for programs of this machine, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) local: Option<String>,
    /// The fingerprint by which other machines recognise the authority behind the REST certificate, where that is the
    /// cluster's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    /// Base URL of the gRPC interface, once there is one.
    pub(crate) grpc: Option<String>,
    /// The address for workers.
    pub(crate) quic: String,
    /// The address of Frigate's detector, if it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) frigate: Option<String>,
    /// The address of Immich's machine learning, if it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) immich: Option<String>,
    /// The data folder.
    pub(crate) data: PathBuf,
}

/// The name of the runtime file in the data folder.
const RUNTIME_FILE: &str = "coordinator.json";
const LOCK_FILE: &str = "coordinator.lock";

/// The coordinator's log in the data folder.
pub(crate) fn log_file(data: &Path) -> PathBuf {
    data.join("coordinator.log")
}

/// The key with which the data folder's owner may do everything.
pub(crate) fn local_key(data: &Path) -> PathBuf {
    data.join("local.key")
}

/// The log of administrators' actions.
pub(crate) fn audit_log(data: &Path) -> PathBuf {
    data.join("audit.log")
}

/// The log of local workers in the data folder.
pub(crate) fn worker_log(data: &Path) -> PathBuf {
    data.join("workers.log")
}

/// The logs in the data folder, of the coordinator and of its local workers.
pub(crate) fn logs(data: &Path) -> Vec<PathBuf> {
    vec![log_file(data), worker_log(data)]
}

/// The journal of durable tasks in the data folder.
pub(crate) fn journal(data: &Path) -> PathBuf {
    data.join("tasks.journal")
}

/// Whether the data folder has durable tasks that were not migrated elsewhere.
pub(crate) fn has_own_tasks(data: &Path) -> bool {
    let marker = std::fs::read(pki(data).join("migration.json")).unwrap_or_default();
    let marker: serde_json::Value = serde_json::from_slice(&marker).unwrap_or_default();
    journal(data).exists() && marker["state"] != "moved"
}

/// The model repository in the data folder.
pub(crate) fn models(data: &Path) -> PathBuf {
    data.join("models")
}

/// The certificate authority and the join tokens in the data folder.
pub(crate) fn pki(data: &Path) -> PathBuf {
    data.join("pki")
}

/// Whether a folder is, or was, a coordinator's data folder.
pub(crate) fn is_coordinators(data: &Path) -> bool {
    [pki(data), data.join(LOCK_FILE)].iter().any(|path| path.exists())
}

/// The file of a registered model.
pub(crate) fn model_file(data: &Path, name: &str, version: u64) -> PathBuf {
    models(data).join(name).join(version.to_string()).join("model.onnx")
}

/// Makes a data folder that its owner alone can look into, unless there is one.
///
/// # Errors
/// `folder_not_private` where every account can write to an existing folder: files that others put there, keys and
/// models too, would pass for the owner's.
pub(crate) fn make(data: &Path) -> Result<()> {
    let failed = |error| Failure::file("make the data folder", data, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    let metadata = data.metadata().map_err(failed)?;
    let mode = metadata.mode();
    let shown = data.display();
    if mode & 0o002 != 0 {
        let message = format!("every account of this machine can write to the data folder {shown}");
        let account = rustix::process::geteuid().as_raw();
        let hint = how_to_close(data, &metadata, account);
        return Err(Failure::new("folder_not_private", message).hint(hint));
    }
    if mode & 0o020 != 0 {
        tracing::warn!(folder = %shown, "accounts of its group can write to the data folder");
    }
    Ok(())
}

/// A hint for an account on a folder that every account can write to.
fn how_to_close(data: &Path, metadata: &Metadata, account: u32) -> String {
    let shown = data.display();
    match metadata.uid() == account && !is_mount(data, metadata) {
        true => format!("close it with: chmod go-w {shown}; or choose another --data folder"),
        false => format!("choose a folder within it, as in: --data {shown}/cluster"),
    }
}

/// Whether a folder is a mount point. The mount sets the mode of such a folder.
fn is_mount(folder: &Path, metadata: &Metadata) -> bool {
    folder.join("..").metadata().is_ok_and(|above| above.dev() != metadata.dev())
}

/// The sole ownership of a data folder, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Ownership {
    data: PathBuf,
    _lock: File,
}

impl Ownership {
    /// Makes the folder if need be and takes it over.
    ///
    /// # Errors
    /// `already_running`, naming the owner's process, when another coordinator owns the folder.
    pub(crate) fn take(data: &Path) -> Result<Self> {
        make(data)?;
        let path = data.join(LOCK_FILE);
        let mut lock = open_lock(&path)?;
        if !try_lock(&lock, &path)? {
            return Err(already_running(data, &mut lock));
        }
        let pid = std::process::id().to_string();
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| lock.write_all(pid.as_bytes()))
            .map_err(|error| Failure::file("write", &path, &error))?;
        let ownership = Self { data: data.to_owned(), _lock: lock };
        if let Some(stale) = read(data)? {
            tracing::info!(pid = stale.pid, "taking over from a coordinator that died");
            ownership.withdraw();
        }
        Ok(ownership)
    }

    /// Publishes the coordinator's addresses atomically: readers see the whole file.
    pub(crate) fn publish(&self, endpoint: &Endpoint) -> Result<()> {
        let path = self.data.join(RUNTIME_FILE);
        let text = serde_json::to_vec(endpoint).map_err(Failure::internal)?;
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.data)?;
            file.write_all(&text)?;
            file.persist(&path)?;
            Ok(())
        };
        write().map_err(|error| Failure::file("write", &path, &error))
    }

    /// Removes the runtime file.
    pub(crate) fn withdraw(&self) {
        // A file that cannot be removed is stale to readers, because the lock is free.
        let _ = std::fs::remove_file(self.data.join(RUNTIME_FILE));
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// An account that can open the file could hold the lock, and pass for the coordinator.
fn open_lock(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let open = || -> std::io::Result<File> {
        let lock = options.open(path)?;
        if lock.metadata()?.mode() & 0o077 != 0 {
            // Some file systems give all their files the same mode.
            if let Err(error) = lock.set_permissions(Permissions::from_mode(0o600)) {
                tracing::warn!(file = %path.display(), %error, "other accounts can open the lock");
            }
        }
        Ok(lock)
    };
    open().map_err(|error| Failure::file("open", path, &error))
}

/// The account that the folder's coordinator belongs to.
pub(crate) fn owner(data: &Path) -> Result<u32> {
    let path = data.join(LOCK_FILE);
    let metadata = path.metadata().map_err(|error| Failure::file("look at", &path, &error))?;
    Ok(metadata.uid())
}

/// Retries for 200 ms: a client may hold the lock for an instant to see who owns the folder.
fn try_lock(lock: &File, path: &Path) -> Result<bool> {
    let deadline = Instant::now() + Duration::from_millis(200);
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(Failure::file("lock", path, &error)),
        }
    }
}

fn already_running(data: &Path, lock: &mut File) -> Failure {
    let mut pid = String::new();
    // Without the number the message still says what is wrong.
    let _ = lock.read_to_string(&mut pid);
    let data = data.display();
    Failure::new(
        "already_running",
        format!("a coordinator (pid {}) already runs on data folder {data}", pid.trim()),
    )
    .hint(format!(
        "stop it with: radeon-cluster stop --data {data}; or give this one another --data folder"
    ))
}

/// Whether a living coordinator owns the folder.
pub(crate) fn is_owned(data: &Path) -> bool {
    let Ok(lock) = File::open(data.join(LOCK_FILE)) else { return false };
    matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// The folder's coordinator, if one is ready.
///
/// # Errors
/// `not_running` when no coordinator lives.
pub(crate) fn running(data: &Path) -> Result<Endpoint> {
    match read(data)? {
        Some(endpoint) if is_owned(data) => Ok(endpoint),
        _ => Err(not_running(data)),
    }
}

/// The failure of every command that needs a coordinator where none runs.
pub(crate) fn not_running(data: &Path) -> Failure {
    let data = data.display();
    Failure::new("not_running", format!("no coordinator is running for data folder {data}"))
        .hint(format!("start one with: radeon-cluster start --data {data}"))
}

fn read(data: &Path) -> Result<Option<Endpoint>> {
    let path = data.join(RUNTIME_FILE);
    match std::fs::read(&path) {
        // A file that does not parse is not ours, and is ignored.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&path, &error)),
    }
}

/// The failure to read a runtime file.
fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::file("read", path, error);
    if error.kind() != ErrorKind::PermissionDenied {
        return failure;
    }
    failure.hint(
        "only the account that owns the data folder can read it; others name the coordinator with \
         --server URL, and with --key-file the file of a key made by radeon-cluster keys create",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_were_not_taken_along_are_seen() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path();
        assert!(!has_own_tasks(data));
        std::fs::write(journal(data), "tasks").expect("ours");
        assert!(has_own_tasks(data));
        std::fs::create_dir(pki(data)).expect("ours");
        for (state, expected) in [("moved", false), ("undone", true), ("whole", true)] {
            let marker = format!("{{\"state\": \"{state}\"}}");
            std::fs::write(pki(data).join("migration.json"), marker).expect("ours");
            assert_eq!(has_own_tasks(data), expected, "{state}");
        }
    }

    #[test]
    fn another_accounts_folder_has_its_coordinator_named_otherwise() {
        let hint = |kind: ErrorKind| unreadable(Path::new("coordinator.json"), &kind.into()).hint;
        let named = hint(ErrorKind::PermissionDenied).expect("what to do");
        assert!(named.contains("--server") && named.contains("--key-file"), "{named}");
        assert_eq!(hint(ErrorKind::InvalidData), None, "a key would not help");
    }

    fn endpoint(data: &Path) -> Endpoint {
        Endpoint {
            pid: 7,
            http: "http://127.0.0.1:1".to_owned(),
            local: None,
            fingerprint: None,
            grpc: None,
            quic: "127.0.0.1:2".to_owned(),
            frigate: None,
            immich: None,
            data: data.to_owned(),
        }
    }

    #[test]
    fn a_folder_has_one_owner() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("deep/inside");
        assert!(!is_owned(&data));
        assert_eq!(running(&data).expect_err("nobody runs").code, "not_running");

        let owner = Ownership::take(&data).expect("the folder is free");
        owner.publish(&endpoint(&data)).expect("the folder is ours");
        assert_eq!(running(&data).expect("it was published"), endpoint(&data));
        let refused = Ownership::take(&data).expect_err("the folder is taken");
        assert_eq!(refused.code, "already_running");
        assert!(refused.message.contains(&format!("pid {}", std::process::id())));

        drop(owner);
        assert_eq!(running(&data).expect_err("it is over").code, "not_running");
        Ownership::take(&data).expect("the folder is free again");
    }

    #[test]
    fn others_can_neither_look_into_a_folder_nor_hold_its_lock() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("deep/inside");
        let mode = |path: &Path| path.metadata().expect("it is there").mode() & 0o777;
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
        };
        drop(Ownership::take(&data).expect("the folder is free"));
        let lock = data.join(LOCK_FILE);
        assert_eq!((mode(&data), mode(&lock)), (0o700, 0o600));
        // A folder made by other means keeps its mode, as long as not every account can write there.
        set(&data, 0o775);
        set(&lock, 0o644);
        drop(Ownership::take(&data).expect("the folder is free"));
        assert_eq!((mode(&data), mode(&lock)), (0o775, 0o600));
        set(&data, 0o777);
        let refused = Ownership::take(&data).expect_err("anybody can write there");
        assert_eq!(refused.code, "folder_not_private");
        assert!(refused.hint.is_some_and(|hint| hint.contains("chmod go-w")));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_that_its_user_cannot_close_is_not_to_be_closed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let own = folder.path().metadata().expect("it is there");
        let root = Path::new("/proc").metadata().expect("it is there");
        for (path, metadata, account, is_closable) in [
            (folder.path(), &own, own.uid(), true),
            (folder.path(), &own, own.uid() + 1, false),
            (Path::new("/proc"), &root, root.uid(), false),
        ] {
            let hint = how_to_close(path, metadata, account);
            let inner = format!("--data {}/cluster", path.display());
            assert_eq!(hint.contains("chmod"), is_closable, "{hint}");
            assert_eq!(hint.contains(&inner), !is_closable, "{hint}");
        }
    }

    #[test]
    fn what_a_dead_owner_left_is_stale() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path();
        let text = serde_json::to_vec(&endpoint(data)).expect("plain data");
        std::fs::write(data.join(RUNTIME_FILE), text).expect("the folder is ours");
        std::fs::write(data.join(LOCK_FILE), "7").expect("the folder is ours");
        assert_eq!(running(data).expect_err("pid 7 holds no lock").code, "not_running");
        let owner = Ownership::take(data).expect("a dead owner does not count");
        assert!(!data.join(RUNTIME_FILE).exists(), "the stale file is gone");
        drop(owner);
    }
}
