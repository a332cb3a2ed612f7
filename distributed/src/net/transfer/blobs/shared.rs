//! A store that coordinators on several machines reach, of which one leads. A deposed leader may
//! not know it yet, and its requests may be done late: it must not remove or write a file that a
//! later leader needs.
//!
//! So a name is written once, by the leader whose epoch it has. A leader removes only names that it
//! knows: its own, and those that were there when it opened the log, which no other leader writes
//! any more. It relies on a file of an earlier leader only as long as a record that it found in the
//! log names the digest, and it alone can remove that record.

use super::at::BlobsAt;
use super::explain::explain;
use super::names::{Names, parse};
use super::read::Unread;
use super::{BlobStore, Place, Users, names};
use crate::error::{Error, Result};
use crate::proto::message::TensorBlob;
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The file that tells the store from one that is not mounted, or is another.
const MARKER: &str = "radeon-cluster";
const MARKER_TEXT: &str =
    "Large tensors of durable tasks. Each file belongs to a record of the log.\n";

type Used = HashMap<[u8; 32], Users>;

impl BlobStore {
    /// Opens a shared store for the leader in an epoch; the log was opened in `epochs`. The leader
    /// must have read the log before: files of earlier leaders that the log names are there then.
    /// Files that `used` does not name are removed in the background. Blocks.
    ///
    /// # Errors
    /// [`Error::Blobs`] where it cannot be read, or written to, or is not the store of this log.
    pub(crate) fn open_shared(
        at: &BlobsAt,
        (epoch, epochs): (u64, &[u64]),
        used: impl Iterator<Item = [u8; 32]>,
        runtime: Handle,
    ) -> Result<Arc<Self>> {
        let failed = |reason| Error::Blobs { place: at.label().to_owned(), reason };
        let store = at.connect().map_err(failed)?;
        let names = Names::new(epoch, epochs);
        if let Some(folder) = at.folder() {
            remove_abandoned(folder, &names).map_err(|error| failed(error.to_string()))?;
        }
        Self::open_in(store, at.label(), names, used, runtime)
    }

    /// As [`BlobStore::open_shared`], with the client of the store.
    pub(super) fn open_in(
        store: Arc<dyn ObjectStore>,
        label: &str,
        names: Names,
        used: impl Iterator<Item = [u8; 32]>,
        runtime: Handle,
    ) -> Result<Arc<Self>> {
        let mut users = Used::new();
        used.for_each(|sha256| users.entry(sha256).or_default().count += 1);
        let found = runtime.block_on(look(&*store, &names, &mut users));
        found.map_err(|reason| Error::Blobs { place: label.to_owned(), reason })?;
        let place = Place::Shared { label: label.to_owned(), names };
        let blob_store = Arc::new(Self::new(store, place, users, runtime));
        blob_store.sweep_soon();
        Ok(blob_store)
    }

    /// Whether a shared store has a blob already, for another task.
    pub(super) async fn is_there(&self, blob: TensorBlob) -> bool {
        let Place::Shared { .. } = self.place else { return false };
        let known = self.whole_copies(blob.sha256);
        for name in known {
            if self.store.head(&name).await.is_ok_and(|found| found.size == blob.bytes) {
                return true;
            }
        }
        false
    }

    pub(super) fn whole_copies(&self, sha256: [u8; 32]) -> Vec<Key> {
        let state = self.lock();
        let known = state.users.get(&sha256).map(|users| users.copies.whole().cloned().collect());
        known.unwrap_or_default()
    }

    /// The name of a copy of a blob that has the right length.
    pub(super) async fn locate(&self, blob: TensorBlob) -> Result<Key, Unread> {
        if let Place::Folder(_) = self.place {
            let name = names::of(blob.sha256);
            return match self.measure(&name, blob).await? {
                Ok(()) => Ok(name),
                Err(wrong) => Err(Unread::Lost(self.blame(blob, &wrong))),
            };
        }
        let mut wrong = "it is missing".to_owned();
        for seen in [true, false] {
            if !seen {
                // A folder that another machine wrote to may not have shown everything at first.
                self.look_again(blob).await?;
            }
            for name in self.whole_copies(blob.sha256) {
                match self.measure(&name, blob).await? {
                    Ok(()) => return Ok(name),
                    Err(what) => wrong = what,
                }
            }
        }
        match self.store.head(&Key::from(MARKER)).await {
            Ok(_) => Err(Unread::Lost(self.blame(blob, &wrong))),
            Err(error) => {
                let what = format!("the store itself is not there: {}", explain(&error));
                Err(Unread::Failed(self.blame(blob, &what)))
            }
        }
    }

    /// Checks that a file is there and has its length, or says what is wrong with it.
    async fn measure(&self, name: &Key, blob: TensorBlob) -> Result<Result<(), String>, Unread> {
        match self.store.head(name).await {
            Ok(found) if found.size == blob.bytes => Ok(Ok(())),
            Ok(found) => Ok(Err(format!("it has {} bytes, expected {}", found.size, blob.bytes))),
            Err(error @ object_store::Error::NotFound { .. }) => Ok(Err(super::reason(&error))),
            Err(error) => Err(Unread::Failed(self.blame(blob, &self.explain(&error)))),
        }
    }

    /// Notes the copies of a blob that the store has.
    async fn look_again(&self, blob: TensorBlob) -> Result<(), Unread> {
        let failed = |error| Unread::Failed(self.blame(blob, &self.explain(&error)));
        let listed = self.store.list(None).map_ok(|found| found.location);
        let is_of = |name: &Key| parse(name.as_ref()).is_some_and(|(it, _)| it == blob.sha256);
        let found: Vec<Key> = listed.try_collect().await.map_err(failed)?;
        let mut state = self.lock();
        let Some(users) = state.users.get_mut(&blob.sha256) else { return Ok(()) };
        found.into_iter().filter(is_of).for_each(|name| users.copies.add(name, true));
        Ok(())
    }
}

/// Lists the store, and proves that it can be read, written to and removed from.
pub(super) async fn look(
    store: &dyn ObjectStore,
    names: &Names,
    users: &mut Used,
) -> Result<(), String> {
    let said = |error| explain(&error);
    let listed = store.list(None).map_ok(|found| found.location);
    let found: Vec<Key> = listed.try_collect().await.map_err(said)?;
    let marker = Key::from(MARKER);
    if !found.contains(&marker) {
        if !users.is_empty() {
            return Err(format!(
                "the log names tensors of {} digests, and there is no file {MARKER}: it is another place, \
                 or not mounted; a file of that name says that it is the right one",
                users.len()
            ));
        }
        store.put(&marker, MARKER_TEXT.into()).await.map_err(said)?;
    }
    store.get_range(&marker, 0..1).await.map_err(said)?;
    // Named like any other file: the next start removes the probe of a start that was cut off.
    let probe = names.fresh([0; 32]);
    store.put(&probe, MARKER_TEXT.into()).await.map_err(said)?;
    store.delete(&probe).await.map_err(said)?;
    for name in found {
        let Some((sha256, _)) = parse(name.as_ref()) else { continue };
        match users.get_mut(&sha256) {
            // Copies without a record count as unwritten: an earlier leader may be removing them.
            Some(users) => users.copies.add(name, users.count > 0),
            None if names.may_remove(&name) => {
                users.entry(sha256).or_default().copies.add(name, false);
            }
            None => {}
        }
    }
    Ok(())
}

/// Removes files that earlier leaders were writing to a folder when they ended.
fn remove_abandoned(folder: &Path, names: &Names) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| names.was_abandoned(name)) {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}
