//! Tensors of durable tasks on the coordinator's disk, each run of bytes in a file that is named by
//! its digest, for as long as a record of the journal names it: large inputs until their task has
//! ended, large outputs until the result goes. Tasks with equal tensors share a file.
//!
//! A file is complete, and on the disk with its name, before the journal is told of it; it goes once
//! the journal has the change after which no task needs it.

mod copy;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use read::Unread;

use crate::control::files;
use crate::error::{Error, Result};
use crate::proto::message::TensorBlob;
use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;

/// Bytes of the disk that are left to the journal. Files go once the journal has a change: without
/// room for changes, a disk that they had filled would stay full.
const RESERVE_BYTES: u64 = 64 << 20;

/// Where inputs and outputs lie that the tasks of a journal refer to. Folders that are older than
/// outputs in files have this name too.
pub(crate) fn folder_beside(journal: &Path) -> PathBuf {
    let mut name = journal.file_name().unwrap_or_default().to_owned();
    name.push(".inputs");
    journal.with_file_name(name)
}

/// The files, and who needs them.
pub(crate) struct BlobStore {
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
    /// Who needs which file.
    users: HashMap<[u8; 32], Users>,
    /// Copies under way, during which nothing is removed.
    copies: usize,
    /// Bytes that are being written.
    writing: u64,
}

/// Who needs a file.
#[derive(Default)]
struct Users {
    count: usize,
    /// It was written, so it must be there.
    written: bool,
}

/// Room for bytes that are being written.
struct Room {
    blob_store: Arc<BlobStore>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.blob_store.lock();
        state.writing = state.writing.saturating_sub(self.bytes);
    }
}

/// Keeps a file for a task that is not in the journal yet.
pub(crate) struct Claim {
    blob_store: Arc<BlobStore>,
    sha256: [u8; 32],
    kept: bool,
}

impl Claim {
    /// The file stays until [`BlobStore::release`].
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            self.blob_store.release(self.sha256);
        }
    }
}

/// Nothing is removed as long as it lives.
pub(crate) struct Pause(Arc<BlobStore>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.lock().copies -= 1;
        self.0.sweep_soon();
    }
}

fn key(sha256: [u8; 32]) -> Key {
    Key::from(hex::encode(sha256))
}

impl BlobStore {
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
        used.for_each(|sha256| {
            let users: &mut Users = users.entry(sha256).or_default();
            (users.count, users.written) = (users.count + 1, true);
        });
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
    /// may be of this process, has a store of its own. Waits for what is under way.
    pub(crate) async fn close(&self) {
        *self.open.write().await = false;
    }

    /// Writes a run of bytes through to the disk.
    ///
    /// # Errors
    /// [`Error::NotSaved`], also where too little room would be left for the journal; nothing is
    /// left then. [`Error::Stopped`] once closed.
    pub(crate) async fn put(
        self: &Arc<Self>,
        blob: TensorBlob,
        parts: Vec<Bytes>,
    ) -> Result<Claim> {
        let blob_store = Arc::clone(self);
        // A task of its own: when the caller goes away, the claim ends after the writing.
        let writing = self.runtime.spawn(async move {
            let open = blob_store.open.read().await;
            if !*open {
                return Err(Error::Stopped);
            }
            let _room = blob_store.reserve(blob.bytes).await?;
            let claim = blob_store.claim(blob.sha256).await;
            let payload: PutPayload = parts.into_iter().collect();
            match blob_store.store.put(&key(blob.sha256), payload).await {
                Ok(_) => {
                    let mut state = blob_store.lock();
                    state.users.entry(blob.sha256).or_default().written = true;
                    drop(state);
                    Ok(claim)
                }
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
                "{writing} bytes are to be written to {}, which has {free} bytes free, of \
                 which {RESERVE_BYTES} are kept for the journal",
                self.folder.display()
            );
            return Err(Error::NotSaved { reason });
        }
        state.writing = writing;
        Ok(Room { blob_store: Arc::clone(self), bytes })
    }

    async fn claim(self: &Arc<Self>, sha256: [u8; 32]) -> Claim {
        let _turn = self.turn.lock().await;
        self.lock().users.entry(sha256).or_default().count += 1;
        Claim { blob_store: Arc::clone(self), sha256, kept: false }
    }

    /// One task less needs the file; the last one's goes.
    pub(crate) fn release(self: &Arc<Self>, sha256: [u8; 32]) {
        let left = self.lock().users.get_mut(&sha256).map(|users| {
            users.count = users.count.saturating_sub(1);
            users.count
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
            let unused = state.users.iter().filter(|(_, users)| users.count == 0);
            let unused: Vec<_> = unused.map(|(sha256, _)| *sha256).collect();
            state.users.retain(|_, users| users.count > 0);
            unused
        };
        for sha256 in unused {
            match self.store.delete(&key(sha256)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                // The next start tries again.
                Err(error) => tracing::warn!(%error, "a file that no task needs was not removed"),
            }
        }
    }

    /// As long as the answer lives, nothing is written.
    #[cfg(test)]
    pub(crate) async fn held_up(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Keeps every file from being removed. What is being removed is gone when it answers.
    pub(crate) async fn pause(self: &Arc<Self>) -> Pause {
        let _turn = self.turn.lock().await;
        self.lock().copies += 1;
        Pause(Arc::clone(self))
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
fn prepare(folder: &Path, used: &HashMap<[u8; 32], Users>) -> io::Result<()> {
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
