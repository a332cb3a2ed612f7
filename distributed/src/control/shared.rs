//! An engine outside of the process that keeps what coordinators must not forget.

use super::authority::{Authority, Folder};
use super::embedded::Embedded;
use super::log::Place;
use crate::error::{Error, Result};
use crate::net::coordinator::peers::Peer;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where log and authority of a cluster are kept, if not in files of one machine: a PostgreSQL
/// database, and a name for what is the cluster's own there. One coordinator leads at a time; when it
/// is gone, one on another machine goes on with the same tasks.
#[derive(Clone, PartialEq, Eq)]
pub struct Control {
    address: String,
    name: String,
}

impl Control {
    /// The database at an address such as `postgres://USER:PASSWORD@localhost/NAME`, and the name of a
    /// schema in it.
    ///
    /// # Errors
    /// [`Error::Control`] for an address or a name that cannot be one, and where this program was built
    /// without the feature `scale`.
    pub fn new(address: impl Into<String>, name: impl Into<String>) -> Result<Self> {
        let control = Self { address: address.into(), name: name.into() };
        control.check()?;
        Ok(control)
    }

    #[cfg(feature = "scale")]
    fn check(&self) -> Result<()> {
        self.database().map(drop)
    }

    #[cfg(not(feature = "scale"))]
    fn check(&self) -> Result<()> {
        Err(Error::Control {
            reason: "this program was built without the feature scale".to_owned(),
        })
    }

    /// What is kept there of a cluster, without taking part: nothing is written.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be read, [`Error::Control`] where there is no cluster of this name.
    pub fn look(&self) -> Result<ControlView> {
        #[cfg(feature = "scale")]
        return super::postgres::look(&self.database()?, &self.name);
        #[cfg(not(feature = "scale"))]
        self.check().map(|()| ControlView::default())
    }

    #[cfg(feature = "scale")]
    fn database(&self) -> Result<super::postgres::Database> {
        super::postgres::Database::new(&self.address, &self.name, super::postgres::LEASE)
            .map_err(|reason| Error::Control { reason })
    }
}

/// What an engine keeps of a cluster.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ControlView {
    /// Where it is, without secrets.
    pub place: String,
    /// A name and a version of what keeps it, and what that does not promise.
    pub engine: String,
    /// The fingerprint of the cluster's authority.
    pub cluster: Option<String>,
    /// The coordinators that take part, the one that leads first.
    pub coordinators: Vec<Peer>,
    /// Whether anybody leads: while documents are written, and while it is moved, one does that takes no
    /// part.
    pub is_led: bool,
    /// Durable tasks, those that have ended too.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// The names of what only who leads writes.
    pub documents: Vec<String>,
    /// The number and the digest, in hex, of the last commit of the log.
    pub last_commit: Option<(u64, String)>,
    /// That it is not complete, or was moved: why no coordinator begins on it.
    pub closed: Option<String>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may have a password in it.
        f.debug_struct("Control").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a machine knows of a log elsewhere, beside a journal's path.
pub(crate) fn remembered(journal: &Path) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(".last");
    name.into()
}

/// The log of a cluster: in a file, or where its control plane is.
pub(crate) fn log(control: Option<&Control>, path: &Path) -> Result<Box<dyn Place>> {
    match control {
        #[cfg(feature = "scale")]
        Some(control) => {
            let log = super::postgres::PostgresLog::new(control.database()?, remembered(path));
            Ok(Box::new(log))
        }
        _ => Ok(Box::new(Embedded(path.to_owned()))),
    }
}

/// The authority of a cluster: in a folder, or where its control plane is. Members know
/// it by a `fingerprint`.
#[cfg_attr(not(feature = "scale"), expect(unused_variables, reason = "a folder has one owner"))]
pub(crate) fn authority(
    control: Option<&Control>,
    folder: &Path,
    fingerprint: &str,
) -> Result<Box<dyn Authority>> {
    match control {
        #[cfg(feature = "scale")]
        Some(control) => Ok(Box::new(super::postgres::PostgresAuthority::open(
            control.database()?,
            fingerprint,
        )?)),
        _ => Ok(Box::new(Folder::new(folder))),
    }
}
