//! Bytes in a device's memory.

use crate::error::{Error, Result};
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// A fixed number of bytes in one device's memory. The memory is freed when the last handle is
/// dropped and no queued command needs it. A [`crate::Queue`] reads and writes the content.
pub trait Buffer: Debug + Send + Sync {
    /// The size in bytes.
    fn bytes(&self) -> usize;

    /// The `bytes` bytes from `offset` on, as a buffer that shares this one's memory and keeps it
    /// alive. Kernels must not write to two slices that overlap while either is read.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Unaligned`] for an offset that is no multiple of
    /// [`crate::Caps::alignment_bytes`]; or the driver's refusal.
    fn slice(self: Arc<Self>, offset: usize, bytes: usize) -> Result<Arc<dyn Buffer>>;

    /// The backend's own type, for a downcast.
    fn as_any(&self) -> &dyn Any;
}

/// Refuses an offset at which no slice can begin.
pub(crate) fn refuse_unaligned(offset: usize, alignment: usize) -> Result<()> {
    if alignment > 0 && !offset.is_multiple_of(alignment) {
        return Err(Error::Unaligned { offset, alignment });
    }
    Ok(())
}

/// The range `offset..offset + bytes`, if it lies in a buffer of `capacity` bytes.
pub(crate) fn range(offset: usize, bytes: usize, capacity: usize) -> Result<Range<usize>> {
    match offset.checked_add(bytes) {
        Some(end) if end <= capacity => Ok(offset..end),
        _ => Err(Error::OutOfBounds { offset, bytes, capacity }),
    }
}

/// Refuses a copy within one buffer whose ranges share a byte.
pub(crate) fn refuse_overlap(from: usize, to: usize, bytes: usize) -> Result<()> {
    if from.abs_diff(to) < bytes {
        return Err(Error::Overlap { from, to, bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_without_overflow() {
        for (offset, bytes, capacity, fits) in [
            (0, 0, 0, true),
            (0, 8, 8, true),
            (8, 0, 8, true),
            (8, 1, 8, false),
            (9, 0, 8, false),
            (usize::MAX, 1, 8, false),
            (1, usize::MAX, 8, false),
        ] {
            let answer = range(offset, bytes, capacity);
            assert_eq!(answer.is_ok(), fits, "{offset} {bytes} {capacity}: {answer:?}");
        }
    }

    #[test]
    fn overlaps_are_found_in_both_directions() {
        for (from, to, bytes, apart) in
            [(0, 4, 4, true), (0, 3, 4, false), (3, 0, 4, false), (4, 0, 4, true), (2, 2, 0, true)]
        {
            assert_eq!(refuse_overlap(from, to, bytes).is_ok(), apart, "{from} {to} {bytes}");
        }
    }
}
