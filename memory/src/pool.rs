//! Reuse of host buffers: constant-time bins for small ones, best fit for large ones.

use crate::buffer::{Block, Buffer};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sizes up to this many bytes are rounded to a size class and reused exactly.
const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Larger sizes are rounded to this granularity.
const LARGE_STEP: usize = 4096;
/// A large block serves a request only if it is at most this many times as large: a small request
/// must not pin a huge block.
const LARGE_SLACK: usize = 2;
/// The same limit for a request that is freed soon.
const BRIEF_SLACK: usize = 8;

/// A pool of aligned host buffers. Clones share it.
///
/// Dropping a buffer returns its memory. Idle memory never exceeds the high-water mark of use; any
/// excess is returned to the host. Buffers may outlive the pool.
///
/// ```
/// let pool = lgp_memory::Pool::new();
/// drop(pool.alloc(1000)?);
/// let again = pool.alloc(1000)?;
/// assert_eq!(again.len(), 1000);
/// assert_eq!(pool.stats().hits, 1);
/// # Ok::<(), lgp_memory::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Pool(Arc<Shared>);

/// Counts of a [`Pool`]. Bytes are those of the blocks, rounded up.
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
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer of `len` bytes. They are initialised but unspecified: reused memory is not zeroed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the host refuses even after all idle memory was returned.
    pub fn alloc(&self, len: usize) -> Result<Buffer> {
        self.alloc_from(len, LARGE_SLACK)
    }

    /// Like [`Pool::alloc`], for brief use: because the buffer is freed soon, a much larger block
    /// may serve it.
    ///
    /// # Errors
    /// As [`Pool::alloc`].
    pub fn alloc_briefly(&self, len: usize) -> Result<Buffer> {
        self.alloc_from(len, BRIEF_SLACK)
    }

    fn alloc_from(&self, len: usize, slack: usize) -> Result<Buffer> {
        if len == 0 {
            return Buffer::zeroed(0);
        }
        let capacity = rounded(len).ok_or(Error::OutOfMemory { bytes: len })?;
        let reused = self.0.lock().take(capacity, slack);
        let block = match reused {
            Some(block) => block,
            // The lock is not held while the host maps and zeroes pages.
            None => Block::zeroed(capacity).or_else(|_| {
                self.0.lock().release_idle();
                Block::zeroed(capacity)
            })?,
        };
        self.0.lock().stats.lend(block.capacity());
        Ok(Buffer::pooled(block, len, Arc::downgrade(&self.0)))
    }

    /// The present counts.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.0.lock().stats
    }
}

