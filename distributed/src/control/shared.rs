//! An engine outside of the process that keeps what coordinators must not forget.

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

/// Where log and authority of a cluster are kept, if not in files of one machine: a PostgreSQL
/// database, or etcd and NATS JetStream together, and a name for what is the cluster's own there. One
/// coordinator leads at a time; when it is gone, one on another machine goes on with the same tasks.
#[derive(Clone, PartialEq, Eq)]
pub struct Control {
    address: String,
    name: String,
}

impl Control {
    /// The database at an address such as `postgres://USER:PASSWORD@localhost/NAME`, and the name of a
    /// schema in it; or the servers at `etcd://HOST:PORT,HOST:PORT,nats://HOST:PORT,HOST:PORT`, where etcd
    /// has the authority below `radeon-cluster/NAME/` and JetStream the log in the stream
    /// `radeon_cluster_NAME`, each with `USER:PASSWORD@` before its first host if it asks for that. For
    /// hosts other than this machine `?sslmode=verify-full` follows, and where need be `sslrootcert`,
    /// `sslcert` and `sslkey`, which name PEM files.
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
        self.engine().map(drop)
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

/// What keeps a control plane.
#[cfg(feature = "scale")]
enum Engine {
    Database(Box<Database>),
    Pair(Pair),
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
        Some(control) => Ok(match control.engine()? {
            Engine::Database(database) => {
                Box::new(PostgresAuthority::open(*database, fingerprint)?)
            }
            Engine::Pair(pair) => {
                // What NATS refuses is told before anything is written to etcd.
                super::jetstream::check(&Stream::new(pair.nats, &pair.name))?;
                Box::new(EtcdAuthority::open(Keys::new(pair.etcd, &pair.name), fingerprint)?)
            }
        }),
        _ => Ok(Box::new(Folder::new(folder))),
    }
}
