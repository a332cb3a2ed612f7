//! The interface of an authority, and of its members.

use crate::error::Result;
use std::fmt;
use std::path::PathBuf;
use tokio::sync::watch;

/// Keeps the shared state of a cluster's coordinators. Every call blocks on the disk or on the
/// engine that keeps it.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Takes the lead, or takes it anew. Returns an epoch that is greater than any before it, and
    /// no smaller than `now_ms`, the milliseconds since 1970. Writes of earlier epochs are refused
    /// from now on. The lead lasts until [`Authority::resign`], or until this is dropped.
    ///
    /// # Errors
    /// [`Error::Led`](crate::Error::Led) while another has the lead; [`Error::File`](crate::Error::File),
    /// [`Error::Damaged`](crate::Error::Damaged).
    fn lead(&self, now_ms: u64) -> Result<u64>;

    /// Gives up the lead that was taken with `epoch`, if it still holds.
    fn resign(&self, epoch: u64);

    /// Whether the lead of `epoch` holds, as far as this process knows without asking the
    /// authority.
    fn holds(&self, epoch: u64) -> bool;

    /// Whether the lead of `epoch` holds at this moment by this machine's clock: a lease that must
    /// be renewed has not run out. A process that was suspended may still report
    /// [`Authority::holds`] while another coordinator leads; this check detects that.
    fn holds_now(&self, epoch: u64) -> bool {
        self.holds(epoch)
    }

    /// The membership interface, if several coordinators can share this authority.
    fn members(&self) -> Option<&dyn Members> {
        None
    }

    /// The latest version of a document, if it was ever written.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn read(&self, document: &str) -> Result<Option<Vec<u8>>>;

    /// Replaces a document; on failure the document is unchanged.
    ///
    /// # Errors
    /// [`Error::Deposed`](crate::Error::Deposed) unless this holds the lead of `epoch`;
    /// [`Error::File`](crate::Error::File).
    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()>;

    /// The names of all documents in order, except the authority's own.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn documents(&self) -> Result<Vec<String>>;

    /// The location of a document, for people.
    fn locate(&self, document: &str) -> PathBuf;
}

/// An authority that several coordinators share: each one sees the others and which of them leads.
pub trait Members: fmt::Debug + Send + Sync {
    /// Registers this coordinator as a member until this is dropped, and publishes `about` to the
    /// others. Returns a number that no other member has or had, no smaller than `now_ms`. A
    /// registered member gets a new number.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn enter(&self, now_ms: u64, about: &[u8]) -> Result<u64>;

    /// The members, the leader first. A member that crashed stays listed until its lease runs out.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File).
    fn present(&self) -> Result<Vec<Present>>;

    /// Notifies when the leader or a document may have changed, if the engine supports
    /// notifications. It is faster than polling; polling finds what a notification missed.
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }

    /// Name and version of the engine, for people. Known once the engine was reached.
    fn engine(&self) -> String;
}

/// A registered coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// The number that the coordinator got when it registered.
    pub number: u64,
    pub leads: bool,
    pub about: Vec<u8>,
}
