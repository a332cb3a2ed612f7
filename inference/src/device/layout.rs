//! The layout of a device's memory: the place of each tensor, the weights that stay there, and the
//! weights that each run sends.
//!
//! Every run reads its weights in the same known order. The weight that was just read is therefore
//! the one needed last, and the best choice is to give up the weight needed last (Belady, 1966):
//! one set of weights stays, and every other weight leaves as soon as it has been read. The layout
//! is decided before any run.

use super::needs::{Needs, Spot, Weight};
use crate::graph::ValueId;
use lgp_memory::{ArenaPlan, Holder, Lifetime, SegmentLimits, Segments, SimulatedDevice};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Below this, the start of a transfer costs more than its bytes: small weights leave last.
const SMALL_BYTES: usize = 64 << 10;

/// How often the smallest limit may grow by a 64th: to about threefold.
const GROWTHS: usize = 70;

/// A weight that is sent for one node, or for several that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) value: ValueId,
    pub(super) bytes: usize,
    /// The node at which the weight is sent: before the node's kernels if the node reads the
    /// weight, and otherwise after its kernels are queued, while they compute.
    pub(super) issue: usize,
    /// The first node that reads the weight.
    pub(super) ready: usize,
    /// The last node that reads it.
    pub(super) last: usize,
    /// Block and offset.
    pub(super) place: (usize, usize),
}

/// The places of all tensors and weights.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// Bytes of each of the arena's blocks.
    pub(super) blocks: Vec<usize>,
    pub(super) places: HashMap<Spot, (usize, usize)>,
    /// Weights that stay, the largest first.
    pub(super) resident: Vec<ValueId>,
    /// Weights that each run sends, in the order in which they are sent.
    pub(super) streams: Vec<Stream>,
}

/// A limit that is too small for any layout.
#[derive(Debug, Clone)]
pub(super) struct TooSmall {
    /// The smallest limit that is enough.
    pub(super) smallest_bytes: usize,
    /// The needs at the node that needs most, by owner.
    pub(super) needs: Vec<Holder>,
    /// The layout within the smallest limit.
    pub(super) layout: Layout,
}

impl Layout {
    /// The layout within `limits` that moves the fewest bytes in a run, as far as is known: as many
    /// weights stay as fit. `buffer_bytes_max` is the device's own limit for one buffer.
    ///
    /// # Errors
    /// Limits that are too small even if every weight is sent in each run.
    pub(super) fn new(
        needs: &Needs,
        limits: SegmentLimits,
        buffer_bytes_max: usize,
    ) -> Result<Self, Box<TooSmall>> {
        if let Some(layout) = Self::with(needs, &HashSet::new(), true, limits) {
            return Ok(layout);
        }
        let order = leaving_order(&needs.weights);
        let first = |count: usize| order[..count].iter().copied().collect::<HashSet<_>>();
        // Uploads ahead of their nodes need room for the next weights besides the present ones.
        for ahead in [true, false] {
            let with = |count: usize| Self::with(needs, &first(count), ahead, limits);
            let Some(mut best) = with(order.len()) else { continue };
            let (mut low, mut high) = (0, order.len());
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match with(middle) {
                    Some(layout) => (best, high) = (layout, middle),
                    None => low = middle,
                }
            }
            return Ok(best);
        }
        Err(Box::new(Self::smallest(needs, limits, buffer_bytes_max)))
    }

    /// The layout that needs the least memory: every weight is sent just for its node.
    pub(super) fn smallest(
        needs: &Needs,
        limits: SegmentLimits,
        buffer_bytes_max: usize,
    ) -> TooSmall {
        let coming: HashSet<ValueId> = leaving_order(&needs.weights).into_iter().collect();
        let alignment = limits.alignment_bytes;
        let stay = needs.weights.iter().filter(|weight| !coming.contains(&weight.value));
        let stay: usize = stay.map(|weight| weight.bytes.next_multiple_of(alignment)).sum();
        let lives = lives(needs, &streams(&needs.weights, &coming, false), alignment);
        let plan = ArenaPlan::in_blocks(&lives, buffer_bytes_max);
        let arena = plan.map_or_else(|| ArenaPlan::naive(&lives), |plan| plan.blocks.iter().sum());
        let mut smallest_bytes = stay.saturating_add(arena).max(alignment);
        let within = |bytes: usize| {
            let own = SegmentLimits::new(bytes, buffer_bytes_max);
            let own = SegmentLimits { alignment_bytes: alignment, ..own };
            Self::with(needs, &coming, false, own)
        };
        // Small weights that stay take more than their size, and segments lose bytes at their ends.
        let mut layout = within(smallest_bytes);
        for _ in 0..GROWTHS {
            if layout.is_some() {
                break;
            }
            smallest_bytes += (smallest_bytes / 64).next_multiple_of(alignment).max(alignment);
            layout = within(smallest_bytes);
        }
        let needs = at_peak(needs, &lives, stay);
        TooSmall { smallest_bytes, needs, layout: layout.unwrap_or_default() }
    }

    /// Bytes of weights that each run copies to the device.
    pub(super) fn streamed_bytes(&self) -> usize {
        self.streams.iter().map(|stream| stream.bytes).sum()
    }

    /// The layout in which these weights are sent, if the pool has room for it.
    fn with(
        needs: &Needs,
        coming: &HashSet<ValueId>,
        ahead: bool,
        limits: SegmentLimits,
    ) -> Option<Self> {
        let streams = streams(&needs.weights, coming, ahead);
        let lives = lives(needs, &streams, limits.alignment_bytes);
        let plan = ArenaPlan::in_blocks(&lives, limits.segment_bytes_max)?;
        let (tensors, coming_places) = plan.places.split_at(needs.tensors.len());
        let places = needs.tensors.iter().map(|(spot, _)| *spot).zip(tensors.iter().copied());
        let mut stay: Vec<&Weight> =
            needs.weights.iter().filter(|weight| !coming.contains(&weight.value)).collect();
        stay.sort_by_key(|weight| std::cmp::Reverse(weight.bytes));
        let mut streams = streams;
        for (stream, place) in streams.iter_mut().zip(coming_places) {
            stream.place = *place;
        }
        let bytes = plan.blocks.iter().copied().chain(stay.iter().map(|weight| weight.bytes));
        has_room(limits, bytes).then(|| Self {
            places: places.collect(),
            resident: stay.iter().map(|weight| weight.value).collect(),
            streams,
            blocks: plan.blocks,
        })
    }
}

