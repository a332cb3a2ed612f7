//! A pool's idle blocks, and its counts.

use super::classes::{SMALL_BYTES_MAX, class};
use crate::buffer::block::Block;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts of a [`crate::Pool`]. Bytes are those of the blocks, rounded up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers handed out.
    pub allocations: u64,
    /// Of those, how many reused a block.
    pub hits: u64,
    /// Bytes in live buffers.
    pub in_use_bytes: usize,
    /// The most that `in_use_bytes` ever was.
    pub high_water_bytes: usize,
    /// Bytes waiting for reuse.
    pub idle_bytes: usize,
}

impl PoolStats {
    /// The share of allocations that reused a block, 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn hit_rate(&self) -> f64 {
        if self.allocations == 0 { 0. } else { self.hits as f64 / self.allocations as f64 }
    }

    pub(super) fn lend(&mut self, bytes: usize) {
        self.allocations += 1;
        self.in_use_bytes += bytes;
        self.high_water_bytes = self.high_water_bytes.max(self.in_use_bytes);
    }
}

/// State shared by the clones of a pool and its buffers.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<State>);

impl Shared {
    /// Takes a buffer's block back.
    pub(crate) fn put(&self, block: Block) {
        // Excess blocks are freed after the lock is released.
        let _refused = self.lock().put(block);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Idle blocks by capacity, and the counts.
#[derive(Debug, Default)]
pub(super) struct State {
    /// One bin per size class, last in first out: the most recently used block is warm in the
    /// cache.
    small: Vec<Vec<Block>>,
    large: BTreeMap<usize, Vec<Block>>,
    pub(super) stats: PoolStats,
}

impl State {
    pub(super) fn take(&mut self, capacity: usize, slack: usize) -> Option<Block> {
        let block = if capacity <= SMALL_BYTES_MAX {
            self.small.get_mut(class(capacity))?.pop()?
        } else {
            let most = capacity.saturating_mul(slack);
            let mut fitting = self.large.range_mut(capacity..=most);
            let (&fit, blocks) = fitting.next()?;
            let block = blocks.pop()?;
            if blocks.is_empty() {
                self.large.remove(&fit);
            }
            block
        };
        self.stats.hits += 1;
        self.stats.idle_bytes -= block.capacity();
        Some(block)
    }

    /// Takes a block back, and returns the excess blocks: smaller ones first, because larger ones
    /// can serve in their place.
    fn put(&mut self, block: Block) -> Vec<Block> {
        let capacity = block.capacity();
        self.stats.in_use_bytes -= capacity;
        let mut refused = Vec::new();
        while self.stats.idle_bytes + capacity > self.stats.high_water_bytes {
            let Some(smaller) = self.large.range_mut(..capacity).next() else {
                refused.push(block);
                return refused;
            };
            let (&size, blocks) = smaller;
            refused.extend(blocks.pop());
            if blocks.is_empty() {
                self.large.remove(&size);
            }
            self.stats.idle_bytes -= size;
        }
        self.stats.idle_bytes += capacity;
        if capacity <= SMALL_BYTES_MAX {
            let class = class(capacity);
            if self.small.len() <= class {
                self.small.resize_with(class + 1, Vec::new);
            }
            self.small[class].push(block);
        } else {
            self.large.entry(capacity).or_default().push(block);
        }
        refused
    }

    pub(super) fn release_idle(&mut self) {
        self.small.clear();
        self.large.clear();
        self.stats.idle_bytes = 0;
    }
}
