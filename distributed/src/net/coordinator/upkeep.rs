//! Keeps the journal small and copied while the coordinator goes on, and tells when it breaks.

use super::Coordinator;
use crate::error::{Error, Result};
use std::path::PathBuf;

impl Coordinator {
    /// Resolves when the journal takes no more changes, with the reason. The coordinator can no
    /// longer keep its promises then, and should be stopped and started anew.
    pub async fn journal_broken(&self) -> Error {
        if self.peers.is_some() {
            // Another coordinator leads then.
            return std::future::pending().await;
        }
        let broken = self.until_any(|| self.shared.journal_error());
        broken.await.map_or_else(|error| error, Error::from)
    }

    /// Copies the journal to a new file while the coordinator goes on: a consistent state of one
    /// moment, which a coordinator can be started on. Large inputs and outputs of its tasks go to a
    /// folder beside the copy, with its name and `.inputs`, which belongs to it. Until file and
    /// folder are complete, both names end in `.new`; the next copy to the same place removes the
    /// rest of a copy that was cut off.
    ///
    /// # Errors
    /// [`Error::NoJournal`]; [`Error::Journal`], also where the file or the folder exists already, and
    /// where a file is missing or damaged that a task needs.
    /// A folder without its file may belong to a copy that was moved, or to one that was cut off
    /// between the two renamings.
    pub async fn back_up(&self, to: PathBuf) -> Result<()> {
        let log = self.shared.log().ok_or(Error::NoJournal)?;
        let blob_store = self.shared.blob_store().ok_or(Error::NoJournal)?;
        // The files of the copy's tasks were there before its moment, and stay until they are copied.
        let pause = blob_store.pause().await;
        let copy = tokio::task::spawn_blocking(move || {
            let _pause = pause;
            blob_store.back_up(&*log, &to)
        });
        Ok(copy.await.map_err(|_| Error::Stopped)??)
    }

    /// Bytes of the journal's file.
    ///
    /// # Errors
    /// [`Error::NoJournal`]; [`Error::Journal`].
    pub fn journal_bytes(&self) -> Result<u64> {
        Ok(self.shared.log().ok_or(Error::NoJournal)?.size_bytes()?)
    }

    /// Gives space that the journal does not need back to the disk; true when there was any.
    ///
    /// # Errors
    /// [`Error::NoJournal`]; [`Error::Journal`].
    pub async fn compact(&self) -> Result<bool> {
        let log = self.shared.log().ok_or(Error::NoJournal)?;
        let compacted = tokio::task::spawn_blocking(move || log.compact());
        Ok(compacted.await.map_err(|_| Error::Stopped)??)
    }
}
