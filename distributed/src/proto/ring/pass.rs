//! Which elements go to the next rank and come from the one before, in which order.

use std::ops::Range;

/// Most bytes of elements in one frame: small enough that a link does not stand idle while the next
/// rank waits for a whole part, large enough that headers and calls cost little.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// `len` elements in `n` parts, whose lengths differ by one at most. Part `p` begins at
/// `p · len / n`.
pub(crate) fn parts(len: usize, n: usize) -> Vec<Range<usize>> {
    let (least, more) = (len / n.max(1), len % n.max(1));
    // p · len / n without the product, which may not fit.
    let at = |p: usize| p * least + p * more / n.max(1);
    (0..n).map(|p| at(p)..at(p + 1)).collect()
}

/// One way round the ring, as one rank sees it, in stretches of elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The stretches to send, each with the number of stretches that must have come before.
    pub(crate) sends: Vec<(Range<usize>, usize)>,
    /// The stretches that come.
    pub(crate) receives: Vec<Range<usize>>,
}

impl Pass {
    /// Every part goes on from rank to rank, `n - 1` times: this rank begins with part `first` of
    /// `n`, and the part after that comes last. A rank sends a stretch on as soon as it is there.
    /// Per direction a rank carries `(n - 1) / n` of all bytes, the least that is possible.
    ///
    /// An empty part travels too, as an empty frame: no rank misses a call.
    pub(crate) fn around(parts: &[Range<usize>], first: usize, chunk: usize) -> Self {
        let n = parts.len().max(1);
        let part = |step: usize| parts.get((first + n - step % n) % n).cloned().unwrap_or(0..0);
        let begun = stretches(part(0), chunk).count();
        let come = (1..n).flat_map(|step| stretches(part(step), chunk));
        let sent = (0..n - 1).flat_map(|step| stretches(part(step), chunk));
        let sends = sent.enumerate().map(|(i, range)| (range, (i + 1).saturating_sub(begun)));
        Self { sends: sends.collect(), receives: come.collect() }
    }

    /// All elements go from rank `root` to the one before it, each stretch as soon as it is there;
    /// that last rank tells the root by an empty frame that all have them.
    pub(crate) fn along(len: usize, (rank, root, n): (usize, usize, usize), chunk: usize) -> Self {
        let all: Vec<Range<usize>> = stretches(0..len, chunk).collect();
        let count = all.len();
        let behind = (rank + n - root) % n;
        let after = |i: usize| if behind == 0 { 0 } else { i + 1 };
        let pass_on = || all.iter().cloned().enumerate().map(|(i, range)| (range, after(i)));
        let told = len..len;
        match behind {
            0 => Self { sends: pass_on().collect(), receives: vec![told] },
            last if last + 1 == n => Self { sends: vec![(told, count)], receives: all },
            _ => Self { sends: pass_on().collect(), receives: all },
        }
    }

    /// Elements of the longest stretch that comes.
    pub(crate) fn longest(&self) -> usize {
        self.receives.iter().map(ExactSizeIterator::len).max().unwrap_or(0)
    }
}

/// A range in stretches of at most `chunk` elements, one at least.
fn stretches(range: Range<usize>, chunk: usize) -> impl Iterator<Item = Range<usize>> {
    let (chunk, end) = (chunk.max(1), range.end);
    let count = range.len().div_ceil(chunk).max(1);
    (0..count).map(move |i| {
        let start = range.start + i * chunk;
        start..end.min(start.saturating_add(chunk))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_carries_what_the_ring_needs_and_no_more() {
        for (len, n) in [(0, 2), (1, 3), (7, 3), (1000, 4), (1001, 5)] {
            let parts = parts(len, n);
            assert_eq!((parts[0].start, parts[n - 1].end), (0, len));
            for rank in 0..n {
                let pass = Pass::around(&parts, rank, 10);
                let sent: usize = pass.sends.iter().map(|(range, _)| range.len()).sum();
                let come: usize = pass.receives.iter().map(ExactSizeIterator::len).sum();
                assert_eq!(sent, len - parts[(rank + 1) % n].len(), "rank {rank} of {n}");
                assert_eq!(come, len - parts[rank].len(), "rank {rank} of {n}");
                // A rank sends what the next one receives.
                let next = Pass::around(&parts, (rank + 1) % n, 10);
                let sends: Vec<_> = pass.sends.into_iter().map(|(range, _)| range).collect();
                assert_eq!(sends, next.receives);
            }
        }
    }
}
