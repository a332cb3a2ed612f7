//! A cluster in a temporary folder, on which `demo` and `bench` run.

use crate::cluster::{self, Cluster, Plan, Signals};
use crate::failure::{Failure, Result};
use crate::logging::LogFormat;
use crate::loopback::NO_LOOPBACK;
use crate::settings::{self, Keeping, Limits};
use crate::simd::Simd;
use lgp_sdk::device::DeviceId;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A free port of the loopback interface.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Plan {
    /// Local workers only, with default settings.
    ///
    /// # Errors
    /// When the environment names unknown vector instructions.
    pub(crate) fn temporary(data: PathBuf, device: DeviceId, workers: usize) -> Result<Self> {
        Ok(Self {
            data,
            quic: ANY_PORT,
            control: None,
            blobs: None,
            reached_at: None,
            devices: vec![device],
            model_memory: None,
            workers,
            simd: Simd::resolve(None, settings::environment)?,
            log_format: LogFormat::Text,
            limits: Limits::default(),
            run_limit_s: 0,
            keeping: Keeping::default(),
            certificate_life: settings::CERTIFICATE_LIFE,
            absence_max: settings::ABSENCE_MAX,
        })
    }
}

/// The prefix of temporary folders' names.
const PREFIX: &str = "radeon-cluster-temporary-";
/// The file in each folder that its process locks.
const LOCK_FILE: &str = "owner.lock";
/// More time than any process takes between making its folder and locking the file.
const LOCKED_WITHIN: Duration = Duration::from_secs(3600);

/// A folder that is removed with its process or, if the process was killed, by the next process. Make it before
/// [`block_on`]: interrupted work may write until the runtime has ended, and files written into a folder while it is
/// removed stay behind.
pub(crate) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// Makes a folder, and removes folders that killed processes of this account left.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn new() -> Result<Self> {
        Self::below(&std::env::temp_dir())
            .map_err(|error| Failure::new("io", format!("cannot make a temporary folder: {error}")))
    }

    fn below(parent: &Path) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // The file is locked before it gets its name.
        let locked = tempfile::NamedTempFile::new_in(folder.path())?;
        locked.as_file().lock()?;
        let lock = locked.persist(folder.path().join(LOCK_FILE))?;
        let account = folder.path().metadata()?.uid();
        // The temporary directory may not be listable; then nothing is removed.
        for left in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let is_one = left.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
            // Of the entry itself: a link leads elsewhere.
            let is_own = left.metadata().is_ok_and(|it| it.is_dir() && it.uid() == account);
            if is_one && is_own && is_left(&left.path()) {
                // A folder that stays is tried again next time.
                let _ = std::fs::remove_dir_all(left.path());
            }
        }
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a folder within it.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn within(&self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        std::fs::create_dir(&path).map_err(|error| Failure::file("make", &path, &error))?;
        Ok(path)
    }
}

/// Whether the folder's process has gone.
fn is_left(folder: &Path) -> bool {
    match File::open(folder.join(LOCK_FILE)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let changed = folder.metadata().and_then(|about| about.modified());
            let age = changed.ok().and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age > LOCKED_WITHIN)
        }
        Err(_) => false,
    }
}

/// Starts a cluster in `data`, works with it and ends it.
///
/// # Errors
/// Those of [`Cluster::launch`] and of `work`; `interrupted`.
pub(crate) async fn with<T>(
    (data, device, workers): (&Path, DeviceId, usize),
    signals: &mut Signals,
    work: impl AsyncFnOnce(&Cluster, &mut Signals) -> Result<T>,
) -> Result<T> {
    let plan = Plan::temporary(data.to_owned(), device, workers)?;
    let launch = signals.until(Cluster::launch(&plan, plan.authority()?, None)).await;
    // The hint does not name the log, which is removed with the temporary folder.
    let told =
        |failure: Failure| match failure == Failure::interrupted() || failure.code == NO_LOOPBACK {
            true => failure,
            false => failure.hint("radeon-cluster doctor checks this machine"),
        };
    let cluster = launch.map_err(told)?;
    let result = work(&cluster, signals).await;
    cluster.shut_down().await;
    result
}

/// Runs `work` with a runtime, signal handling and logging of errors only. On return no part of the runtime writes any
/// more.
///
/// # Errors
/// Those of `work`.
pub(crate) fn block_on<T>(work: impl AsyncFnOnce(&mut Signals) -> Result<T>) -> Result<T> {
    crate::logging::init("error", LogFormat::Text);
    cluster::runtime()?.block_on(async {
        // Listen before a driver is loaded: some drivers handle signals too, and then end the process.
        let mut signals = Signals::listen()?;
        work(&mut signals).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_removed() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let make = |name: &str, file: Option<&str>| {
            let folder = parent.path().join(name);
            std::fs::create_dir(&folder).expect("ours");
            file.map(|file| File::create(folder.join(file)).expect("ours"));
            folder
        };
        let left = make("radeon-cluster-temporary-left", Some(LOCK_FILE));
        // The process has made its folder but not the lock yet.
        let young = make("radeon-cluster-temporary-young", None);
        let old = make("radeon-cluster-temporary-old", None);
        let long_ago = std::time::SystemTime::now() - 2 * LOCKED_WITHIN;
        let aged = File::open(&old).and_then(|folder| folder.set_modified(long_ago));
        aged.expect("ours");
        let other = make("else", Some(LOCK_FILE));
        let link = parent.path().join("radeon-cluster-temporary-link");
        std::os::unix::fs::symlink(&other, &link).expect("ours");
        let first = Folder::below(parent.path()).expect("ours");
        let second = Folder::below(parent.path()).expect("ours");
        assert!(!left.exists() && !old.exists());
        assert!([first.path(), second.path(), &young, &other, &link].iter().all(|it| it.exists()));
        let within = first.within("a").expect("nothing is there");
        assert!(within.is_dir() && first.within("a").is_err());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}