impl PoolStats {
    fn lend(&mut self, bytes: usize) {
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Idle blocks by capacity, and the counts.
#[derive(Debug, Default)]
struct State {
    /// One bin per size class, last in first out: the most recently used block is warm in the
    /// cache.
    small: Vec<Vec<Block>>,
    large: BTreeMap<usize, Vec<Block>>,
    stats: PoolStats,
}

impl State {
    fn take(&mut self, capacity: usize, slack: usize) -> Option<Block> {
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

    fn release_idle(&mut self) {
        self.small.clear();
        self.large.clear();
        self.stats.idle_bytes = 0;
    }
}

/// The capacity that serves `len > 0` bytes: a size class, or a multiple of the large step.
fn rounded(len: usize) -> Option<usize> {
    if len <= SMALL_BYTES_MAX {
        Some(class_bytes(class(len)))
    } else {
        len.checked_next_multiple_of(LARGE_STEP)
    }
}

/// The smallest class that holds `len` bytes. Classes are 64, 128, 192, 256, and from there four
/// steps per doubling, so that rounding wastes less than a quarter.
fn class(len: usize) -> usize {
    let lines = len.div_ceil(64).max(1);
    if lines <= 4 {
        return lines - 1;
    }
    // lines is in (2^(n+2), 2^(n+3)], divided into four steps of 2^n.
    let n = (lines - 1).ilog2() as usize - 2;
    4 * n + (lines - (4 << n)).div_ceil(1 << n) + 3
}

/// Bytes of a class.
fn class_bytes(class: usize) -> usize {
    if class < 4 {
        return 64 * (class + 1);
    }
    let (n, step) = ((class - 4) / 4, (class - 4) % 4 + 1);
    64 * ((4 + step) << n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::ALIGNMENT;
    use proptest::prelude::*;

    #[test]
    fn classes_are_tight_and_monotonic() {
        for len in 1..=SMALL_BYTES_MAX {
            let bytes = class_bytes(class(len));
            assert!(bytes >= len && bytes.is_multiple_of(64), "{len} -> {bytes}");
            assert!(len <= 256 || bytes < len + len / 4 + 64, "{len} -> {bytes}");
            assert_eq!(class(bytes), class(len), "{len} -> {bytes}");
            assert!(class(len) == 0 || class_bytes(class(len) - 1) < len);
        }
    }

    #[test]
    fn reuse_is_counted() {
        let pool = Pool::new();
        let a = pool.alloc(100_000).unwrap();
        let at = a.as_ptr();
        drop(a);
        assert_eq!(pool.stats().idle_bytes, 102_400);
        let b = pool.alloc(60_000).unwrap();
        assert_ne!(b.as_ptr(), at, "small and large blocks do not mix");
        let c = pool.alloc(90_000).unwrap();
        assert_eq!(c.as_ptr(), at);
        let stats = pool.stats();
        assert_eq!((stats.allocations, stats.hits, stats.idle_bytes), (3, 1, 0));
        assert!((stats.hit_rate() - 1. / 3.).abs() < 1e-12);
    }

    #[test]
    fn best_fit_takes_the_smallest_that_is_not_too_large() {
        let pool = Pool::new();
        let held: Vec<_> =
            [1 << 20, 1 << 18, 1 << 19].map(|n| pool.alloc(n).unwrap()).into_iter().collect();
        let half = held[2].as_ptr();
        drop(held);
        assert_eq!(pool.alloc((1 << 18) + 1).unwrap().as_ptr(), half);
        let tiny = pool.alloc(70_000).unwrap();
        assert_eq!(pool.stats().hits, 1, "a 256 KiB block is too large for 70 kB");
        drop(tiny);
    }

    #[test]
    fn idle_memory_is_bounded_by_the_high_water_mark() {
        let pool = Pool::new();
        for n in 1..50 {
            drop(pool.alloc(n * 200_000).unwrap());
        }
        let stats = pool.stats();
        assert!(stats.idle_bytes <= stats.high_water_bytes, "{stats:?}");
    }

    /// The kernels of a network take turns with scratch memory of different sizes, and runs after
    /// the first allocate none.
    #[test]
    fn one_block_serves_all_that_need_it_briefly() {
        let pool = Pool::new();
        let run = || {
            let arena = pool.alloc(7_000_000).unwrap();
            for size in [900_000, 1_300_000, 2_000_000, 1_700_000, 300_000] {
                drop(pool.alloc_briefly(size));
            }
            drop(arena);
        };
        run();
        let first = pool.stats();
        assert_eq!(first.idle_bytes, first.high_water_bytes, "the largest scratch and the arena");
        run();
        let second = pool.stats();
        assert_eq!(second.hits - first.hits, second.allocations - first.allocations);
    }

    #[test]
    fn too_much_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, usize::MAX - 4096] {
            assert_eq!(Pool::new().alloc(len).err().map(|e| e.to_string().is_empty()), Some(false));
        }
    }

    #[test]
    fn buffers_outlive_their_pool() {
        let pool = Pool::new();
        let mut buffer = pool.alloc(10).unwrap();
        drop(pool);
        buffer.fill(7);
        assert_eq!(&buffer[..], [7; 10]);
    }

    proptest! {
        /// Random traces: no two live buffers share a byte (each keeps its own fill), the byte
        /// counts agree with a plain sum, and alignment holds.
        #[test]
        fn traces_conserve_bytes(
            steps in prop::collection::vec((any::<bool>(), 0usize..300_000, any::<prop::sample::Index>()), 1..60)
        ) {
            let pool = Pool::new();
            let mut live: Vec<(Buffer, u8)> = Vec::new();
            let (mut peak, mut made) = (0, 0u64);
            for (i, (free, len, pick)) in steps.into_iter().enumerate() {
                if free && !live.is_empty() {
                    let (buffer, mark) = live.swap_remove(pick.index(live.len()));
                    prop_assert!(buffer.iter().all(|&b| b == mark));
                } else {
                    let mark = u8::try_from(i).unwrap_or(0);
                    let mut buffer = pool.alloc(len).unwrap();
                    made += u64::from(len > 0);
                    prop_assert_eq!(buffer.len(), len);
                    prop_assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(ALIGNMENT));
                    buffer.fill(mark);
                    live.push((buffer, mark));
                }
                let stats = pool.stats();
                let least: usize = live.iter().map(|(b, _)| b.len()).sum();
                peak = peak.max(stats.in_use_bytes);
                prop_assert!(stats.in_use_bytes >= least);
                prop_assert_eq!(stats.high_water_bytes, peak);
                prop_assert_eq!(stats.allocations, made);
                prop_assert!(stats.idle_bytes <= stats.high_water_bytes);
            }
            drop(live);
            prop_assert_eq!(pool.stats().in_use_bytes, 0);
        }
    }
}
