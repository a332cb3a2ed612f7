//! Reuse of host buffers: constant-time bins for small ones, best fit for large ones.

mod classes;
pub(crate) mod idle;

pub use idle::PoolStats;

use crate::buffer::Buffer;
use crate::buffer::block::Block;
use crate::error::{Error, Result};
use classes::rounded;
use idle::Shared;
use std::sync::Arc;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::ALIGNMENT;
    use proptest::prelude::*;

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
