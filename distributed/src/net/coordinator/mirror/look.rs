//! Compares a folder with the document, and fetches what it lacks.

use super::{Listing, Mirror, PART_BYTES};
use crate::error::{Error, Result};
use crate::net::coordinator::Coordinator;
use crate::net::coordinator::peers::{Peer, Peers};
use crate::net::outside;
use std::sync::Arc;
use std::time::Duration;

/// How often folder and document are compared.
const LOOK: Duration = Duration::from_secs(1);
impl Mirror {
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
pub(in crate::net::coordinator) async fn run(
    coordinator: Coordinator,
    peers: Arc<Peers>,
    mirror: Arc<Mirror>,
) {
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
