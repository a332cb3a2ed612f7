//! Copies of a journal, with the files that belong to it.

use super::folder::parent;
use super::{BlobStore, Place, folder_beside};
use crate::control::files;
use crate::control::log::Log;
use crate::error::JournalError;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

const OWN_MEANS: &str = "which is copied by its own means, after the log";

impl BlobStore {
    /// Copies the journal to `to`, and every file to a folder beside it, each compared with its
    /// name. The journal's copy gets its name last, so a copy of that name is whole. Until then
    /// both names end in `.new`; the next copy to the same place replaces what a crash leaves
    /// there. Blocks; must be called while nothing is removed.
    ///
    /// # Errors
    /// Errors of copying the journal; [`JournalError::Exists`] for the folder too;
    /// [`JournalError::Io`] also for a file that is missing or damaged, and for files in a shared store.
    /// Nothing is left then.
    pub(crate) fn back_up(&self, log: &dyn Log, to: &Path) -> Result<(), JournalError> {
        let Place::Folder(folder) = &self.place else {
            let what = format!("the tensors of its tasks lie in {}, {OWN_MEANS}", self.label());
            let (path, source) = (to.to_owned(), Arc::new(io::Error::other(what)));
            return Err(JournalError::Io { path, source });
        };
        let mut copy = FolderCopy { folder: folder_beside(to), unfinished: false };
        let written = || -> HashSet<String> {
            let state = self.lock();
            let written = state.users.iter().filter(|(_, users)| users.copies.is_whole());
            written.map(|(sha256, _)| hex::encode(sha256)).collect()
        };
        // Listed after the moment of the journal's copy: every file that the copy names is there.
        log.back_up(to, Box::new(|| copy.fill(folder, written())))?;
        copy.unfinished = false;
        Ok(())
    }
}

/// A folder that files are copied to. It gets its name once all files are there, and is removed
/// unless the journal beside it then gets its own.
struct FolderCopy {
    folder: PathBuf,
    /// The folder has its name, but the journal beside it has none yet.
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
    /// Must be called while the journal's copy is locked: no other process makes the same one then.
    fn fill(&mut self, from: &Path, needed: HashSet<String>) -> Result<(), JournalError> {
        let mut made_at = self.folder.clone().into_os_string();
        made_at.push(".new");
        let made_at = PathBuf::from(made_at);
        let filled = self.fill_from(from, &made_at, needed);
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

    fn fill_from(
        &mut self,
        from: &Path,
        made_at: &Path,
        mut needed: HashSet<String>,
    ) -> io::Result<()> {
        // Even with nothing to copy: the copy would take the folder for its own and empty it.
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
            // A name with `#` is that of an incomplete file.
            let name = entry.file_name().into_string().ok().filter(|name| !name.contains('#'));
            let Some(name) = name else { continue };
            if !made {
                files::make_private_folder(made_at)?;
                made = true;
            }
            let digest = copy_file(&entry.path(), &made_at.join(&name))?;
            if needed.remove(&name) && digest != name {
                let what = "its bytes have another digest than its name";
                return Err(unusable(&entry.path(), what));
            }
        }
        if let Some(name) = needed.iter().next() {
            return Err(unusable(&from.join(name), "it is missing"));
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

/// The error for a file that a task needs and that cannot be copied.
fn unusable(path: &Path, what: &str) -> io::Error {
    let what = format!("a task's tensors in {} cannot be used: {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Copies a file through to the disk; returns the digest of its bytes.
fn copy_file(from: &Path, to: &Path) -> io::Result<String> {
    let mut source = File::open(from)?;
    if !source.metadata()?.is_file() {
        return Err(unusable(from, "it is no file"));
    }
    let mut copy = File::create_new(to)?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK_BYTES]);
    loop {
        let count = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let read = chunk.get(..count).unwrap_or_default();
        hash.update(read);
        copy.write_all(read)?;
    }
    copy.sync_all()?;
    Ok(hex::encode(hash.finalize()))
}
