//! How a convolution divides its outputs among a device's work-items.

use crate::device::groups;

/// The matrix products of a convolution: `count` products of `[maps, taps · channels]` with
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
    /// Approximate number of products of each output in a step.
    depth: usize,
}

/// Larger tiles compute more per load; smaller tiles waste less and are more numerous.
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
/// The costs of loading an element and of passing a sum through memory, in multiply-adds.
pub(super) const LOAD_COST: usize = 6;
const SUM_COST: usize = 100;
/// The cost of loading an element into local memory, as Mesa compiles the product's kernel for a
/// Polaris card.
const TILE_LOAD_COST: usize = 15;
/// Numbers per read from local memory.
const VECTOR: usize = 4;
/// The cost of another launch, about 5 µs, in multiply-adds of the whole card.
pub(super) const LAUNCH_COST: usize = 15_000_000;

/// How a product is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) tile: Tile,
    /// Taps and channels of a step.
    pub(super) slice: usize,
    pub(super) step: usize,
    /// The number of work-groups that share the channels of an output, and the channels of each.
    pub(super) splits: usize,
    pub(super) share: usize,
}

impl Schedule {
    /// The schedule that takes the least time, by a rough count of a Polaris card's work.
    pub(super) fn new(product: &Product) -> Self {
        Self::all(product).min_by_key(|schedule| schedule.cost(product)).unwrap_or(Self {
            tile: TILES[TILES.len() - 1],
            slice: 1,
            step: 1,
            splits: 1,
            share: product.channels,
        })
    }

    /// The few schedules that take the least time by the same count.
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
        // A power of two, because most numbers of channels are multiples of one.
        let step = 1 << (tile.depth * 9 / 8 / slice).max(1).ilog2();
        if tile.thread > 4 && (slice < product.taps || !product.channels.is_multiple_of(step)) {
            // Places of taps, or checks whether a channel exists, would need registers; beside the
            // sums, these would leave no room for a third wave.
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

    /// The time of the product, in multiply-adds of the whole card.
    pub(super) fn cost(&self, product: &Product) -> usize {
        let Tile { group: [columns, rows], thread, .. } = self.tile;
        let items = columns * rows;
        // Each product also reads its two factors from local memory.
        let sums = items * (thread * thread + 2 * thread.div_ceil(VECTOR));
        let loads = TILE_LOAD_COST * (columns + rows) * thread;
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
            (64, 200_000, 49, 3, 4, 256, 1),
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