/// The weights that may be sent, in the order in which they give up their place. The first weights
/// lie spread over the run, so that the link always has work. Small weights and weights that
/// several nodes read are last.
fn leaving_order(weights: &[Weight]) -> Vec<ValueId> {
    let mut all: Vec<&Weight> = weights.iter().filter(|weight| !weight.renamed).collect();
    all.sort_by_key(|weight| weight.steps.first().copied());
    let turn = |at: usize| u64::try_from(at).unwrap_or(u64::MAX).reverse_bits();
    let mut turns: Vec<(bool, u64, ValueId)> = all
        .iter()
        .enumerate()
        .map(|(at, w)| (w.bytes < SMALL_BYTES || w.steps.len() > 1, turn(at), w.value))
        .collect();
    turns.sort_unstable();
    turns.into_iter().map(|(.., value)| value).collect()
}

/// The uploads of the weights in `coming`, in the order in which they are sent.
fn streams(weights: &[Weight], coming: &HashSet<ValueId>, ahead: bool) -> Vec<Stream> {
    let weights: Vec<&Weight> = weights.iter().filter(|w| coming.contains(&w.value)).collect();
    let mut turns: Vec<usize> = weights.iter().flat_map(|w| w.steps.iter().copied()).collect();
    turns.sort_unstable();
    turns.dedup();
    let before = |step: usize| {
        let turn = turns.partition_point(|&turn| turn < step);
        turn.checked_sub(1).map_or(0, |turn| turns[turn])
    };
    let mut all = Vec::new();
    for &Weight { value, bytes, ref steps, .. } in weights {
        let mut own: Vec<Stream> = Vec::new();
        for &ready in steps {
            match own.last_mut() {
                // No other weight is sent in between, so this weight keeps its place.
                Some(stream) if before(ready) == stream.last => stream.last = ready,
                _ => {
                    let issue = if ahead { before(ready) } else { ready };
                    own.push(Stream { value, bytes, issue, ready, last: ready, place: (0, 0) });
                }
            }
        }
        all.extend(own);
    }
    all.sort_by_key(|stream| (stream.issue, stream.ready));
    all
}

/// The lifetimes of everything in the arena; sizes are rounded up to the alignment of places.
fn lives(needs: &Needs, streams: &[Stream], alignment: usize) -> Vec<Lifetime> {
    let coming = streams.iter().map(|s| Lifetime { bytes: s.bytes, first: s.issue, last: s.last });
    let all = needs.tensors.iter().map(|(_, life)| *life).chain(coming);
    all.map(|life| Lifetime { bytes: life.bytes.next_multiple_of(alignment), ..life }).collect()
}

/// Whether an empty pool has room for blocks of these sizes. A pool on a device that only counts
/// bytes answers it.
fn has_room(limits: SegmentLimits, mut blocks: impl Iterator<Item = usize>) -> bool {
    let device = SimulatedDevice::new(limits.budget_bytes, limits.segment_bytes_max);
    let Ok(mut pool) = Segments::new(limits, device) else { return false };
    blocks.all(|bytes| pool.allocate(bytes, "").is_ok())
}

/// The needs at the node that needs most, by owner, the largest first.
fn at_peak(needs: &Needs, lives: &[Lifetime], stay: usize) -> Vec<Holder> {
    let (step, _) = ArenaPlan::peak(lives);
    let owner = |i: usize| match needs.tensors.get(i) {
        None => "weights",
        Some((Spot::Scratch(..), _)) => "scratch",
        Some(_) => "values",
    };
    let mut sums: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    if stay > 0 {
        sums.insert("weights", (1, stay));
    }
    for (i, life) in lives.iter().enumerate() {
        if (life.first..=life.last).contains(&step) {
            let (ranges, bytes) = sums.entry(owner(i)).or_default();
            (*ranges, *bytes) = (*ranges + 1, *bytes + life.bytes);
        }
    }
    let holder =
        |(owner, (ranges, bytes)): (&str, _)| Holder { owner: owner.into(), ranges, bytes };
    let mut holders: Vec<Holder> = sums.into_iter().map(holder).collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
    holders
}

#[cfg(test)]
mod tests;
