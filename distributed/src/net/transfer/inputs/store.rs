//! Large inputs of durable tasks on the coordinator's disk, each run of bytes in a file that is
//! named by its digest, for as long as a task that has not ended needs it.
//!
//! A file is complete, and on the disk with its name, before the journal is told of its task; it
//! goes once the journal has the end of the last task that needs it.

use crate::control::log::Log;
use crate::error::{Error, JournalError, Result};
use crate::net::identity::files;
use crate::proto::message::InputBlob;
use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;

/// Bytes of the disk that inputs leave to the journal. Inputs go once the journal has the end of
/// their task: without room for ends, a disk that they had filled would stay full.
const RESERVE_BYTES: u64 = 64 << 20;

/// Where inputs lie that the tasks of a journal refer to.
pub(crate) fn folder_beside(journal: &Path) -> PathBuf {
    let mut name = journal.file_name().unwrap_or_default().to_owned();
    name.push(".inputs");
    journal.with_file_name(name)
}

/// The files, and who needs them.
pub(crate) struct InputStore {
    store: LocalFileSystem,
    folder: PathBuf,
    state: Mutex<State>,
    /// Held while files are removed, and taken to begin needing one or a copy: a file must not go
    /// between the two.
    turn: tokio::sync::Mutex<()>,
    /// False once closed. Held for reading while files are written or removed, so that closing
    /// waits for that.
    open: tokio::sync::RwLock<bool>,
    runtime: Handle,
}

#[derive(Default)]
struct State {
    /// How many need it.
    users: HashMap<[u8; 32], usize>,
    /// Copies under way, during which nothing is removed.
    copies: usize,
    /// Bytes that are being written.
    writing: u64,
}

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is not there, or not what it was: nobody can have its bytes any more.
    Lost(String),
    /// The system could not, which may pass.
    Failed(String),
}

/// Room for bytes that are being written.
struct Room {
    input_store: Arc<InputStore>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.input_store.lock();
        state.writing = state.writing.saturating_sub(self.bytes);
    }
}

/// Keeps a file for a task that is not in the journal yet.
pub(crate) struct Claim {
    input_store: Arc<InputStore>,
    sha256: [u8; 32],
    kept: bool,
}

impl Claim {
    /// The file stays until [`InputStore::release`].
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            self.input_store.release(self.sha256);
        }
    }
}

/// Nothing is removed as long as it lives.
pub(crate) struct Pause(Arc<InputStore>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.lock().copies -= 1;
        self.0.sweep_soon();
    }
}

fn key(sha256: [u8; 32]) -> Key {
    Key::from(hex::encode(sha256))
}

