//! Memory that a coordinator shares with workers of its own machine: tensors lie there instead of
//! following their header over QUIC.
//!
//! A link is a Unix socket between the two, over which files without a name (memfd) are passed.
//! Each side writes only its own buffers and reads those of the other. A buffer is reused only
//! after the other side has reported, by the ticket of that use, that it is done with it: no
//! attempt, however late, touches the data of another. Whatever fails, tensors go over QUIC.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod lender;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod message;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(all(test, target_os = "linux"))]
mod tests;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Lender, Link, accept_offer};
#[cfg(target_os = "linux")]
pub(crate) use lender::{Lender, accept_offer};
#[cfg(target_os = "linux")]
pub(crate) use link::Link;

use crate::error::Result;
use crate::net::transport::wire;
use crate::proto::frame::{BODY_BYTES_MAX, FrameError};
use crate::proto::message::{AttemptId, SharedBody, TensorMeta};
use crate::proto::tensors::plan;
use crate::worker_info::Transport;
use lgp_memory::NamedTensor;
use std::sync::{Arc, OnceLock};

/// Bodies from this size on are shared; smaller ones are as fast over QUIC, as measured with
/// `examples/noop.rs`.
pub(crate) const SHARED_BYTES_MIN: usize = 32 << 10;
/// Up to this size a body is copied at once; a longer copy would block other tasks of its thread.
const AT_ONCE_BYTES_MAX: usize = 1 << 20;

/// A session's place for its link, which may come at any time, or never.
#[derive(Default)]
pub(crate) struct SharedMemory(OnceLock<Arc<Link>>);

impl SharedMemory {
    /// The link, as long as it works.
    fn link(&self) -> Option<&Arc<Link>> {
        self.0.get().filter(|link| !link.is_dead())
    }

    /// Whether there was a link and it does not work any more, as far as is known.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.get().is_some_and(|link| link.is_dead())
    }

    /// The same, after a check whether the other side ended the link.
    pub(crate) fn has_failed(&self) -> bool {
        self.tidy();
        self.is_dead()
    }

    /// Drops buffers that were not claimed. Returns how tensors travel now.
    pub(crate) fn tidy(&self) -> Transport {
        match self.0.get() {
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
        if bytes <= AT_ONCE_BYTES_MAX {
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
        if given <= AT_ONCE_BYTES_MAX {
            return link.take(id, body.ticket, planned);
        }
        let link = Arc::clone(link);
        let taking = tokio::task::spawn_blocking(move || link.take(id, body.ticket, planned));
        taking.await.map_err(wire::lost)?
    }
}
