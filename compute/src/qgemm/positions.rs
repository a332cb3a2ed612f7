//! Room for where the taps of some rows are.

use crate::error::Result;

/// Pointers that a thread keeps, but that a window has one for each tap of at least one row.
pub(super) const POINTERS_MAX: usize = 1 << 16;

/// Room for the positions of each tap, for as many rows at once as the second number says: at most
/// `most`, and fewer where windows have many taps.
///
/// # Errors
/// Out of memory.
pub(crate) fn positions(taps: usize, most: usize) -> Result<(Vec<*const u8>, usize)> {
    let mut rows = most.max(1);
    while rows > 1 && taps.saturating_mul(rows) > POINTERS_MAX {
        rows /= 2;
    }
    let bytes = taps.saturating_mul(rows).saturating_mul(size_of::<*const u8>());
    let mut at = Vec::new();
    let room = at.try_reserve_exact(taps.saturating_mul(rows));
    room.map_err(|_| lgp_memory::Error::OutOfMemory { bytes })?;
    at.resize(taps * rows, std::ptr::null());
    Ok((at, rows))
}
