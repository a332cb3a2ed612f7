//! A journal's file in its folder: it appears complete or not at all, and has one user at a time.

use crate::error::JournalError;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens and locks the file at `path`, or answers `None` where there is none.
///
/// # Errors
/// [`JournalError::InUse`] while another has it open, [`JournalError::Io`].
pub(super) fn open(path: &Path) -> Result<Option<Arc<dyn StorageBackend>>, JournalError> {
    match options().open(path) {
        Ok(file) => lock(path, file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, error)),
    }
}

/// A file that gets its name once its contents are complete.
#[derive(Debug)]
pub(super) struct Unnamed {
    /// Where it will be.
    path: PathBuf,
    /// Where it is so far; what a crash leaves there is overwritten next time.
    made_at: PathBuf,
    /// Its contents, locked.
    pub(super) file: Arc<dyn StorageBackend>,
}

impl Unnamed {
    /// An empty file beside `path`.
    ///
    /// # Errors
    /// [`JournalError::Exists`] when there is one at `path`, [`JournalError::InUse`] while another
    /// makes one, [`JournalError::Io`].
    pub(super) fn new(path: &Path) -> Result<Self, JournalError> {
        let exists = || path.symlink_metadata().is_ok();
        let refused = || JournalError::Exists { path: path.to_path_buf() };
        if exists() {
            return Err(refused());
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let made_at = path.with_file_name(name);
        let wrong = |error| failed(&made_at, error);
        let opened = options().create(true).open(&made_at).map_err(wrong)?;
        let found = opened.metadata().map_err(wrong)?;
        let mut file = lock(path, opened)?;
        // Looked for again under the lock: whoever had it before may have named the file since.
        if exists() {
            let _ = file.close();
            return Err(refused());
        }
        if has_another_name(path, &made_at, &found)? {
            // The lock of the one is held until there is that of the other.
            fs::remove_file(&made_at).map_err(wrong)?;
            let opened = options().create_new(true).open(&made_at).map_err(wrong)?;
            file = lock(path, opened)?;
        }
        file.set_len(0).map_err(wrong)?;
        Ok(Self { path: path.to_path_buf(), made_at, file })
    }

    /// Gives it its name, durably, and answers its contents, still locked.
    ///
    /// # Errors
    /// [`JournalError::Exists`] when the name was taken meanwhile, [`JournalError::Io`].
    pub(super) fn name(self) -> Result<Arc<dyn StorageBackend>, JournalError> {
        self.file.sync_data().map_err(|e| failed(&self.made_at, e))?;
        // A link, unlike a renaming, never replaces what is there; not every file system has one.
        let made = match fs::hard_link(&self.made_at, &self.path) {
            Ok(()) => fs::remove_file(&self.made_at),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let _ = fs::remove_file(&self.made_at);
                return Err(JournalError::Exists { path: self.path });
            }
            Err(_) => Ok(fs::rename(&self.made_at, &self.path).map_err(|e| failed(&self.path, e))?),
        };
        made.and_then(|()| sync_folder(&self.path)).map_err(|error| {
            // Whoever is told that it failed must not find it.
            let _ = fs::remove_file(&self.path);
            failed(&self.path, error)
        })?;
        Ok(self.file)
    }

    /// Leaves nothing behind.
    pub(super) fn discard(self) {
        let _ = fs::remove_file(&self.made_at);
        let _ = self.file.close();
    }
}

/// Whether the file that was found at `made_at`, and is locked, has its own name too: a crash came
/// between the two steps of naming it, it was moved since, and it is not to be emptied.
///
/// # Errors
/// [`JournalError::InUse`] where another file is there by now, [`JournalError::Io`].
#[cfg(unix)]
fn has_another_name(
    path: &Path,
    made_at: &Path,
    found: &fs::Metadata,
) -> Result<bool, JournalError> {
    use std::os::unix::fs::MetadataExt;
    let now = fs::metadata(made_at).map_err(|e| failed(made_at, e))?;
    match (now.dev(), now.ino()) == (found.dev(), found.ino()) {
        true => Ok(now.nlink() > 1),
        false => Err(JournalError::InUse { path: path.to_path_buf() }),
    }
}

/// Elsewhere nothing tells how many names a file has.
#[cfg(not(unix))]
fn has_another_name(_: &Path, _: &Path, _: &fs::Metadata) -> Result<bool, JournalError> {
    Ok(false)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn lock(path: &Path, file: File) -> Result<Arc<dyn StorageBackend>, JournalError> {
    let file = FileBackend::new(file).map_err(|e| failed(path, io::Error::other(e)))?;
    match file.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
        Ok(true) => Ok(Arc::new(file)),
        Ok(false) => Err(JournalError::InUse { path: path.to_path_buf() }),
        Err(error) => Err(failed(path, error.into())),
    }
}

/// Makes names in the folder of `path` durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

fn failed(path: &Path, error: io::Error) -> JournalError {
    super::trouble::io_error(path, Arc::new(error))
}