impl InputStore {
    /// Opens the folder, or makes an empty one, and removes what none of `used` names: what a
    /// crash left.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn open(
        folder: PathBuf,
        used: impl Iterator<Item = [u8; 32]>,
        runtime: Handle,
    ) -> Result<Self> {
        let mut users = HashMap::new();
        used.for_each(|sha256| *users.entry(sha256).or_default() += 1);
        prepare(&folder, &users).map_err(|error| Error::file("prepare", &folder, error))?;
        // Files and their names are on the disk before a put answers.
        let store = LocalFileSystem::new_with_prefix(&folder).map(|store| store.with_fsync(true));
        let store = store.map_err(|e| Error::file("open", &folder, io::Error::other(e)))?;
        let state = Mutex::new(State { users, copies: 0, writing: 0 });
        let (turn, open) = (tokio::sync::Mutex::default(), tokio::sync::RwLock::new(true));
        Ok(Self { store, folder, state, turn, open, runtime })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes and removes nothing more from now on: the next coordinator on the same journal, which
    /// may be of this process, has a input_store of its own. Waits for what is under way.
    pub(crate) async fn close(&self) {
        *self.open.write().await = false;
    }

    /// Writes a run of bytes through to the disk.
    ///
    /// # Errors
    /// [`Error::NotSaved`], also where too little room would be left for the journal; nothing is
    /// left then. [`Error::Stopped`] once closed.
    pub(crate) async fn put(self: &Arc<Self>, blob: InputBlob, parts: Vec<Bytes>) -> Result<Claim> {
        let input_store = Arc::clone(self);
        // A task of its own: when the caller goes away, the claim ends after the writing.
        let writing = self.runtime.spawn(async move {
            let open = input_store.open.read().await;
            if !*open {
                return Err(Error::Stopped);
            }
            let _room = input_store.reserve(blob.bytes).await?;
            let claim = input_store.claim(blob.sha256).await;
            let payload: PutPayload = parts.into_iter().collect();
            match input_store.store.put(&key(blob.sha256), payload).await {
                Ok(_) => Ok(claim),
                Err(error) => Err(Error::NotSaved { reason: reason(&error) }),
            }
        });
        writing.await.map_err(|_| Error::Stopped)?
    }

    /// Takes room on the disk, as long as enough is left for the journal.
    async fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Room> {
        let folder = self.folder.clone();
        let measuring = self.runtime.spawn_blocking(move || free_bytes(&folder));
        let free = measuring.await.map_err(|_| Error::Stopped)?;
        let free = free.map_err(|error| Error::NotSaved { reason: error.to_string() })?;
        let mut state = self.lock();
        let writing = state.writing.saturating_add(bytes);
        if writing.saturating_add(RESERVE_BYTES) > free {
            let reason = format!(
                "{writing} bytes of inputs are to be written to {}, which has {free} bytes free, of \
                 which {RESERVE_BYTES} are kept for the journal",
                self.folder.display()
            );
            return Err(Error::NotSaved { reason });
        }
        state.writing = writing;
        Ok(Room { input_store: Arc::clone(self), bytes })
    }

    async fn claim(self: &Arc<Self>, sha256: [u8; 32]) -> Claim {
        let _turn = self.turn.lock().await;
        *self.lock().users.entry(sha256).or_default() += 1;
        Claim { input_store: Arc::clone(self), sha256, kept: false }
    }

    /// One task less needs the file; the last one's goes.
    pub(crate) fn release(self: &Arc<Self>, sha256: [u8; 32]) {
        let left = self.lock().users.get_mut(&sha256).map(|users| {
            *users = users.saturating_sub(1);
            *users
        });
        if left == Some(0) {
            self.sweep_soon();
        }
    }

    fn sweep_soon(self: &Arc<Self>) {
        self.runtime.spawn(Arc::clone(self).sweep());
    }

    /// Removes what nobody needs. What is left when it is closed, the next start removes.
    async fn sweep(self: Arc<Self>) {
        let open = self.open.read().await;
        if !*open {
            return;
        }
        let _turn = self.turn.lock().await;
        let unused: Vec<[u8; 32]> = {
            let mut state = self.lock();
            if state.copies > 0 {
                return;
            }
            let unused = state.users.iter().filter(|(_, users)| **users == 0);
            let unused: Vec<_> = unused.map(|(sha256, _)| *sha256).collect();
            state.users.retain(|_, users| *users > 0);
            unused
        };
        for sha256 in unused {
            match self.store.delete(&key(sha256)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                // The next start tries again.
                Err(error) => tracing::warn!(%error, "inputs of an ended task were not removed"),
            }
        }
    }

    /// Reads so many bytes from an offset on, of a run that should have them.
    ///
    /// # Errors
    /// [`Unread`], with a text that says what is wrong with the file.
    pub(super) async fn read(&self, blob: InputBlob, at: u64, count: u64) -> Result<Bytes, Unread> {
        if at == 0 {
            self.measure(blob).await?;
        }
        let key = key(blob.sha256);
        let what = match self.store.get_range(&key, at..at.saturating_add(count)).await {
            Ok(bytes) if u64::try_from(bytes.len()) == Ok(count) => return Ok(bytes),
            Ok(bytes) => format!("{} of {count} bytes were read", bytes.len()),
            Err(error) => reason(&error),
        };
        // A file that went or shrank in the meantime is lost, whatever the error says.
        self.measure(blob).await?;
        Err(Unread::Failed(self.blame(blob, &what)))
    }

    /// Looks whether the file is there and has its length.
    async fn measure(&self, blob: InputBlob) -> Result<(), Unread> {
        match self.store.head(&key(blob.sha256)).await {
            Ok(found) if found.size == blob.bytes => Ok(()),
            Ok(found) => {
                let what = format!("it has {} bytes, expected {}", found.size, blob.bytes);
                Err(Unread::Lost(self.blame(blob, &what)))
            }
            Err(error @ object_store::Error::NotFound { .. }) => {
                Err(Unread::Lost(self.blame(blob, &reason(&error))))
            }
            Err(error) => Err(Unread::Failed(self.blame(blob, &reason(&error)))),
        }
    }

    /// What is wrong with the file of a run.
    pub(super) fn blame(&self, blob: InputBlob, what: &str) -> String {
        let path = self.folder.join(hex::encode(blob.sha256));
        format!("the task's inputs in {} cannot be used: {what}", path.display())
    }

    /// Keeps every file from being removed. What is being removed is gone when it answers.
    pub(crate) async fn pause(self: &Arc<Self>) -> Pause {
        let _turn = self.turn.lock().await;
        self.lock().copies += 1;
        Pause(Arc::clone(self))
    }

    /// Copies the journal to `to` and every file to a folder beside it. The journal's copy gets its
    /// name last: one that is there is whole. Until then both have `.new` after their names, and
    /// what a crash leaves there the next copy to the same place replaces. Blocks; to be called
    /// during a [`Pause`].
    ///
    /// # Errors
    /// Those of copying the journal; [`JournalError::Exists`] for the folder too. Nothing is left
    /// then.
    pub(crate) fn back_up(&self, log: &dyn Log, to: &Path) -> Result<(), JournalError> {
        let mut copy = FolderCopy { folder: folder_beside(to), unfinished: false };
        log.back_up(to, Box::new(|| copy.fill(&self.folder)))?;
        copy.unfinished = false;
        Ok(())
    }
}

