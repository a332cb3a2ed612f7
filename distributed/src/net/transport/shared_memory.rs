//! The short way between a coordinator and workers of its own machine, beside QUIC: attempts and their
//! outcomes are passed as they are, and longer tensors lie in memory that both see.
//!
//! A link is a Unix socket between the two, which keeps messages apart, and over which files without a
//! name (memfd) are passed. Each side writes only buffers of its own and reads those of the other. A
//! buffer is used again only after the other side has said that it is done with it, under the ticket of
//! that one use: no attempt, however late, touches what belongs to another. Who joins, what is reported,
//! and which models are loaded goes over QUIC always, and so does all else where a link fails.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod lender;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod mail;
#[cfg(target_os = "linux")]
mod message;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(all(test, target_os = "linux"))]
mod tests;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Lender, Letter, Link, Mail, accept_offer};
#[cfg(target_os = "linux")]
pub(crate) use lender::{Lender, accept_offer};
#[cfg(target_os = "linux")]
pub(crate) use link::Link;
#[cfg(target_os = "linux")]
pub(crate) use mail::{Letter, Mail};

use crate::error::Result;
use crate::net::transport::wire;
use crate::proto::frame::{BODY_BYTES_MAX, FrameError};
use crate::proto::message::{AttemptId, SharedBody, TensorMeta};
use crate::proto::tensors::plan;
use crate::worker_info::Transport;
use bytes::Bytes;
use lgp_memory::NamedTensor;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Bodies from this size on are shared; smaller ones are sent as fast, as measured with
/// `examples/noop.rs`.
pub(crate) const SHARED_BYTES_MIN: usize = 32 << 10;
/// Up to this size a body is copied at once; a longer one would keep others of its thread waiting.
const AT_ONCE_BYTES_MAX: usize = 1 << 20;

/// Whether a body of so many bytes is copied at once.
pub(crate) fn is_short(bytes: usize) -> bool {
    bytes <= AT_ONCE_BYTES_MAX
}

/// A session's place for its link, which may come at any time, or never.
#[derive(Default)]
pub(crate) struct SharedMemory {
    place: OnceLock<Arc<Link>>,
    came: Notify,
}

impl SharedMemory {
    /// The link has come; a session has one.
    #[cfg(target_os = "linux")]
    fn put(&self, link: Arc<Link>) {
        let _ = self.place.set(link);
        self.came.notify_one();
    }

    /// Resolves with the link, once it has come.
    #[cfg(target_os = "linux")]
    async fn linked(&self) -> Arc<Link> {
        loop {
            if let Some(link) = self.place.get() {
                return Arc::clone(link);
            }
            self.came.notified().await;
        }
    }

    /// Gives the worker an attempt, with its frame; false where that has to go over QUIC.
    pub(crate) fn give(&self, id: AttemptId, frame: &[Bytes]) -> bool {
        self.link().is_some_and(|link| link.give(id, frame))
    }

    /// Whether attempts can be given at all.
    pub(crate) fn is_linked(&self) -> bool {
        self.link().is_some()
    }

    /// Tells the coordinator what an attempt came to; false where that has to go over QUIC.
    pub(crate) fn answer(&self, id: AttemptId, frame: &[Bytes]) -> bool {
        self.link().is_some_and(|link| link.answer(id, frame))
    }

    /// Tells the coordinator that an attempt is given up.
    pub(crate) fn give_up(&self, id: AttemptId) {
        // A link that has ended says so by itself.
        let _ = self.link().map(|link| link.give_up(id));
    }

    /// Nobody waits for an attempt any more: a worker that was given it is told.
    pub(crate) fn cancel(&self, id: AttemptId) {
        if let Some(link) = self.link() {
            link.cancel(id);
        }
    }

    /// An attempt has ended, whichever way its outcome came.
    pub(crate) fn settled(&self, id: AttemptId) {
        let _ = self.link().map(|link| link.settled(id));
    }

    /// The link, as long as it works.
    fn link(&self) -> Option<&Arc<Link>> {
        self.place.get().filter(|link| !link.is_dead())
    }

    /// Whether there was a link and it works no more, as far as is known.
    pub(crate) fn is_dead(&self) -> bool {
        self.place.get().is_some_and(|link| link.is_dead())
    }

    /// The same, having looked whether the other side ended it.
    pub(crate) fn has_failed(&self) -> bool {
        self.tidy();
        self.is_dead()
    }

    /// Lets go of what nobody asked for. Answers how tensors travel now.
    pub(crate) fn tidy(&self) -> Transport {
        match self.place.get() {
            Some(link) if link.tidy() => Transport::SharedMemory,
            _ => Transport::Quic,
        }
    }

    /// Puts tensors of so many bytes where the other side finds them; `None` where they have to
    /// follow the header.
    pub(crate) async fn lend(
        &self,
        id: AttemptId,
        tensors: &[NamedTensor],
        bytes: usize,
    ) -> Option<SharedBody> {
        let link = self.link().filter(|_| bytes >= SHARED_BYTES_MIN)?;
        if is_short(bytes) {
            return link.lend(id, tensors, bytes);
        }
        let (link, tensors) = (Arc::clone(link), tensors.to_vec());
        let lending = tokio::task::spawn_blocking(move || link.lend(id, &tensors, bytes));
        lending.await.ok().flatten()
    }

    /// Copies the tensors of an attempt out of the other side's memory.
    pub(crate) async fn take(
        &self,
        id: AttemptId,
        body: SharedBody,
        metas: Vec<TensorMeta>,
    ) -> Result<Vec<NamedTensor>> {
        let given = usize::try_from(body.bytes).unwrap_or(usize::MAX);
        if given > BODY_BYTES_MAX {
            let (what, limit) = ("shared body", BODY_BYTES_MAX);
            return Err(FrameError::TooLong { what, given, limit }.into());
        }
        let planned = plan(metas, given)?;
        let gone = || wire::lost("tensors lie in shared memory that is not there any more");
        let link = self.link().ok_or_else(gone)?;
        if is_short(given) {
            return link.take(id, body.ticket, planned);
        }
        let link = Arc::clone(link);
        let taking = tokio::task::spawn_blocking(move || link.take(id, body.ticket, planned));
        taking.await.map_err(wire::lost)?
    }
}
