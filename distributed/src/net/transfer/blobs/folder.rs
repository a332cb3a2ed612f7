//! The folder beside the journal: made for its owner alone, with room left to the journal.

use super::{BlobStore, Place, Users};
use crate::control::files;
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the disk that are reserved for the journal. Files are removed once the journal has a
/// change: without room for changes, a disk full of files would stay full.
const RESERVE_BYTES: u64 = 64 << 20;

/// Room for bytes that are being written.
pub(super) struct Room {
    blob_store: Arc<BlobStore>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.blob_store.lock();
        state.writing = state.writing.saturating_sub(self.bytes);
    }
}

impl BlobStore {
    /// Takes room on the disk, as long as enough is left for the journal.
    pub(super) async fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Room> {
        let Place::Folder(folder) = &self.place else {
            return Ok(Room { blob_store: Arc::clone(self), bytes: 0 });
        };
        let measured = folder.clone();
        let measuring = self.runtime.spawn_blocking(move || free_bytes(&measured));
        let free = measuring.await.map_err(|_| Error::Stopped)?;
        let free = free.map_err(|error| Error::NotSaved { reason: error.to_string() })?;
        let mut state = self.lock();
        let writing = state.writing.saturating_add(bytes);
        if writing.saturating_add(RESERVE_BYTES) > free {
            let reason = format!(
                "{writing} bytes are to be written to {}, which has {free} bytes free, of \
                 which {RESERVE_BYTES} are kept for the journal",
                folder.display()
            );
            return Err(Error::NotSaved { reason });
        }
        state.writing = writing;
        Ok(Room { blob_store: Arc::clone(self), bytes })
    }
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Bytes that may be written to the disk of a folder.
#[cfg(target_os = "linux")]
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Elsewhere only its errors show that a disk is full.
#[cfg(not(target_os = "linux"))]
fn free_bytes(_: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

/// Makes the folder and removes files that do not belong there.
pub(super) fn prepare(folder: &Path, used: &HashMap<[u8; 32], Users>) -> io::Result<()> {
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
