//! The product's tile without vector instructions.

use super::pack::{PANEL, Packed};

/// Sums of one row of bytes and one panel of columns.
///
/// # Safety
/// `rows` has a pointer for each tap, `step` apart, to as many bytes as a segment has.
pub(super) unsafe fn row(
    weights: &Packed,
    panel: usize,
    rows: *const *const u8,
    step: usize,
    sums: &mut [i32; PANEL],
) {
    let lines = &weights.lines[panel * weights.panel()..][..weights.panel()];
    for (tap, lines) in lines.chunks_exact(weights.groups.max(1)).enumerate() {
        // SAFETY: the caller vouches for the pointers, and a segment has four bytes a line.
        let x = unsafe {
            std::slice::from_raw_parts((*rows.add(tap * step)).cast::<[u8; 4]>(), lines.len())
        };
        for (x, line) in x.iter().zip(lines) {
            for (sum, w) in sums.iter_mut().zip(line.0.as_chunks::<4>().0) {
                for (x, w) in x.iter().zip(w) {
                    *sum = sum.wrapping_add(i32::from(*x) * i32::from(*w));
                }
            }
        }
    }
}