/// A folder that files are copied to. It gets its name once they are all there, and goes unless
/// the journal beside it then gets its own.
struct FolderCopy {
    folder: PathBuf,
    /// It has its name, and the journal beside it has none yet.
    unfinished: bool,
}

impl Drop for FolderCopy {
    fn drop(&mut self) {
        if self.unfinished {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

impl FolderCopy {
    /// To be called while the journal's copy is locked: nobody else makes the same one then.
    fn fill(&mut self, from: &Path) -> Result<(), JournalError> {
        let mut made_at = self.folder.clone().into_os_string();
        made_at.push(".new");
        let made_at = PathBuf::from(made_at);
        let filled = self.fill_from(from, &made_at);
        if filled.is_err() {
            let _ = std::fs::remove_dir_all(&made_at);
        }
        filled.map_err(|source| {
            let (path, source) = (self.folder.clone(), Arc::new(source));
            match source.kind() {
                io::ErrorKind::AlreadyExists => JournalError::Exists { path },
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    JournalError::Full { path, source }
                }
                _ => JournalError::Io { path, source },
            }
        })
    }

    fn fill_from(&mut self, from: &Path, made_at: &Path) -> io::Result<()> {
        // Even where there is nothing to copy: the copy would take it for its own and empty it.
        if self.folder.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match std::fs::remove_dir_all(made_at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut made = false;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            // A name with another sign is one whose file is not complete.
            let complete = entry.file_name().to_str().is_some_and(|name| !name.contains('#'));
            if !complete {
                continue;
            }
            if !made {
                files::make_private_folder(made_at)?;
                made = true;
            }
            let copy = made_at.join(entry.file_name());
            std::fs::copy(entry.path(), &copy)?;
            std::fs::File::open(&copy)?.sync_all()?;
        }
        if made {
            files::sync_folder(made_at)?;
            std::fs::rename(made_at, &self.folder)?;
            self.unfinished = true;
            files::sync_folder(parent(&self.folder))?;
        }
        Ok(())
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Bytes that may be written to the disk of a folder.
#[cfg(target_os = "linux")]
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Elsewhere a disk says only by its errors that it is full.
#[cfg(not(target_os = "linux"))]
fn free_bytes(_: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

/// The innermost reason of an error, which is what the system said.
fn reason(error: &object_store::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// Makes the folder and removes what does not belong there.
fn prepare(folder: &Path, used: &HashMap<[u8; 32], usize>) -> io::Result<()> {
    match files::make_private_folder(folder) {
        Ok(()) => files::sync_folder(parent(folder))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => files::keep_private(folder)?,
        Err(error) => return Err(error),
    }
    let used: HashSet<String> = used.keys().map(hex::encode).collect();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let known = entry.file_name().to_str().is_some_and(|name| used.contains(name));
        if !known && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
