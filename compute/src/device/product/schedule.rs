//! Which kernel multiplies, in which tiles, and in how many parts.

use crate::device::Kernel;
use crate::device::recipe::groups;

const GEMM: &str = concat!(include_str!("product.h"), include_str!("gemm.cl"));
const GEMV: &str = concat!(include_str!("product.h"), include_str!("gemv.cl"));

/// Products with so few rows read the right operand once for all of them, without tiles.
pub(super) const ROWS_FEW: usize = 4;
/// Waves of 64 work-items that keep a card busy: two for each of the 144 vector units of a Polaris
/// 10. Fewer are split along the sum.
const WAVES: usize = 288;
/// Elements of a sum that a part has at least: what adding the parts costs is then small.
const PART_MIN: usize = 128;
/// Most work-groups along the second and third dimension that every device takes.
const GROUPS_MAX: usize = 65_535;

/// A tile of the result, and what of it a work-item computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    pub(super) each: [usize; 2],
}

/// From the one that moves the least to the one that fits small results best.
const TILES: [Tile; 3] = [
    Tile { rows: 128, columns: 64, depth: 16, each: [8, 4] },
    Tile { rows: 64, columns: 64, depth: 16, each: [4, 4] },
    Tile { rows: 32, columns: 32, depth: 16, each: [4, 4] },
];

impl Tile {
    fn group(self) -> [usize; 2] {
        [self.columns / self.each[1], self.rows / self.each[0]]
    }

    fn count(self, m: usize, n: usize) -> usize {
        m.div_ceil(self.rows) * n.div_ceil(self.columns)
    }

    fn waves(self) -> usize {
        let [x, y] = self.group();
        (x * y).div_ceil(64)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Tiles(Tile),
    /// Few rows, with work-groups of so many work-items.
    Rows {
        count: usize,
        group: [usize; 2],
        columns: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) way: Way,
    /// How many parts each sum is computed in, and how many elements each has at most.
    pub(super) parts: usize,
    pub(super) part: usize,
}

impl Schedule {
    /// For a result that is not empty; `right_along` as in an operand.
    pub(super) fn new([m, n, k]: [usize; 3], batches: usize, right_along: bool) -> Self {
        let way = if m <= ROWS_FEW {
            // Neighbouring work-items read neighbours in memory.
            let (group, columns) = if right_along { ([64, 4], 4) } else { ([32, 8], 32) };
            Way::Rows { count: m, group, columns }
        } else {
            let busy = |tile: &&Tile| tile.count(m, n) * tile.waves() * batches >= WAVES;
            let wasted = |tile: &&Tile| tile.count(m, n) * tile.rows * tile.columns;
            let fits = TILES.iter().find(busy);
            // Among those that are split, what computes the least beyond the edges.
            let best = fits.or_else(|| TILES[1..].iter().min_by_key(wasted));
            Way::Tiles(*best.unwrap_or(&TILES[2]))
        };
        let (waves, step) = match way {
            Way::Tiles(tile) => (tile.count(m, n) * tile.waves() * batches, tile.depth),
            Way::Rows { group, columns, .. } => {
                (n.div_ceil(columns) * batches * group[0] * group[1] / 64, 8)
            }
        };
        let wanted = WAVES.div_ceil(waves.max(1)).min(k / PART_MIN).max(1);
        let part = k.div_ceil(wanted).next_multiple_of(step).max(step);
        Self { way, parts: k.div_ceil(part).max(1), part }
    }

    /// The kernel, with the constants of its tiles.
    pub(super) fn kernel(&self) -> Kernel {
        match self.way {
            Way::Tiles(tile) => {
                let [x, y] = tile.group();
                Kernel::new("gemm", GEMM, [x, y, 1])
                    .define("ROWS", tile.rows)
                    .define("COLUMNS", tile.columns)
                    .define("DEPTH", tile.depth)
                    .define("EACH_ROW", tile.each[0])
                    .define("EACH_COLUMN", tile.each[1])
            }
            Way::Rows { count, group: [x, y], .. } => {
                Kernel::new("gemv", GEMV, [x, y, 1]).define("VECTORS", count)
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
    fn sums_are_split_where_the_result_is_small() {
        for (sizes, batches, rows, parts) in [
            ([1024, 1024, 1024], 1, 128, 1),
            ([128, 3072, 768], 1, 64, 1),
            ([128, 768, 3072], 1, 64, 3),
            ([128, 128, 64], 12, 64, 1),
            ([40, 40, 4096], 1, 64, 32),
            ([1, 1000, 2048], 1, 1, 3),
            ([1, 1, 0], 1, 1, 1),
        ] {
            let schedule = Schedule::new(sizes, batches, false);
            let tile = match schedule.way {
                Way::Tiles(tile) => tile.rows,
                Way::Rows { count, .. } => count,
            };
            assert_eq!((tile, schedule.parts), (rows, parts), "{sizes:?} {batches}");
            assert!(schedule.part * schedule.parts >= sizes[2]);
        }
    }
}
