//! An engine outside of the process that keeps what coordinators must not forget.

use super::authority::{Authority, Folder};
use super::embedded::Embedded;
use super::log::Place;
use crate::error::{Error, Result};
use std::fmt;
use std::path::Path;

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

    #[cfg(feature = "scale")]
    fn database(&self) -> Result<super::postgres::Database> {
        super::postgres::Database::new(&self.address, &self.name, super::postgres::LEASE)
            .map_err(|reason| Error::Control { reason })
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may have a password in it.
        f.debug_struct("Control").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The log of a cluster: in a file, or where its control plane is.
pub(crate) fn log(control: Option<&Control>, path: &Path) -> Result<Box<dyn Place>> {
    match control {
        #[cfg(feature = "scale")]
        Some(control) => {
            let mut remembered = path.as_os_str().to_owned();
            remembered.push(".last");
            let log = super::postgres::PostgresLog::new(control.database()?, remembered.into());
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
