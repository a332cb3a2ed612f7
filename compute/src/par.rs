//! The split of a kernel's work between threads.

use crate::error::{Error, Result};
use crate::op::Context;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

/// Work below this many elementary operations is not worth waking a thread for.
const WORTH_A_THREAD: usize = 1 << 15;

impl Context {
    /// Calls `work` on contiguous parts of `out`, each a whole number of units, with the index of
    /// the part's first unit. `cost` is the number of elementary operations of one unit.
    ///
    /// With one thread, or with little work, the calling thread makes a single call. The parts
    /// depend on the input and the number of threads only.
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
        let parts = self.parts(units, units.saturating_mul(cost.max(1)));
        if parts <= 1 {
            return work(0, out);
        }
        let per_part = units.div_ceil(parts);
        let parts = units.div_ceil(per_part);
        let len = out.len();
        let shared = Shared::new(out);
        self.parallel(parts, |i| {
            let range = i * per_part * unit..len.min((i + 1) * per_part * unit);
            // SAFETY: the ranges of two parts are disjoint, and each part runs once.
            work(i * per_part, unsafe { shared.slice(range) });
        });
    }

    /// Calls `work` once with each number below `parts`, on the context's threads, and returns when
    /// all calls have ended.
    ///
    /// The parts must depend on the input and the number of threads only, because any thread may
    /// take any part. A call from inside a part runs on the part's own thread.
    pub fn parallel(&self, parts: usize, work: impl Fn(usize) + Sync) {
        self.workers().run(parts, &work);
    }

    /// The number of parts for so many units of so many elementary operations together: at most one
    /// for each thread, and one where threads would not gain.
    pub(crate) fn parts(&self, units: usize, operations: usize) -> usize {
        self.threads().min(operations / WORTH_A_THREAD).min(units).max(1)
    }
}

/// The error of a computation in parts on several threads.
#[derive(Default)]
pub(crate) struct Failure(Mutex<Option<Error>>);

impl Failure {
    /// Keeps a part's error.
    pub(crate) fn note(&self, part: Result<()>) {
        if let Err(error) = part {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    /// The last error, once all parts have ended.
    pub(crate) fn result(self) -> Result<()> {
        let error = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        error.map_or(Ok(()), Err)
    }
}

/// A slice whose elements several threads write, each its own.
pub(crate) struct Shared<'a, T> {
    data: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: the slice was borrowed exclusively, and `slice` has its callers keep threads apart.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), lifetime: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A pointer to an element of the slice, or just past its end. The position is checked.
    pub(crate) fn at(&self, position: usize) -> *mut T {
        assert!(position <= self.len, "a position in the slice");
        // SAFETY: the position lies in the slice or at its end.
        unsafe { self.data.add(position) }
    }

    /// A part of the slice. The range is checked.
    ///
    /// # Safety
    /// No two slices that overlap are alive at the same time.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "a part of the slice");
        // SAFETY: the range lies in the slice, which is borrowed exclusively for 'a; the caller
        // promises that no other slice has these elements.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}
