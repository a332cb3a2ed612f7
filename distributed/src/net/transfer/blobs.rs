//! Tensors of durable tasks. Each blob is a file that is named by its digest, kept while a record
//! of the journal names it: large inputs until their task has ended, large outputs until the result
//! goes. Tasks with equal tensors share a file. The files lie beside the journal on the
//! coordinator's disk, or in a store that coordinators on several machines reach ([`shared`]).
//!
//! A file is complete, and durable with its name, before the journal hears of it. A file is removed
//! once the journal has the change after which no task needs it.

mod at;
mod copy;
mod explain;
mod folder;
mod names;
mod read;
#[cfg(feature = "scale")]
mod s3;
mod shared;
#[cfg(test)]
pub(crate) mod tests;
mod upload;

pub use at::BlobsAt;
pub(crate) use read::Unread;

use crate::error::{Error, Result};
use crate::proto::message::TensorBlob;
use bytes::Bytes;
use explain::reason;
use names::{Copies, Names};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;

/// The folder of the inputs and outputs that a journal's tasks refer to. Its name is older than
/// outputs in files.
pub(crate) fn folder_beside(journal: &Path) -> PathBuf {
    let mut name = journal.file_name().unwrap_or_default().to_owned();
    name.push(".inputs");
    journal.with_file_name(name)
}

/// The files, and the tasks that need each of them.
pub(crate) struct BlobStore {
    store: Arc<dyn ObjectStore>,
    place: Place,
    state: Mutex<State>,
    /// Held while files are removed, and while a task or a copy begins to need a file, so that no
    /// file is removed in between.
    turn: tokio::sync::Mutex<()>,
    /// False once closed. Held for reading while files are written or removed, so that closing
    /// waits for that.
    open: tokio::sync::RwLock<bool>,
    /// Whether removal has stopped for good.
    keeps_all: AtomicBool,
    runtime: Handle,
}

/// Where the files lie.
enum Place {
    /// A folder of this coordinator's own.
    Folder(PathBuf),
    /// A store that other coordinators reach, with the label that users know.
    Shared { label: String, names: Names },
}

#[derive(Default)]
struct State {
    /// The users of each file, by its digest.
    users: HashMap<[u8; 32], Users>,
    /// Copies under way, during which nothing is removed.
    copies: usize,
    /// Bytes that are being written.
    writing: u64,
}

/// The users of a file.
#[derive(Default)]
struct Users {
    count: usize,
    /// Where the bytes are, or may be.
    copies: Copies,
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

/// While it lives, no file is removed.
pub(crate) struct Pause(Arc<BlobStore>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.lock().copies -= 1;
        self.0.sweep_soon();
    }
}

impl BlobStore {
    /// Opens the folder, or makes an empty one, and removes the files that `used` does not name: a
    /// crash left them.
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
            users.count += 1;
            users.copies.add(names::of(sha256), true);
        });
        folder::prepare(&folder, &users).map_err(|error| Error::file("prepare", &folder, error))?;
        // Files and their names are on the disk before a put answers.
        let store = LocalFileSystem::new_with_prefix(&folder).map(|store| store.with_fsync(true));
        let store = store.map_err(|e| Error::file("open", &folder, io::Error::other(e)))?;
        Ok(Self::new(Arc::new(store), Place::Folder(folder), users, runtime))
    }

    fn new(
        store: Arc<dyn ObjectStore>,
        place: Place,
        users: HashMap<[u8; 32], Users>,
        runtime: Handle,
    ) -> Self {
        Self {
            store,
            place,
            state: Mutex::new(State { users, copies: 0, writing: 0 }),
            turn: tokio::sync::Mutex::default(),
            open: tokio::sync::RwLock::new(true),
            keeps_all: AtomicBool::new(false),
            runtime,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is written or removed from now on: the next coordinator on the same journal, which
    /// may be of this process, has its own store. Waits for writes and removals under way.
    pub(crate) async fn close(&self) {
        self.keep_all();
        *self.open.write().await = false;
    }

    /// Nothing is removed from now on, because it is unknown what the journal has: a change whose
    /// fate is in doubt may be there, and the next coordinator goes on with the task.
    pub(crate) fn keep_all(&self) {
        self.keeps_all.store(true, Relaxed);
    }

    /// Writes a blob, which is durable when this returns.
    ///
    /// # Errors
    /// [`Error::NotSaved`], also where too little room would be left for the journal; nothing of
    /// the blob is left then. [`Error::Stopped`] once closed.
    pub(crate) async fn put(
        self: &Arc<Self>,
        blob: TensorBlob,
        parts: Vec<Bytes>,
    ) -> Result<Claim> {
        let blob_store = Arc::clone(self);
        // A Tokio task of its own: when the caller goes away, the claim ends after the writing.
        let writing = self.runtime.spawn(async move {
            let open = blob_store.open.read().await;
            if !*open {
                return Err(Error::Stopped);
            }
            let _room = blob_store.reserve(blob.bytes).await?;
            let claim = blob_store.claim(blob.sha256).await;
            // A blob that a shared store has for another task already is not sent again.
            if !blob_store.is_there(blob).await {
                blob_store.write(blob, parts).await?;
            }
            Ok(claim)
        });
        writing.await.map_err(|_| Error::Stopped)?
    }

    async fn claim(self: &Arc<Self>, sha256: [u8; 32]) -> Claim {
        let _turn = self.turn.lock().await;
        self.lock().users.entry(sha256).or_default().count += 1;
        Claim { blob_store: Arc::clone(self), sha256, kept: false }
    }

    /// One task less needs the file; without any, the file is removed.
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

    /// Removes files that no task needs. The next start removes files that a close leaves.
    async fn sweep(self: Arc<Self>) {
        let open = self.open.read().await;
        if !*open || self.keeps_all.load(Relaxed) {
            return;
        }
        let turn = self.turn.lock().await;
        let unused: Vec<Copies> = {
            let mut state = self.lock();
            if state.copies > 0 {
                return;
            }
            let unused = state.users.extract_if(|_, users| users.count == 0);
            unused.map(|(_, users)| users.copies).collect()
        };
        // Names of a shared store are never reused, so writers need not wait for the removal.
        let _turn = matches!(self.place, Place::Folder(_)).then_some(turn);
        for name in unused.into_iter().flat_map(Copies::names) {
            if self.keeps_all.load(Relaxed) {
                return;
            }
            if !self.may_remove(&name) {
                continue;
            }
            match self.store.delete(&name).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                // The next start tries again.
                Err(error) => tracing::warn!(%error, "a file that no task needs was not removed"),
            }
        }
    }

    /// Whether no other coordinator can need the file of this name.
    fn may_remove(&self, name: &Key) -> bool {
        match &self.place {
            Place::Folder(_) => true,
            Place::Shared { names, .. } => names.may_remove(name),
        }
    }

    /// While the returned guard lives, nothing is written.
    #[cfg(test)]
    pub(crate) async fn held_up(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Keeps every file from being removed. Removals under way are done when this returns.
    pub(crate) async fn pause(self: &Arc<Self>) -> Pause {
        let _turn = self.turn.lock().await;
        self.lock().copies += 1;
        Pause(Arc::clone(self))
    }
}
