//! Moves a cluster from the files of one machine to a shared control plane, and back.

use crate::control::authority::Present;
use crate::control::moving::{self, MigrationStep, Side, marker};
use crate::control::record::Key;
use crate::control::shared::{self, Control};
use crate::error::{Error, Result};
use crate::net::coordinator::peers::Peer;
use crate::net::identity::pki;
use crate::net::transfer::blobs::BlobsAt;
use crate::proto::image::Image;
use crate::task::TaskId;
use std::path::{Path, PathBuf};

pub use crate::control::moving::marker::Migrated;

/// Where a cluster's log and authority are.
///
/// ```
/// use lgp_distributed::{ClusterHome, Pki};
///
/// let folder = tempfile::tempdir()?;
/// let home = |name: &str| ClusterHome {
///     pki: folder.path().join(name).join("pki"),
///     journal: folder.path().join(name).join("tasks.journal"),
///     control: None,
///     blobs: None,
/// };
/// let (from, to) = (home("one"), home("two"));
/// std::fs::create_dir(folder.path().join("one"))?;
/// Pki::open(&from.pki)?;
/// let migrated = from.migrate(&to, &mut |_| {})?;
/// assert_eq!((migrated.records, migrated.documents), (0, 1));
/// assert!(Pki::open(&from.pki).is_err() && Pki::open(&to.pki).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClusterHome {
    /// The folder with the authority's certificate and key, and with its documents if there is no
    /// `control`.
    pub pki: PathBuf,
    /// The journal's file; what this machine knows of a log elsewhere lies beside it.
    pub journal: PathBuf,
    /// The control plane that has both, if they are not in files.
    pub control: Option<Control>,
    /// Where large tensors lie, if not beside the journal. A migration does not move them: both
    /// homes have the same store, or there must be no large tensors.
    pub blobs: Option<BlobsAt>,
}

impl ClusterHome {
    /// Moves durable tasks with their results, tokens, keys and all else that the authority keeps
    /// to another, empty home, and checks all of it there. No coordinator starts on an incomplete
    /// home, nor on the home that was left: [`Error::Incomplete`], [`Error::Moved`]. An interrupted
    /// migration goes on when it is started again. Waits for disks and networks.
    ///
    /// # Errors
    /// [`Error::Migration`], with what to do; errors of reading or writing either home.
    pub fn migrate(&self, to: &Self, progress: &mut dyn FnMut(MigrationStep)) -> Result<Migrated> {
        let (authority, fingerprint) = pki::read_authority(&self.pki)?;
        let shares_apart = self.blobs.is_some() && self.blobs == to.blobs;
        let from = Side { shares_apart, ..self.side(&fingerprint)? };
        to.prepare((&authority, &fingerprint), &from.label)?;
        let to = to.side(&fingerprint)?;
        let migrated = moving::run(&from, &to, &mut |step| {
            progress(step);
            Ok(())
        })?;
        if self.control.is_some() {
            // A log that this machine uses later must not be compared with the log that it left.
            let _ = std::fs::remove_file(shared::remembered(&self.journal));
        }
        Ok(migrated)
    }

    /// Lets coordinators start here again, though the cluster was moved elsewhere; returns where it
    /// was moved to. Work that was done there is not here.
    ///
    /// # Errors
    /// [`Error::Migration`] where the cluster was not moved, or is in use.
    pub fn undo_migration(&self) -> Result<String> {
        let (_, fingerprint) = pki::read_authority(&self.pki)?;
        moving::undo(&self.side(&fingerprint)?)
    }

    /// Makes an empty home in files, which is marked as incomplete from the beginning.
    fn prepare(&self, (authority, fingerprint): (&str, &str), from: &str) -> Result<()> {
        let refused = |reason: String| Err(Error::Migration { reason });
        if self.control.is_some() {
            return Ok(());
        }
        if self.pki.exists() {
            let (_, found) = pki::read_authority(&self.pki)?;
            return match found == fingerprint {
                true => Ok(()),
                false => refused(format!(
                    "{} has the authority of another cluster, with the fingerprint {found}, not \
                     {fingerprint}: choose another folder",
                    self.pki.display()
                )),
            };
        }
        if self.journal.exists() {
            return refused(format!(
                "{} is there, without an authority: choose another folder, or move it away",
                self.journal.display()
            ));
        }
        for folder in [&self.pki, &self.journal].into_iter().filter_map(|path| path.parent()) {
            std::fs::create_dir_all(folder).map_err(|error| Error::file("make", folder, error))?;
        }
        let incomplete = marker::Marker::Incomplete { from: from.to_owned(), passing: Vec::new() };
        pki::make_with(&self.pki, authority, (marker::MARKER, &incomplete.encode()))
    }

    fn side(&self, fingerprint: &str) -> Result<Side> {
        let authority = shared::authority(self.control.as_ref(), &self.pki, fingerprint)?;
        let label = match &self.control {
            Some(_) => authority.locate("").display().to_string().trim_end_matches('/').to_owned(),
            None => folder_label(self.pki.parent().unwrap_or(&self.pki))?,
        };
        let log = shared::log(self.control.as_ref(), &self.journal)?;
        Ok(Side { label, authority, log, inspect, shares_apart: false, name })
    }
}

/// Names a folder by its whole path: a relative one means nothing elsewhere.
fn folder_label(folder: &Path) -> Result<String> {
    let shown = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let path = shown.canonicalize().map_err(|error| Error::file("find", shown, error))?;
    Ok(format!("the folder {} of {}", path.display(), machine()))
}

#[cfg(target_os = "linux")]
fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn machine() -> String {
    "this machine".to_owned()
}

/// Checks a record as a starting coordinator does.
fn inspect((epoch, seq): Key, bytes: &[u8]) -> Result<u64, String> {
    let id = TaskId { epoch, seq };
    let image =
        Image::decode(bytes).map_err(|error| format!("the record of task {id}: {error}"))?;
    if image.id != id {
        return Err(format!("the record of task {id}: it is that of task {}", image.id));
    }
    let apart = image.apart.iter().chain(image.outputs_apart());
    Ok(apart.map(|apart| apart.blob.bytes).fold(0, u64::saturating_add))
}

/// The address by which users know a coordinator.
fn name(present: &Present) -> String {
    match Peer::of(present) {
        Some(Peer { quic, url, leads, .. }) => format!(
            "the coordinator at {}{}",
            url.unwrap_or(quic),
            if leads { ", which leads," } else { "" }
        ),
        None => format!("a coordinator with the number {}", present.number),
    }
}
