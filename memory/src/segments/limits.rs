//! How much memory may be taken, and in which pieces.

use super::ranges::OFFSET_BITS;
use crate::error::{Error, Result};

/// The smallest alignment: every device's buffers are aligned to at least this.
const ALIGNMENT_MIN: usize = 256;
/// The largest alignment: with more, small ranges would be large.
const ALIGNMENT_MAX: usize = 1 << 20;

/// How much [`super::Segments`] may take from its source, and in which pieces. All values are
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLimits {
    /// The limit over all segments.
    pub budget_bytes: usize,
    /// The largest segment of the source, which also limits the largest range.
    pub segment_bytes_max: usize,
    /// A new segment's size, unless a range needs more or the budget leaves less.
    pub segment_bytes: usize,
    /// The divisor of offsets and sizes: a power of two from 256 to 1 MiB.
    pub alignment_bytes: usize,
    /// When more free bytes than this lie in segments, segments without taken ranges are returned.
    pub idle_bytes_max: usize,
}

impl SegmentLimits {
    /// The alignment of ranges that every known device accepts.
    pub const ALIGNMENT: usize = 512;

    /// Limits for a budget, where no segment may be larger than `segment_bytes_max`: segments of
    /// at most 256 MiB, aligned to 512 bytes; a quarter of the budget may lie idle.
    #[must_use]
    pub fn new(budget_bytes: usize, segment_bytes_max: usize) -> Self {
        let segment_bytes_max = segment_bytes_max.min(budget_bytes);
        Self {
            budget_bytes,
            segment_bytes_max,
            segment_bytes: segment_bytes_max.min(256 << 20),
            alignment_bytes: Self::ALIGNMENT,
            idle_bytes_max: budget_bytes / 4,
        }
    }

    /// The limits with sizes of segments rounded down to the alignment and to the addressable size.
    pub(super) fn checked(self) -> Result<Self> {
        let Self { alignment_bytes: alignment, segment_bytes, segment_bytes_max, .. } = self;
        let wrong = |limit, given, expected| Err(Error::SegmentLimit { limit, given, expected });
        if !alignment.is_power_of_two() || !(ALIGNMENT_MIN..=ALIGNMENT_MAX).contains(&alignment) {
            let expected = "a power of two from 256 to 1048576";
            return wrong("alignment_bytes", alignment, expected);
        }
        if segment_bytes > segment_bytes_max {
            return wrong("segment_bytes", segment_bytes, "at most segment_bytes_max");
        }
        if segment_bytes < alignment {
            return wrong("segment_bytes", segment_bytes, "at least alignment_bytes");
        }
        let addressed = 1usize.checked_shl(OFFSET_BITS).unwrap_or(usize::MAX);
        let down = |bytes: usize| {
            let bytes = bytes.min(addressed - 1);
            bytes - bytes % alignment
        };
        Ok(Self {
            segment_bytes: down(segment_bytes),
            segment_bytes_max: down(segment_bytes_max),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked() {
        let good = SegmentLimits::new(1 << 30, 1 << 28);
        assert_eq!(good.checked(), Ok(good));
        let odd = SegmentLimits { segment_bytes: 1000, segment_bytes_max: 2047, ..good };
        let down = SegmentLimits { segment_bytes: 512, segment_bytes_max: 1536, ..good };
        assert_eq!(odd.checked(), Ok(down));
        for (limits, part) in [
            (SegmentLimits { alignment_bytes: 0, ..good }, "alignment_bytes is 0"),
            (SegmentLimits { alignment_bytes: 64, ..good }, "alignment_bytes is 64"),
            (SegmentLimits { alignment_bytes: 768, ..good }, "a power of two"),
            (SegmentLimits { alignment_bytes: 1 << 40, ..good }, "a power of two"),
            (SegmentLimits { segment_bytes: 1 << 29, ..good }, "at most segment_bytes_max"),
            (SegmentLimits::new(100, 1 << 20), "segment_bytes is 100"),
            (SegmentLimits::new(0, 0), "at least alignment_bytes"),
        ] {
            let error = limits.checked().expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
