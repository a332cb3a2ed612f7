//! A folder that all coordinators of a cluster keep alike: the leader's changes reach the folders
//! of the others.
//!
//! The authority has a document with the path and the digest of every file; contents go from one
//! coordinator to another. A coordinator deletes only files that it had in common with the
//! document: files that were added while it did not lead stay, and reach all others once it leads.

mod files;

use crate::control::persisted::Persisted;
use crate::error::{Error, Result};
use crate::net::coordinator::Coordinator;
use crate::net::coordinator::peers::{Peer, Peers};
use crate::net::outside;
use files::Folder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The document.
const DOCUMENT: &str = "models.json";
const REMEDY: &str = "delete it: the coordinator that leads writes it anew from its own folder, as soon as \
     a file there changes";
/// How often folder and document are compared.
const LOOK: Duration = Duration::from_secs(1);
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

    /// Compares once: a leader writes its changes down, then each coordinator applies the document.
    async fn look(self: &Arc<Self>, coordinator: &Coordinator, peers: &Peers) -> Result<()> {
        let (mirror, leads) = (Arc::clone(self), peers.leads());
        let looking = outside::blocking(move || mirror.folder().look());
        let (own, settled) = looking.await.map_err(|_| Error::Stopped)??;
        if leads && !settled {
            // A file that is being written is whole a moment later.
            return Ok(());
        }
        let known = self.common().clone();
        if own.is_empty() && !known.is_empty() {
            let reason = "it is empty, and had models: is its disk mounted?";
            return Err(self.folder().refused(reason));
        }
        if leads {
            self.publish(&own, &known).await?;
        }
        let wanted = self.document.read().files.clone();
        let lacking = wanted.iter().filter(|(path, sha256)| own.get(*path) != Some(sha256));
        let mut got = Listing::new();
        for (path, sha256) in lacking {
            if self.fetch(coordinator, peers, path, sha256).await? {
                got.insert(path.clone(), sha256.clone());
            }
        }
        let gone: Vec<String> =
            known.keys().filter(|path| !wanted.contains_key(*path)).cloned().collect();
        let mirror = Arc::clone(self);
        let placing = outside::blocking(move || {
            let folder = mirror.folder();
            let placed = folder.place(&got, &gone, &wanted)?;
            let alike = |path: &String, sha256: &String| {
                own.get(path) == Some(sha256) || placed.contains(path)
            };
            let common: Listing =
                wanted.into_iter().filter(|(path, sha256)| alike(path, sha256)).collect();
            if common != known {
                folder.remember(&common)?;
                *mirror.common() = common;
            }
            Ok(())
        });
        placing.await.map_err(|_| Error::Stopped)?
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

    /// Fetches a file from any coordinator that has it, to be placed later; false where none has.
    async fn fetch(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        peers: &Peers,
        path: &str,
        sha256: &str,
    ) -> Result<bool> {
        let present = peers.standing.borrow().present.clone();
        let others = present.into_iter().filter(|peer| peer.number != peers.number);
        for peer in others {
            match self.fetch_from(coordinator, &peer, path, sha256).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => tracing::warn!(path, %error, "a file is not fetched"),
            }
        }
        Ok(false)
    }

    async fn fetch_from(
        self: &Arc<Self>,
        coordinator: &Coordinator,
        peer: &Peer,
        path: &str,
        sha256: &str,
    ) -> Result<bool> {
        let Some(peers) = &coordinator.peers else { return Ok(false) };
        let client = peers.reach(coordinator, peer).await?;
        let mut offset = 0;
        loop {
            let Some(part) = client.part(sha256, offset).await? else { return Ok(false) };
            let (mirror, path, sha256) = (Arc::clone(self), path.to_owned(), sha256.to_owned());
            let (count, is_last) = (part.len(), part.len() < PART_BYTES);
            let writing = outside::blocking(move || {
                mirror.folder().stage(&path, &sha256, offset, &part, is_last)
            });
            writing.await.map_err(|_| Error::Stopped)??;
            if is_last {
                return Ok(true);
            }
            offset += u64::try_from(count).unwrap_or(u64::MAX);
        }
    }
}

/// Keeps the folder alike until the coordinator stops.
pub(super) async fn run(coordinator: Coordinator, peers: Arc<Peers>, mirror: Arc<Mirror>) {
    let mut stopping = peers.stopping.subscribe();
    let mut trouble = None;
    loop {
        let looked = mirror.look(&coordinator, &peers).await.map_err(|error| error.to_string());
        // Log a trouble once, not every second.
        if let Err(error) = &looked
            && trouble.as_ref() != Some(error)
        {
            tracing::warn!(%error, "the folder of models is not as in the other coordinators");
        }
        trouble = looked.err();
        let stopped = stopping.wait_for(|stopping| *stopping);
        if tokio::time::timeout(LOOK, stopped).await.is_ok() {
            return;
        }
    }
}
