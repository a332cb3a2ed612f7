//! Sizes of a pool's blocks.

/// Sizes up to this many bytes are rounded to a size class and reused exactly.
pub(super) const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Larger sizes are rounded to this granularity.
const LARGE_STEP: usize = 4096;

/// The capacity that serves `len > 0` bytes: a size class, or a multiple of the large step.
pub(super) fn rounded(len: usize) -> Option<usize> {
    if len <= SMALL_BYTES_MAX {
        Some(class_bytes(class(len)))
    } else {
        len.checked_next_multiple_of(LARGE_STEP)
    }
}

/// The smallest class that holds `len` bytes. Classes are 64, 128, 192, 256, and from there four
/// steps per doubling, so that rounding wastes less than a quarter.
pub(super) fn class(len: usize) -> usize {
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
}
