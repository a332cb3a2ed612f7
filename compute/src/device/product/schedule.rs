//! Which kernel multiplies, in which tiles, and in how many parts.

use crate::device::kernel::{Kernel, WAVES_BUSY, groups};
use crate::device::recipe::GROUPS_MAX;

const GEMM: &str = concat!(
    include_str!("product.h"),
    include_str!("operands.h"),
    include_str!("blocks.h"),
    include_str!("gemm.cl")
);
const GEMV: &str = concat!(
    include_str!("product.h"),
    include_str!("operands.h"),
    include_str!("blocks.h"),
    include_str!("gemv.cl")
);

/// Products with at most so many rows read the right operand once for all rows, without tiles.
pub(super) const ROWS_FEW: usize = 4;
/// The fewest elements of a sum in a part, so that adding the parts costs little.
const PART_MIN: usize = 128;
/// The numbers of parts that may be worth computing a sum in.
const PARTS: [usize; 5] = [1, 2, 4, 8, 16];

/// A tile of the result, and the part of it that a work-item computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) each: [usize; 2],
    /// Elements of the sum that it takes at a time, as vectors.
    depth: usize,
    /// How many of a hundred instructions multiply, as Mesa compiles its loop for a Polaris card.
    useful: usize,
}

/// Tiles, from the largest to the one that fits small results best.
const TILES: [Tile; 4] = [
    Tile { rows: 128, columns: 64, each: [8, 4], depth: 16, useful: 77 },
    // With more elements at a time, the loads under way would leave three waves instead of four.
    Tile { rows: 96, columns: 96, each: [6, 6], depth: 8, useful: 69 },
    Tile { rows: 64, columns: 64, each: [4, 4], depth: 16, useful: 69 },
    Tile { rows: 32, columns: 32, each: [4, 4], depth: 16, useful: 65 },
];
/// The tiles that products are split for.
const SMALL: &[Tile] = &[TILES[2], TILES[3]];

/// Elements of the sum that a tile takes at a time as single elements: fewer than as vectors, so
/// that the loads under way need no more registers.
const DEPTH_ELEMENTS: usize = 8;
/// The work-group of few rows with columns that lie along the sum.
const ALONG: [usize; 2] = [64, 4];
/// What the lengths of parts are multiples of where there are no tiles.
const DEPTH_ROWS: usize = 16;

impl Tile {
    fn group(self) -> [usize; 2] {
        [self.columns / self.each[1], self.rows / self.each[0]]
    }

    fn count(self, m: usize, n: usize) -> usize {
        m.div_ceil(self.rows) * n.div_ceil(self.columns)
    }

    /// The time of a result, in multiply-adds of its tiles.
    fn cost(self, m: usize, n: usize) -> usize {
        (self.count(m, n) * self.rows * self.columns).saturating_mul(100) / self.useful
    }

    fn waves(self) -> usize {
        let [x, y] = self.group();
        (x * y).div_ceil(64)
    }
}

/// The tiles for operands that are loaded by so many elements.
fn tiles(widths: [usize; 2]) -> &'static [Tile] {
    // Where one operand is loaded in vectors and the other in single elements, the largest tiles
    // need more registers than three waves have.
    if widths[0] == widths[1] { &TILES } else { SMALL }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Tiles(Tile),
    /// `count` rows, with work-groups of `group` work-items for `columns` columns, of which a
    /// work-item sums `each`.
    Rows {
        count: usize,
        group: [usize; 2],
        columns: usize,
        each: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) way: Way,
    /// Elements of each sum that are taken at a time.
    pub(super) depth: usize,
    /// How many parts each sum is computed in, and how many elements each has at most.
    pub(super) parts: usize,
    pub(super) part: usize,
}

impl Schedule {
    /// The schedule for a result that is not empty. `right_along` says whether the right operand
    /// lies along the sum; `widths` are how many elements of each operand are loaded at once.
    pub(super) fn new(
        sizes: [usize; 3],
        batches: usize,
        right_along: bool,
        widths: [usize; 2],
    ) -> Self {
        let [m, n, k] = sizes;
        let way = if m <= ROWS_FEW {
            Self::rows(m, right_along, if Self::is_wide(n, batches) { 2 } else { 1 })
        } else {
            let busy = |tile: &&Tile| tile.count(m, n) * tile.waves() * batches >= WAVES_BUSY;
            let cost = |tile: &&Tile| tile.cost(m, n);
            let fits = tiles(widths).iter().filter(busy).min_by_key(cost);
            let best = fits.or_else(|| SMALL.iter().min_by_key(cost));
            Way::Tiles(*best.unwrap_or(&SMALL[1]))
        };
        let waves = match way {
            Way::Tiles(tile) => tile.count(m, n) * tile.waves() * batches,
            Way::Rows { group, columns, .. } => {
                n.div_ceil(columns) * batches * group[0] * group[1] / 64
            }
        };
        let wanted = WAVES_BUSY.div_ceil(waves.max(1)).min(k / PART_MIN).max(1);
        Self::with(way, k, widths, wanted)
    }

