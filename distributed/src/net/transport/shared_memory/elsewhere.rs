//! Systems without memfd: there are no links, and no worker is invited to one.

use super::SharedMemory;
use crate::error::Result;
use crate::proto::message::{AttemptId, SharedBody, SharedMemoryOffer};
use crate::proto::tensors::Planned;
use crate::worker_info::Hits;
use lgp_memory::NamedTensor;
use std::io;
use std::sync::Arc;

/// There is none.
pub(crate) enum Link {}

impl Link {
    pub(super) fn is_dead(&self) -> bool {
        match *self {}
    }
    pub(super) fn tidy(&self) -> bool {
        match *self {}
    }
    pub(super) fn lend(&self, _: AttemptId, _: &[NamedTensor], _: usize) -> Option<SharedBody> {
        match *self {}
    }
    pub(super) fn take(&self, _: AttemptId, _: u64, _: Vec<Planned>) -> Result<Vec<NamedTensor>> {
        match *self {}
    }
}

/// There is none.
pub(crate) enum Lender {}

/// There is none.
pub(crate) struct Invitation {
    pub(crate) offer: SharedMemoryOffer,
}

impl Lender {
    pub(crate) fn open(_: usize) -> Option<Arc<Self>> {
        None
    }
    pub(crate) fn buffers(&self) -> Hits {
        match *self {}
    }
    pub(crate) fn invite(self: &Arc<Self>, _: &Arc<SharedMemory>) -> Invitation {
        match **self {}
    }
}

pub(crate) fn accept_offer(
    _: &SharedMemoryOffer,
    _: &Arc<SharedMemory>,
    _: usize,
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
