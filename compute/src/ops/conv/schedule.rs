//! How the outputs of a convolution are shared out to a device's work-items.

use crate::device::groups;

/// A product that convolutions are made of: `count` of `[maps, taps · channels]` with
/// `[taps · channels, places]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    pub(super) count: usize,
    pub(super) maps: usize,
    pub(super) places: usize,
    pub(super) taps: usize,
    pub(super) channels: usize,
}

/// A tile of outputs that a work-group computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    /// Work-items of a group, along places and along maps.
    pub(super) group: [usize; 2],
    /// Outputs of a work-item along each.
    pub(super) thread: usize,
    /// Products of each output in a step, about.
    depth: usize,
}

/// Larger ones compute more with what they load, smaller ones waste less and are more.
const TILES: [Tile; 5] = [
    Tile { group: [16, 16], thread: 6, depth: 16 },
    Tile { group: [16, 16], thread: 4, depth: 16 },
    Tile { group: [16, 8], thread: 4, depth: 8 },
    Tile { group: [8, 8], thread: 4, depth: 8 },
    Tile { group: [16, 4], thread: 4, depth: 8 },
];
const SPLITS: [usize; 5] = [1, 2, 4, 8, 16];
/// Schedules that are worth measuring.
const MEASURED: usize = 8;

/// Work-items that keep a card busy: two waves on each SIMD of 36 compute units.
pub(super) const ITEMS_BUSY: usize = 2 * 64 * 4 * 36;
/// What an element costs to load, and a sum to pass on through memory, in multiply-adds.
pub(super) const LOAD_COST: usize = 6;
const SUM_COST: usize = 100;
/// What a further launch costs, in multiply-adds of the whole card: about 5 µs.
pub(super) const LAUNCH_COST: usize = 15_000_000;

/// The parts of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) tile: Tile,
    /// Taps and channels of a step.
    pub(super) slice: usize,
    pub(super) step: usize,
    /// How many groups sum a share of the channels each, and how many channels that is.
    pub(super) splits: usize,
    pub(super) share: usize,
}

impl Schedule {
    /// The one that takes the least time, by a rough count of what a Polaris card does meanwhile.
    pub(super) fn new(product: &Product) -> Self {
        Self::all(product).min_by_key(|schedule| schedule.cost(product)).unwrap_or(Self {
            tile: TILES[TILES.len() - 1],
            slice: 1,
            step: 1,
            splits: 1,
            share: product.channels,
        })
    }

    /// The few that should take the least, by the same count.
    pub(super) fn cheapest(product: &Product) -> Vec<Self> {
        let mut all: Vec<Self> = Self::all(product).collect();
        all.sort_by_key(|schedule| schedule.cost(product));
        all.truncate(MEASURED);
        all
    }

    fn all(product: &Product) -> impl Iterator<Item = Self> {
        let all = TILES.iter().flat_map(|tile| SPLITS.map(|splits| (*tile, splits)));
        all.filter_map(|(tile, splits)| Self::with(product, tile, splits))
    }

    fn with(product: &Product, tile: Tile, splits: usize) -> Option<Self> {
        let slice = product.taps.div_ceil(product.taps.div_ceil(tile.depth));
        // Powers of two, which most numbers of channels are multiples of.
        let step = 1 << (tile.depth * 9 / 8 / slice).max(1).ilog2();
        if tile.thread > 4 && (slice < product.taps || !product.channels.is_multiple_of(step)) {
            // The places of taps, or whether there is a channel, would need registers that its sums
            // leave to no third wave.
            return None;
        }
        let share = product.channels.div_ceil(splits).next_multiple_of(step);
        let used = product.channels.div_ceil(share);
        (used == splits).then_some(Self { tile, slice, step, splits, share })
    }

    /// Work-groups along places and maps.
    pub(super) fn tiles(&self, product: &Product) -> [usize; 2] {
        let [columns, rows] = self.tile.group.map(|size| size * self.tile.thread);
        [groups(product.places, columns), groups(product.maps, rows)]
    }

    /// The time that it takes, in multiply-adds of the whole card.
    pub(super) fn cost(&self, product: &Product) -> usize {
        let Tile { group: [columns, rows], thread, .. } = self.tile;
        let items = columns * rows;
        // Each product also reads its two factors from local memory.
        let sums = items * (thread * thread + 2 * thread);
        let loads = LOAD_COST * (columns + rows) * thread;
        let [n, m] = self.tiles(product);
        let groups = (n * m * product.count * self.splits).max(ITEMS_BUSY / items);
        let products = product.taps.next_multiple_of(self.slice) * self.share.min(product.channels);
        let passed = product.count * product.maps * product.places * self.splits;
        let second = if self.splits > 1 { SUM_COST * passed + LAUNCH_COST } else { 0 };
        groups.saturating_mul(sums + loads).saturating_mul(products).saturating_add(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_products_get_large_tiles_and_small_ones_are_split() {
        for (maps, places, taps, channels, thread, items, splits) in [
            (192, 50_000, 9, 192, 6, 256, 1),
            (64, 50_000, 9, 64, 4, 256, 1),
            (64, 200_000, 49, 3, 4, 128, 1),
            (512, 49, 9, 512, 4, 256, 16),
            (8, 100_000, 1, 16, 4, 64, 1),
        ] {
            let product = Product { count: 1, maps, places, taps, channels };
            let Schedule { tile, splits: parts, .. } = Schedule::new(&product);
            let given = (tile.thread, tile.group[0] * tile.group[1], parts);
            assert_eq!(given, (thread, items, splits), "{product:?}");
        }
    }
}
