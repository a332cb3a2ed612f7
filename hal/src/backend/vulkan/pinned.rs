//! Host memory that the device accesses, and transfers from without an extra copy.

use super::memory::Block;
use super::pool::Home;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::pinned::Pinned;
use std::sync::Arc;

/// Makes a block of `bytes` bytes.
pub(super) fn new(shared: &Arc<Shared>, bytes: usize) -> Result<Pinned> {
    let block = Block::new(shared, Home::Host, bytes)?;
    let reason = || "the driver maps it nowhere".to_owned();
    let start = block.start().ok_or_else(|| Error::OutOfMemory {
        device: shared.id,
        bytes,
        reason: reason(),
    })?;
    // SAFETY: the block has `bytes` bytes until it is dropped, and nothing else refers to them:
    // only a transfer, which owns the pinned block, lets the device access it.
    Ok(unsafe { Pinned::new(start, bytes, Box::new(block)) })
}

/// The memory behind `pinned`, if it was made by this opened device.
pub(super) fn block_of<'a>(pinned: &'a Pinned, shared: &Arc<Shared>) -> Option<&'a Arc<Block>> {
    let block = pinned.owner().downcast_ref::<Arc<Block>>()?;
    Arc::ptr_eq(&block.shared, shared).then_some(block)
}
