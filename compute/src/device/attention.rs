//! Attention on devices, without the matrix of scores.

use super::expression::literal;
use super::kernel::{Argument, Call, Kernel, groups, load};
use super::launches::Launches;
use lgp_memory::DType;

/// The most columns of a work-group's result for each work-item.
const COLUMNS_MAX: usize = 8;
/// Work-items along each side of a work-group.
const SIDE: usize = 16;
/// Keys that a work-group takes at a time, and the fewest that are worth a group of their own.
const KEYS: usize = 64;
const SHARE_MIN: usize = 2 * KEYS;
/// Work-groups of four waves that keep a card busy.
const GROUPS: usize = 72;
/// The numbers of groups that may be worth sharing the keys of a row.
const SPLITS: [usize; 4] = [1, 2, 4, 8];

/// A tensor, and the elements between neighbours along its batches, heads, rows and columns; 0
/// along an axis that is broadcast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    /// Where it is.
    pub argument: Argument,
    /// The steps.
    pub steps: [usize; 4],
}

/// Numbers that are added to scores or, in a mask of bool, which scores count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mask {
    /// Rows are queries, columns are keys.
    pub grid: Grid,
    /// Bool, or the dtype of the attention.
    pub dtype: DType,
    /// The number of keys in the mask; keys after them do not count.
    pub width: usize,
}

/// `softmax(scale · q · k + mask) · v` for each batch and head.
#[derive(Debug, Clone)]
pub(crate) struct Attention {
    /// The dtype of all but the mask.
    pub dtype: DType,
    /// Batches and heads.
    pub batch: usize,
    pub heads: usize,
    /// Heads that share one head of k and v.
    pub sharing: usize,
    /// The numbers of queries and keys, the elements of each of them, and the elements of a value.
    pub sizes: [usize; 4],
    /// Query; key, whose rows are its elements; and value.
    pub operands: [Grid; 3],
    /// The result.
    pub y: Grid,
    /// Factor of the products.
    pub scale: f32,
    /// Where it is not 0, scores become `cap · tanh(score / cap)`.
    pub softcap: f32,
    pub mask: Option<Mask>,
    /// The last key that query 0 sees, where that is limited; query `i` sees `i` keys more.
    pub causal: Option<usize>,
    /// How many keys of each batch count, as i64.
    pub counts: Option<Argument>,
    /// Whether a query without any keys that count gives 0, not NaN.
    pub nothing_is_zero: bool,
}

/// How the work of an attention is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Schedule {
    /// Rows of a work-item.
    each_row: usize,
    /// Work-groups that share the keys of a row, and the keys of each.
    splits: usize,
    share: usize,
}

impl Attention {
    /// Adds the launches to others; `None` where kernels cannot index the tensors, or there is
    /// nothing to compute.
    pub(crate) fn add_to(&self, launches: &mut Launches) -> Option<()> {
        self.add_with(self.schedule(), launches)
    }

    /// The launches of every schedule that is worth measuring, after `first`; those of
    /// [`Attention::add_to`] come first.
    pub(crate) fn schedules(&self, first: &Launches) -> Vec<Launches> {
        let mut schedules = vec![self.schedule()];
        for each_row in [1, 2] {
            for splits in SPLITS {
                let other = self.divided(each_row, splits);
                if !schedules.contains(&other) {
                    schedules.push(other);
                }
            }
        }
        let launches = |schedule: &Schedule| {
            let mut launches = first.clone();
            self.add_with(*schedule, &mut launches)?;
            Some(launches)
        };
        schedules.iter().filter_map(launches).collect()
    }

    fn schedule(&self) -> Schedule {
        // A work-item has one row where that keeps more of the card busy, else two. With more rows,
        // registers and local memory would leave room for two waves only.
        let count = |each_row| self.tiles(each_row).iter().product::<usize>();
        let each_row = if count(2) >= GROUPS { 2 } else { 1 };
        self.divided(each_row, GROUPS.div_ceil(count(each_row).max(1)))
    }

    /// The schedule with about so many splits, none of them of few keys.
    fn divided(&self, each_row: usize, splits: usize) -> Schedule {
        let keys = self.sizes[1];
        let splits = splits.min(keys / SHARE_MIN).max(1);
        let share = keys.div_ceil(splits).next_multiple_of(KEYS).max(KEYS);
        Schedule { each_row, splits: keys.div_ceil(share).max(1), share }
    }

    /// Columns of a work-item.
    fn each_column(&self) -> usize {
        self.sizes[3].div_ceil(SIDE).clamp(1, COLUMNS_MAX)
    }

    /// Work-groups along rows, heads and columns, without splits.
    fn tiles(&self, each_row: usize) -> [usize; 3] {
        let [rows, _, _, columns] = self.sizes;
        let heads = self.batch * self.heads;
        [rows.div_ceil(SIDE * each_row), heads, columns.div_ceil(SIDE * self.each_column())]
    }

