//! Large inputs of durable tasks on the coordinator's disk, each run of bytes in a file that is
//! named by its digest, for as long as a task that has not ended needs it.
//!
//! A file is complete, and on the disk with its name, before the journal is told of its task; it
//! goes once the journal has the end of the last task that needs it.

use crate::error::{Error, JournalError, Result};
use crate::net::{files, hex};
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

/// Where inputs lie that the tasks of a journal refer to.
pub(in crate::net) fn folder_beside(journal: &Path) -> PathBuf {
    let mut name = journal.file_name().unwrap_or_default().to_owned();
    name.push(".inputs");
    journal.with_file_name(name)
}

/// The files, and who needs them.
pub(in crate::net) struct Vault {
    store: LocalFileSystem,
    folder: PathBuf,
    state: Mutex<State>,
    /// Held while files are removed, and taken to begin needing one: a file must not go between
    /// the two.
    turn: tokio::sync::Mutex<()>,
    runtime: Handle,
}

#[derive(Default)]
struct State {
    /// How many need it.
    users: HashMap<[u8; 32], usize>,
    /// Copies under way, during which nothing is removed.
    copies: usize,
}

/// Keeps a file for a task that is not in the journal yet.
pub(in crate::net) struct Claim {
    vault: Arc<Vault>,
    sha256: [u8; 32],
    kept: bool,
}

impl Claim {
    /// The file stays until [`Vault::release`].
    pub(in crate::net) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            self.vault.release(self.sha256);
        }
    }
}

/// Nothing is removed as long as it lives.
pub(in crate::net) struct Pause(Arc<Vault>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.lock().copies -= 1;
        self.0.sweep_soon();
    }
}

fn key(sha256: [u8; 32]) -> Key {
    Key::from(hex::encode(&sha256))
}

impl Vault {
    /// Opens the folder, or makes an empty one, and removes what none of `used` names: what a
    /// crash left.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(in crate::net) fn open(
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
        let state = Mutex::new(State { users, copies: 0 });
        Ok(Self { store, folder, state, turn: tokio::sync::Mutex::default(), runtime })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a run of bytes through to the disk.
    ///
    /// # Errors
    /// [`Error::NotSaved`]; nothing is left then.
    pub(in crate::net) async fn put(
        self: &Arc<Self>,
        blob: InputBlob,
        parts: Vec<Bytes>,
    ) -> Result<Claim> {
        let vault = Arc::clone(self);
        // A task of its own: when the caller goes away, the claim ends after the writing.
        let writing = self.runtime.spawn(async move {
            let claim = vault.claim(blob.sha256).await;
            let payload: PutPayload = parts.into_iter().collect();
            match vault.store.put(&key(blob.sha256), payload).await {
                Ok(_) => Ok(claim),
                Err(error) => Err(Error::NotSaved { reason: reason(&error) }),
            }
        });
        writing.await.map_err(|_| Error::Stopped)?
    }

    async fn claim(self: &Arc<Self>, sha256: [u8; 32]) -> Claim {
        let _turn = self.turn.lock().await;
        *self.lock().users.entry(sha256).or_default() += 1;
        Claim { vault: Arc::clone(self), sha256, kept: false }
    }

    /// One task less needs the file; the last one's goes.
    pub(in crate::net) fn release(self: &Arc<Self>, sha256: [u8; 32]) {
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

    /// Removes what nobody needs.
    async fn sweep(self: Arc<Self>) {
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
    /// A text that says what is wrong with the file.
    pub(super) async fn read(&self, blob: InputBlob, at: u64, count: u64) -> Result<Bytes, String> {
        let key = key(blob.sha256);
        let read = async {
            if at == 0 {
                let bytes = self.store.head(&key).await?.size;
                if bytes != blob.bytes {
                    return Ok(Err(format!("it has {bytes} bytes, expected {}", blob.bytes)));
                }
            }
            self.store.get_range(&key, at..at.saturating_add(count)).await.map(Ok)
        };
        let bytes = read.await.unwrap_or_else(|error| Err(reason(&error)));
        let whole = |bytes: Bytes| match u64::try_from(bytes.len()) == Ok(count) {
            true => Ok(bytes),
            false => Err(format!("it ends before byte {}", at.saturating_add(count))),
        };
        bytes.and_then(whole).map_err(|what| self.blame(blob, &what))
    }

    /// What is wrong with the file of a run.
    pub(super) fn blame(&self, blob: InputBlob, what: &str) -> String {
        let path = self.folder.join(hex::encode(&blob.sha256));
        format!("the task's inputs in {} cannot be used: {what}", path.display())
    }

    /// Keeps every file from being removed.
    pub(in crate::net) fn pause(self: &Arc<Self>) -> Pause {
        self.lock().copies += 1;
        Pause(Arc::clone(self))
    }

    /// Copies every file beside a copy of the journal. Blocks.
    ///
    /// # Errors
    /// [`JournalError::Full`], [`JournalError::Io`]; nothing is left then.
    pub(in crate::net) fn copy_beside(&self, journal: &Path) -> Result<(), JournalError> {
        let to = folder_beside(journal);
        let copied = copy_all(&self.folder, &to);
        copied.map_err(|source| {
            let _ = std::fs::remove_dir_all(&to);
            let (path, source) = (to, Arc::new(source));
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    JournalError::Full { path, source }
                }
                _ => JournalError::Io { path, source },
            }
        })
    }
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
        Ok(()) => files::sync_folder(
            folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")),
        )?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => files::keep_private(folder)?,
        Err(error) => return Err(error),
    }
    let used: HashSet<String> = used.keys().map(|sha256| hex::encode(sha256)).collect();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let known = entry.file_name().to_str().is_some_and(|name| used.contains(name));
        if !known && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    let mut made = false;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        // A name with another sign is one whose file is not complete.
        let complete = entry.file_name().to_str().is_some_and(|name| !name.contains('#'));
        if !complete {
            continue;
        }
        if !made {
            files::make_private_folder(to)?;
            made = true;
        }
        let copy = to.join(entry.file_name());
        std::fs::copy(entry.path(), &copy)?;
        std::fs::File::open(&copy)?.sync_all()?;
    }
    if made { files::sync_folder(to) } else { Ok(()) }
}
