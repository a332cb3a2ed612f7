//! Attention on devices, without the matrix of scores.

use super::expression::literal;
use super::kernel::{Argument, Call, Kernel, load};
use lgp_memory::DType;

/// The most columns of a work-group's result for each work-item.
const COLUMNS_MAX: usize = 8;
/// Work-items along each side of a work-group.
const SIDE: usize = 16;
/// Work-groups of four waves that keep a card busy.
const GROUPS: usize = 72;

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

impl Attention {
    /// The launch; `None` where kernels cannot index the tensors, or there is nothing to compute.
    pub(crate) fn call(&self) -> Option<Call> {
        let [rows, keys, depth, columns] = self.sizes;
        let each_column = columns.div_ceil(SIDE).clamp(1, COLUMNS_MAX);
        let heads = self.batch * self.heads;
        let groups = |each_row: usize| {
            [rows.div_ceil(SIDE * each_row), heads, columns.div_ceil(SIDE * each_column)]
        };
        // A work-item has one row where that keeps more of the card busy, else two. With more rows,
        // registers and local memory would leave room for two waves only.
        let each_row = if groups(2).iter().product::<usize>() >= GROUPS { 2 } else { 1 };
        let groups = groups(each_row);
        if groups.contains(&0) || groups[1..].iter().any(|&n| n > 65_535) {
            return None;
        }
        let kernel =
            Kernel::new("attention", include_str!("attention/attention.cl"), [SIDE, SIDE, 1])
                .define("EACH_ROW", each_row)
                .define("EACH_COLUMN", each_column)
                .define("KEYS_APART", u8::from(self.operands[1].steps[3] != 1))
                .define("LOAD(p, i)", load(self.dtype, "p", "(i)"))
                .define("NOTHING", if self.nothing_is_zero { "all == 0.0f" } else { "keys == 0" });
        let kernel = self.rules(kernel).storing(self.dtype)?;
        let mut arguments: Vec<Argument> = self.operands.iter().map(|x| x.argument).collect();
        arguments.extend(self.mask.map(|mask| mask.grid.argument));
        arguments.extend(self.counts);
        arguments.push(self.y.argument);
        let [q, k, v] = self.operands.map(|x| x.steps);
        let mut numbers =
            [q, k, v, self.mask.map_or([0; 4], |mask| mask.grid.steps), self.y.steps].concat();
        numbers.extend([self.heads, self.sharing, rows, keys, depth, columns]);
        numbers.extend([self.mask.map_or(keys, |mask| mask.width), self.causal.unwrap_or(0)]);
        for number in numbers {
            arguments.push(Argument::U32(u32::try_from(number).ok()?));
        }
        arguments.push(Argument::F32(self.scale));
        let read = heads * (rows * (depth + columns) + keys * (depth + columns));
        let flops = 2 * (heads * rows * keys) as u64 * (depth + columns) as u64;
        let bytes = (read * self.dtype.size()) as u64;
        Some(Call { kernel, groups, arguments, flops, bytes })
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
