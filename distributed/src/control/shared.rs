//! An external engine that keeps the coordinators' persistent state.

use super::authority::{Authority, Folder};
use super::embedded::Embedded;
#[cfg(feature = "scale")]
use super::etcd::{EtcdAuthority, Keys};
#[cfg(feature = "scale")]
use super::jetstream::{JetStreamLog, Stream};
use super::log::Place;
#[cfg(feature = "scale")]
use super::pair::Pair;
#[cfg(feature = "scale")]
use super::postgres::{Database, LEASE, PostgresAuthority, PostgresLog};
use super::view::ControlView;
use crate::error::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};

/// The location of a cluster's log and authority outside the files of one machine: a PostgreSQL
/// database, or etcd and NATS JetStream together, and the name of the cluster's data there. One
/// coordinator leads at a time; if it fails, one on another machine continues the same tasks.
#[derive(Clone, PartialEq, Eq)]
pub struct Control {
    address: String,
    name: String,
}

impl Control {
    /// The database at an address such as `postgres://USER:PASSWORD@localhost/NAME`, and the name
    /// of a schema in it; or the servers at
    /// `etcd://HOST:PORT,HOST:PORT,nats://HOST:PORT,HOST:PORT`. There, etcd has the authority below
    /// `radeon-cluster/NAME/` and JetStream the log in the stream `radeon_cluster_NAME`; each takes
    /// `USER:PASSWORD@` before its first host if it requires a login. For remote hosts add
    /// `?sslmode=verify-full`, and if needed `sslrootcert`, `sslcert` and `sslkey`, which name PEM
    /// files.
    ///
    /// # Errors
    /// [`Error::Control`] for an invalid address or name, and if this program was built without the
    /// feature `scale`.
    pub fn new(address: impl Into<String>, name: impl Into<String>) -> Result<Self> {
        let control = Self { address: address.into(), name: name.into() };
        control.check()?;
        Ok(control)
    }

    #[cfg(feature = "scale")]
    fn check(&self) -> Result<()> {
        self.engine().map(drop)
    }

    #[cfg(not(feature = "scale"))]
    fn check(&self) -> Result<()> {
        Err(Error::Control {
            reason: "this program was built without the feature scale".to_owned(),
        })
    }

    /// Reads what the engine keeps of a cluster, without becoming a member or writing.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, [`Error::Control`] if there is no cluster of this
    /// name.
    pub fn look(&self) -> Result<ControlView> {
        #[cfg(feature = "scale")]
        return match self.engine()? {
            Engine::Database(database) => super::postgres::look(&database, &self.name),
            Engine::Pair(pair) => {
                let view = super::etcd::look(&Keys::new(pair.etcd, &pair.name))?;
                super::jetstream::look(&Stream::new(pair.nats, &pair.name), view)
            }
        };
        #[cfg(not(feature = "scale"))]
        self.check().map(|()| ControlView::default())
    }

    #[cfg(feature = "scale")]
    fn engine(&self) -> Result<Engine> {
        let (address, name) = (&self.address, &self.name);
        let found = match Pair::is_meant(address) {
            true => Pair::new(address, name).map(Engine::Pair),
            false => Database::new(address, name, LEASE).map(|it| Engine::Database(Box::new(it))),
        };
        found.map_err(|reason| Error::Control { reason })
    }
}

/// The engines of a control plane.
#[cfg(feature = "scale")]
enum Engine {
    Database(Box<Database>),
    Pair(Pair),
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("Control").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The file beside a journal's path with the last known commit of a shared log.
pub(crate) fn remembered(journal: &Path) -> PathBuf {
    let mut name = journal.as_os_str().to_owned();
    name.push(".last");
    name.into()
}

/// The log of a cluster: in a file, or on its control plane.
pub(crate) fn log(control: Option<&Control>, path: &Path) -> Result<Box<dyn Place>> {
    match control {
        #[cfg(feature = "scale")]
        Some(control) => {
            let remembered = remembered(path);
            Ok(match control.engine()? {
                Engine::Database(database) => Box::new(PostgresLog::new(*database, remembered)),
                Engine::Pair(pair) => {
                    Box::new(JetStreamLog::new(Stream::new(pair.nats, &pair.name), remembered))
                }
            })
        }
        _ => Ok(Box::new(Embedded(path.to_owned()))),
    }
}

/// The authority of a cluster: in a folder, or on its control plane. Members know it by a
/// `fingerprint`.
#[cfg_attr(not(feature = "scale"), expect(unused_variables, reason = "a folder has one owner"))]
pub(crate) fn authority(
    control: Option<&Control>,
    folder: &Path,
    fingerprint: &str,
) -> Result<Box<dyn Authority>> {
    match control {
        #[cfg(feature = "scale")]
        Some(control) => Ok(match control.engine()? {
            Engine::Database(database) => {
                Box::new(PostgresAuthority::open(*database, fingerprint)?)
            }
            Engine::Pair(pair) => {
                // NATS is checked before anything is written to etcd.
                super::jetstream::check(&Stream::new(pair.nats, &pair.name))?;
                Box::new(EtcdAuthority::open(Keys::new(pair.etcd, &pair.name), fingerprint)?)
            }
        }),
        _ => Ok(Box::new(Folder::new(folder))),
    }
}