    /// The way to compute a few rows. A work-item that sums two columns loads the rows once for both.
    fn rows(count: usize, right_along: bool, each: usize) -> Way {
        // Neighbouring work-items read neighbours in memory.
        match right_along {
            true => Way::Rows { count, group: ALONG, columns: ALONG[1] * each, each },
            false => Way::Rows { count, group: [32, 8], columns: 32, each: 1 },
        }
    }

    /// Whether a result of few rows has columns enough for two of a work-item.
    fn is_wide(n: usize, batches: usize) -> bool {
        n.div_ceil(8) * batches * 4 >= WAVES_BUSY
    }

    fn with(way: Way, k: usize, widths: [usize; 2], wanted: usize) -> Self {
        let depth = match way {
            _ if widths == [1, 1] => DEPTH_ELEMENTS,
            Way::Tiles(tile) => tile.depth,
            Way::Rows { .. } => DEPTH_ROWS,
        };
        let part = k.div_ceil(wanted).next_multiple_of(depth).max(depth);
        Self { way, depth, parts: k.div_ceil(part).max(1), part }
    }

    /// Schedules that may be faster on some device: every tile, or one, two and four columns of a
    /// work-item, with sums in one part and in several.
    pub(super) fn others(&self, k: usize, widths: [usize; 2]) -> Vec<Self> {
        let ways: Vec<Way> = match self.way {
            Way::Tiles(_) => tiles(widths).iter().copied().map(Way::Tiles).collect(),
            Way::Rows { count, group, .. } => {
                let along = group == ALONG;
                [1, 2, 4].map(|each| Self::rows(count, along, each)).to_vec()
            }
        };
        let splits = PARTS.iter().filter(|parts| **parts == 1 || k / **parts >= PART_MIN);
        let splits: Vec<usize> = splits.copied().collect();
        let mut others: Vec<Self> = Vec::new();
        for way in ways {
            for &wanted in &splits {
                let other = Self::with(way, k, widths, wanted);
                if other != *self && !others.contains(&other) {
                    others.push(other);
                }
            }
        }
        others
    }

    /// The kernel, with the constants of its tiles.
    pub(super) fn kernel(&self) -> Kernel {
        match self.way {
            Way::Tiles(tile) => {
                let [x, y] = tile.group();
                Kernel::new("gemm", GEMM, [x, y, 1])
                    .define("ROWS", tile.rows)
                    .define("COLUMNS", tile.columns)
                    .define("DEPTH", self.depth)
                    .define("EACH_ROW", tile.each[0])
                    .define("EACH_COLUMN", tile.each[1])
            }
            Way::Rows { count, group: [x, y], each, .. } => {
                Kernel::new("gemv", GEMV, [x, y, 1]).define("VECTORS", count).define("EACH", each)
            }
        }
    }

    /// The grid; `None` for one that is too large for some device.
    pub(super) fn groups(&self, [m, n, _]: [usize; 3], batches: usize) -> Option<[usize; 3]> {
        let [x, y] = match self.way {
            Way::Tiles(tile) => [groups(n, tile.columns), groups(m, tile.rows)],
            Way::Rows { columns, .. } => [groups(n, columns), 1],
        };
        let z = batches * self.parts;
        (y <= GROUPS_MAX && z <= GROUPS_MAX).then_some([x, y, z])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_loaded_by_whole_groups() {
        for tile in TILES {
            let [x, y] = tile.group();
            for side in [tile.rows, tile.columns] {
                // Whole waves load or do not.
                assert_eq!(side * tile.depth / 4 % 64, 0, "{tile:?}");
                assert_eq!(side * DEPTH_ELEMENTS % (x * y), 0, "{tile:?}");
            }
        }
    }

    #[test]
    fn others_are_others() {
        let best = Schedule::new([128, 768, 768], 1, false, [4, 4]);
        let others = best.others(768, [4, 4]);
        assert!(others.len() > TILES.len() && !others.contains(&best), "{others:?}");
        assert!(others.iter().all(|other| other.part * other.parts >= 768), "{others:?}");
    }

    #[test]
    fn sums_are_split_where_the_result_is_small() {
        for (sizes, batches, rows, parts) in [
            ([1024, 1024, 1024], 1, 128, 1),
            ([288, 3072, 768], 1, 96, 1),
            ([128, 3072, 768], 1, 64, 1),
            ([128, 768, 3072], 1, 64, 3),
            ([128, 128, 64], 12, 64, 1),
            ([40, 40, 4096], 1, 64, 32),
            ([1, 1000, 2048], 1, 1, 3),
            ([1, 4096, 4096], 1, 1, 1),
            ([1, 1, 0], 1, 1, 1),
        ] {
            let schedule = Schedule::new(sizes, batches, false, [4, 4]);
            let tile = match schedule.way {
                Way::Tiles(tile) => tile.rows,
                Way::Rows { count, .. } => count,
            };
            assert_eq!((tile, schedule.parts), (rows, parts), "{sizes:?} {batches}");
            assert!(schedule.part * schedule.parts >= sizes[2]);
        }
    }
}
