//! Sharing a kernel's work between threads.

use crate::op::Context;
use rayon::prelude::*;

/// Work below this many elementary operations is not worth waking a thread for.
const WORTH_A_THREAD: usize = 1 << 15;

impl Context {
    /// Calls `work` on contiguous parts of `out`, each a whole number of units, with the index of
    /// the part's first unit. `cost` is the number of elementary operations of one unit.
    ///
    /// A context of one thread, or little work, means one call on this very thread. The parts
    /// depend on the number of threads only.
    pub(crate) fn split<T: Send>(
        &self,
        out: &mut [T],
        unit: usize,
        cost: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if out.is_empty() || unit == 0 {
            return;
        }
        let units = out.len().div_ceil(unit);
        let worth = units.saturating_mul(cost.max(1)) / WORTH_A_THREAD;
        let parts = self.threads().min(worth).min(units);
        if parts <= 1 {
            return work(0, out);
        }
        let units_per_part = units.div_ceil(parts);
        out.par_chunks_mut(units_per_part * unit)
            .enumerate()
            .for_each(|(i, part)| work(i * units_per_part, part));
    }

    /// The parallelism for a matrix product of `operations` multiply-adds.
    pub(crate) fn gemm_parallelism(&self, operations: usize) -> gemm::Parallelism {
        // A product is split less evenly than element-wise work and starts threads at each of
        // its blocks: it must be larger to gain.
        if self.threads() > 1 && operations > 8 * WORTH_A_THREAD {
            gemm::Parallelism::Rayon(self.threads())
        } else {
            gemm::Parallelism::None
        }
    }
}
