//! Systems without memfd: nobody is invited to a lane, and there are none.

use super::Berth;
use crate::error::Result;
use crate::proto::message::{AttemptId, LaneOffer, SharedBody};
use crate::proto::tensors::Planned;
use crate::worker_info::Hits;
use lgp_memory::NamedTensor;
use std::io;
use std::sync::Arc;

/// There is none.
pub(in crate::net) enum Lane {}

impl Lane {
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
pub(in crate::net) enum Door {}

/// There is none.
pub(in crate::net) struct Invitation {
    pub(in crate::net) offer: LaneOffer,
}

impl Door {
    pub(in crate::net) fn open(_: usize) -> Option<Arc<Self>> {
        None
    }
    pub(in crate::net) fn buffers(&self) -> Hits {
        match *self {}
    }
    pub(in crate::net) fn invite(self: &Arc<Self>, _: &Arc<Berth>) -> Invitation {
        match **self {}
    }
}

pub(in crate::net) fn knock(_: &LaneOffer, _: &Arc<Berth>, _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
