//! A folder that all coordinators of a cluster keep alike: the leader's changes reach the folders
//! of the others.
//!
//! The authority has a document with the path and the digest of every file; contents go from one
//! coordinator to another. A coordinator deletes only files that it had in common with the
//! document: files that were added while it did not lead stay, and reach all others once it leads.

mod files;
mod look;

pub(super) use look::run;

use crate::control::persisted::Persisted;
use crate::error::{Error, Result};
use crate::net::coordinator::Coordinator;
use crate::net::outside;
use files::Folder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The document.
const DOCUMENT: &str = "models.json";
const REMEDY: &str = "delete it: the coordinator that leads writes it anew from its own folder, as soon as \
     a file there changes";
/// Bytes of a file in one answer.
pub(crate) const PART_BYTES: usize = 8 << 20;

/// The digest of each file, by its path in the folder.
pub(crate) type Listing = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    files: Listing,
}

/// The folder of one coordinator.
pub(crate) struct Mirror {
    document: Persisted<Manifest>,
    folder: Mutex<Folder>,
    /// The files that folder and document last had in common; a file in the folder has them, too.
    common: Mutex<Listing>,
}

impl Mirror {
    pub(crate) fn open(coordinator: &Coordinator, folder: &Path) -> Result<Arc<Self>> {
        let document =
            Persisted::open(coordinator.pki.lead(), DOCUMENT, REMEDY, Manifest::default())?;
        // An empty folder deletes nothing elsewhere: its list of common files is gone, too.
        std::fs::create_dir_all(folder).map_err(|error| Error::file("make", folder, error))?;
        let folder = Folder::new(folder);
        let common = Mutex::new(folder.remembered()?);
        Ok(Arc::new(Self { document, folder: Mutex::new(folder), common }))
    }

    fn folder(&self) -> MutexGuard<'_, Folder> {
        // After a panic, the next look begins anew.
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn common(&self) -> MutexGuard<'_, Listing> {
        // The list is only replaced as a whole.
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of a file with a digest, for another coordinator; `None` where there is no such file.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn part(&self, sha256: &str, offset: u64) -> Result<Option<Vec<u8>>> {
        self.folder().part(sha256, offset, PART_BYTES)
    }

    /// Writes down files that were added, changed or removed here since folder and document were
    /// alike. Where they were not, the document counts: another coordinator may have changed it.
    async fn publish(self: &Arc<Self>, own: &Listing, known: &Listing) -> Result<()> {
        let before = self.document.read().files.clone();
        let mut next = before.clone();
        let was_alike = |path: &str| known.get(path) == before.get(path);
        for (path, sha256) in own {
            if was_alike(path) {
                next.insert(path.clone(), sha256.clone());
            }
        }
        next.retain(|path, _| own.contains_key(path) || !was_alike(path));
        if next == before {
            return Ok(());
        }
        let mirror = Arc::clone(self);
        let writing = outside::blocking(move || {
            mirror.document.change(|manifest| {
                manifest.files = next;
                Ok::<_, Error>(())
            })
        });
        writing.await.map_err(|_| Error::Stopped)??
    }
}
