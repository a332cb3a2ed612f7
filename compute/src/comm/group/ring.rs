//! The rounds of the ring: in each, every rank sends one part to the next one, so that all links
//! work at once, and each carries as many bytes as any other.

use super::Group;
use crate::comm::arrival::Arrival;
use crate::comm::place::Place;
use crate::comm::reduce::{Turn, combine, wide};
use crate::device::{Accelerator, DeviceTensor};
use crate::error::Result;
use lgp_hal::Event;
use lgp_memory::{DType, Reduction};
use std::ops::Range;
use std::sync::Arc;

/// Collectives come before transfers of priority 0, whose bytes are not needed at once.
const PRIORITY: u8 = 128;

/// Where bytes are: the rank, its tensor, and the first byte.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a>(pub(super) usize, pub(super) &'a DeviceTensor, pub(super) usize);

/// `len` elements in `n` parts, whose sizes differ by one at most. Part `p` begins at `p · len /
/// n`.
pub(super) fn parts(len: usize, n: usize) -> Vec<Range<usize>> {
    let (least, more) = (len / n.max(1), len % n.max(1));
    // p · len / n without the product, which may overflow.
    let at = |p: usize| p * least + p * more / n.max(1);
    (0..n).map(|p| at(p)..at(p + 1)).collect()
}

impl Group {
    /// Sends the bytes of all moves at once and waits until they have arrived.
    pub(super) fn round<'a>(
        &self,
        moves: impl IntoIterator<Item = (Spot<'a>, Spot<'a>, usize)>,
    ) -> Result<()> {
        let ready: Vec<Arc<dyn Event>> =
            self.ranks().iter().map(Accelerator::record).collect::<Result<_>>()?;
        let place = |Spot(device, tensor, offset): Spot<'_>| {
            let ready = ready.get(device).map(Arc::clone);
            Place { device, buffer: Arc::clone(tensor.buffer()), offset, ready }
        };
        let send =
            |(from, to, bytes)| self.transfers().send(place(from), place(to), bytes, PRIORITY);
        let arrivals: Vec<Arrival> = moves.into_iter().map(send).collect::<Result<_>>()?;
        arrivals.into_iter().try_for_each(Arrival::wait)
    }

    /// Each rank begins with the bytes `ranges[rank]` of its tensor, and ends with those of all
    /// ranks.
    pub(super) fn ring_gather(
        &self,
        tensors: &[DeviceTensor],
        ranges: &[Range<usize>],
    ) -> Result<()> {
        let n = tensors.len();
        for round in 1..n {
            self.round((0..n).map(|rank| {
                let (next, part) = ((rank + 1) % n, &ranges[(rank + n + 1 - round) % n]);
                let spot = |rank: usize| Spot(rank, &tensors[rank], part.start);
                (spot(rank), spot(next), part.len())
            }))?;
        }
        Ok(())
    }

    /// Combines `elements` of all tensors, cut in [`parts`]. Part `p` of the result is written to
    /// `results[p]` from element `starts[p]` on: by rank `p`, after rank `p + 1` began it and each
    /// other rank in its turn added to it.
    pub(super) fn ring_reduce(
        &self,
        how: Reduction,
        tensors: &[DeviceTensor],
        (results, starts): (&[DeviceTensor], &[usize]),
    ) -> Result<()> {
        let (n, dtype) = (tensors.len(), tensors[0].dtype());
        let parts = parts(tensors[0].shape().elements()?, n);
        let most = parts.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let wide = wide(dtype)?;
        // The sum that a rank sends, and the sum that it receives meanwhile.
        let sums = |rank: &Accelerator| Ok([rank.alloc(wide, [most])?, rank.alloc(wide, [most])?]);
        let sums: Vec<[DeviceTensor; 2]> = self.ranks().iter().map(sums).collect::<Result<_>>()?;
        let step = Step { group: self, how, dtype, parts: &parts };
        for rank in 0..n {
            step.run(
                rank,
                (rank + n - 1) % n,
                Turn::First,
                &[&tensors[rank]],
                (&sums[rank][0], 0),
            )?;
        }
        for round in 1..n {
            let (here, there) = ((round + 1) % 2, round % 2);
            self.round((0..n).map(|rank| {
                let (next, part) = ((rank + 1) % n, &parts[(rank + n - round) % n]);
                let from = Spot(rank, &sums[rank][here], 0);
                (from, Spot(next, &sums[next][there], 0), part.len() * wide.size())
            }))?;
            for rank in 0..n {
                let part = (rank + 2 * n - round - 1) % n;
                let (turn, target) = match round == n - 1 {
                    true => (Turn::Last(n), (&results[rank], starts[rank])),
                    false => (Turn::Middle, (&sums[rank][there], 0)),
                };
                step.run(rank, part, turn, &[&tensors[rank], &sums[rank][there]], target)?;
            }
        }
        Ok(())
    }
}

/// The arguments that all launches of a reduction share.
struct Step<'a> {
    group: &'a Group,
    how: Reduction,
    dtype: DType,
    parts: &'a [Range<usize>],
}

impl Step<'_> {
    fn run(
        &self,
        rank: usize,
        part: usize,
        turn: Turn,
        inputs: &[&DeviceTensor],
        (target, to): (&DeviceTensor, usize),
    ) -> Result<()> {
        let part = &self.parts[part];
        if part.is_empty() {
            return Ok(());
        }
        let recipe = combine(self.how, turn, self.dtype, (part.start, to, part.len()))?;
        let rank = &self.group.ranks()[rank];
        let inputs: Vec<Option<&DeviceTensor>> = inputs.iter().copied().map(Some).collect();
        rank.launch(&rank.prepare(recipe)?, &inputs, &[Some(target)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_and_differ_by_one_at_most() {
        for len in 0..40 {
            for n in 1..8 {
                let parts = parts(len, n);
                assert_eq!((parts[0].start, parts[n - 1].end), (0, len));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
                let sizes = || parts.iter().map(ExactSizeIterator::len);
                let (least, most) = (sizes().min(), sizes().max());
                assert!(
                    most.zip(least).is_some_and(|(most, least)| most - least <= 1),
                    "{parts:?}"
                );
            }
        }
        let whole = parts(usize::MAX, 3);
        assert_eq!(whole[2].end, usize::MAX);
    }
}
