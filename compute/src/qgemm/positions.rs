//! The buffer of pointers to the taps of some rows.

use crate::error::Result;

/// The most pointers of a thread, except that at least one row always has a pointer for each tap.
pub(super) const POINTERS_MAX: usize = 1 << 16;

/// A buffer of pointers to each tap of some rows, and the number of these rows: at most `most`, and
/// fewer where windows have many taps.
///
/// # Errors
/// Out of memory.
pub(crate) fn positions(taps: usize, most: usize) -> Result<(Vec<*const u8>, usize)> {
    let mut rows = most.max(1);
    while rows > 1 && taps.saturating_mul(rows) > POINTERS_MAX {
        rows /= 2;
    }
    let at = filled(taps.saturating_mul(rows), std::ptr::null())?;
    Ok((at, rows))
}

/// A vector of so many equal elements.
///
/// # Errors
/// Out of memory.
pub(super) fn filled<T: Clone>(count: usize, element: T) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>());
    let mut all = Vec::new();
    let room = all.try_reserve_exact(count);
    room.map_err(|_| lgp_memory::Error::OutOfMemory { bytes })?;
    all.resize(count, element);
    Ok(all)
}
