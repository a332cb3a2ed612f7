//! A journal's file in its folder. The file appears complete or not at all, and one process uses it
//! at a time.

use crate::error::JournalError;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens and locks the file at `path`; `None` if it does not exist.
///
/// # Errors
/// [`JournalError::InUse`] while another process has it open, [`JournalError::Io`].
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
    /// The final path.
    path: PathBuf,
    /// The present path. A file that a crash left there is overwritten next time.
    made_at: PathBuf,
    /// The contents, locked.
    pub(super) file: Arc<dyn StorageBackend>,
}

impl Unnamed {
    /// Creates an empty file beside `path`.
    ///
    /// # Errors
    /// [`JournalError::Exists`] when `path` exists, [`JournalError::InUse`] while another process
    /// creates it, [`JournalError::Io`].
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
        // Check again under the lock: its previous holder may have named the file meanwhile.
        if exists() {
            let _ = file.close();
            return Err(refused());
        }
        if has_another_name(path, &made_at, &found)? {
            // The first lock is held until the new file is locked.
            fs::remove_file(&made_at).map_err(wrong)?;
            let opened = options().create_new(true).open(&made_at).map_err(wrong)?;
            file = lock(path, opened)?;
        }
        file.set_len(0).map_err(wrong)?;
        Ok(Self { path: path.to_path_buf(), made_at, file })
    }

    /// Gives the file its name durably, and returns its contents, still locked.
    ///
    /// # Errors
    /// [`JournalError::Exists`] when the name was taken meanwhile, [`JournalError::Io`].
    pub(super) fn name(self) -> Result<Arc<dyn StorageBackend>, JournalError> {
        self.file.sync_data().map_err(|e| failed(&self.made_at, e))?;
        // A hard link, unlike a rename, never replaces a file; some file systems lack links.
        let made = match fs::hard_link(&self.made_at, &self.path) {
            Ok(()) => fs::remove_file(&self.made_at),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let _ = fs::remove_file(&self.made_at);
                return Err(JournalError::Exists { path: self.path });
            }
            Err(_) => Ok(fs::rename(&self.made_at, &self.path).map_err(|e| failed(&self.path, e))?),
        };
        made.and_then(|()| sync_folder(&self.path)).map_err(|error| {
            // After a reported failure the file must not be found.
            let _ = fs::remove_file(&self.path);
            failed(&self.path, error)
        })?;
        Ok(self.file)
    }

    /// Deletes the unfinished file.
    pub(super) fn discard(self) {
        let _ = fs::remove_file(&self.made_at);
        let _ = self.file.close();
    }
}

/// Whether the locked file at `made_at` has another name too. Then a crash interrupted its naming,
/// the file was moved since, and it must not be emptied.
///
/// # Errors
/// [`JournalError::InUse`] if another file is there by now, [`JournalError::Io`].
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

/// Other systems do not report how many names a file has.
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