    fn add_with(&self, schedule: Schedule, launches: &mut Launches) -> Option<()> {
        let [rows, keys, depth, columns] = self.sizes;
        let Schedule { each_row, splits, share } = schedule;
        let mut groups = self.tiles(each_row);
        if groups.contains(&0) {
            return None;
        }
        groups[0] *= splits;
        let kernel =
            Kernel::new("attention", include_str!("attention/attention.cl"), [SIDE, SIDE, 1])
                .define("EACH_ROW", each_row)
                .define("EACH_COLUMN", self.each_column())
                .define("SPLITS", splits)
                .define("KEYS_APART", u8::from(self.operands[1].steps[3] != 1))
                .define("LOAD(p, i)", load(self.dtype, "p", "(i)"));
        let kernel = self.rules(self.nothing(kernel)).storing(self.dtype)?;
        let mut arguments: Vec<Argument> = self.operands.iter().map(|x| x.argument).collect();
        arguments.extend(self.mask.map(|mask| mask.grid.argument));
        arguments.extend(self.counts);
        let (kernel, y) = match splits {
            1 => (kernel, self.y.argument),
            _ => (parts_of_floats(kernel), Argument::Scratch(launches.scratch.len())),
        };
        arguments.push(y);
        let [q, k, v] = self.operands.map(|x| x.steps);
        let mut numbers =
            [q, k, v, self.mask.map_or([0; 4], |mask| mask.grid.steps), self.y.steps].concat();
        numbers.extend([self.heads, self.sharing, rows, keys, depth, columns]);
        numbers.extend([self.mask.map_or(keys, |mask| mask.width), self.causal.unwrap_or(0)]);
        numbers.push(share);
        for number in numbers {
            arguments.push(Argument::U32(u32::try_from(number).ok()?));
        }
        arguments.push(Argument::F32(self.scale));
        let heads = self.batch * self.heads;
        let read = heads * (rows * (depth + columns) + keys * (depth + columns));
        let flops = 2 * (heads * rows * keys) as u64 * (depth + columns) as u64;
        let bytes = (read * self.dtype.size()) as u64;
        let call = Call { kernel, groups, arguments, flops, bytes };
        if splits == 1 {
            launches.calls.push(call);
            return Some(());
        }
        let parts = heads.checked_mul(rows)?.checked_mul(splits)?.checked_mul(columns + 2)?;
        let parts = i32::try_from(parts).is_ok().then_some(parts)?;
        launches.scratch.push(4 * parts);
        launches.calls.extend([call, self.join(y, splits, parts)?]);
        Some(())
    }

    /// The launch that joins the `parts` elements that splits leave.
    fn join(&self, from: Argument, splits: usize, parts: usize) -> Option<Call> {
        const GROUP: usize = 64;
        let [rows, keys, _, columns] = self.sizes;
        let kernel =
            Kernel::new("attention_join", include_str!("attention/join.cl"), [GROUP, 1, 1])
                .define("SPLITS", splits);
        let kernel = self.nothing(kernel).storing(self.dtype)?;
        let mut arguments = vec![from, self.y.argument];
        let lines = self.batch * self.heads * rows;
        let mut numbers = self.y.steps.to_vec();
        numbers.extend([self.heads, lines, rows, columns, keys]);
        for number in numbers {
            arguments.push(Argument::U32(u32::try_from(number).ok()?));
        }
        let groups = [groups(lines * columns, GROUP), 1, 1];
        let bytes = (4 * parts + lines * columns * self.dtype.size()) as u64;
        Some(Call { kernel, groups, arguments, flops: 4 * parts as u64, bytes })
    }

    /// The kernel with the rule that says whether a row has nothing to attend to.
    fn nothing(&self, kernel: Kernel) -> Kernel {
        kernel.define("NOTHING", if self.nothing_is_zero { "all == 0.0f" } else { "keys == 0" })
    }

    /// The kernel with the rules that say which scores count, and how the cap and the mask change
    /// them.
    fn rules(&self, kernel: Kernel) -> Kernel {
        let mut seen = vec!["1".to_owned()];
        let mut score = "(product)".to_owned();
        if self.softcap != 0. {
            let cap = literal(self.softcap);
            score = format!("{cap} * tanh({score} / {cap})");
        }
        let mut kernel = kernel.define(
            "MASK_POINTER",
            match self.mask {
                None => "",
                Some(Mask { dtype: DType::Bool, .. }) => "GLOBAL const u8 *mask,",
                Some(_) => "GLOBAL const STORED *mask,",
            },
        );
        if let Some(mask) = self.mask {
            seen.push("(key) < width".to_owned());
            if mask.dtype == DType::Bool {
                seen.push("mask[PLACE(mask, row, key)]".to_owned());
            } else {
                score += " + LOAD(mask, PLACE(mask, row, key))";
            }
        }
        if self.causal.is_some() {
            seen.push("(key) <= (row) + past".to_owned());
        }
        let pointer = if self.counts.is_some() { "GLOBAL const i64 *counts," } else { "" };
        kernel = kernel.define("COUNTS_POINTER", pointer);
        if self.counts.is_some() {
            seen.push("(i64)(key) < counts[batch]".to_owned());
        }
        kernel
            .define("SEEN(row, key)", format!("({})", seen.join(" && ")))
            .define("SCORE(product, row, key)", score)
    }
}

/// The kernel, which leaves sums of floats for another one.
fn parts_of_floats(kernel: Kernel) -> Kernel {
    kernel.define("EXTRA_PARAMETERS", "").define("Y_TYPE", "float")
}
