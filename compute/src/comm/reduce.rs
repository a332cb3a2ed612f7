//! The kernel of collectives that calculate.

use crate::device::{Argument, Call, Kernel, Recipe, c_type, groups, load, store};
use crate::error::{Error, Result};
use lgp_memory::{DType, Reduction};

const GROUP: usize = 256;
/// The name in errors.
const NAME: &str = "a reduction";

/// The turn of a rank in the reduction of a part of the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The rank begins the sum.
    First,
    /// The rank adds its elements.
    Middle,
    /// The rank adds its elements and has the result, of so many ranks.
    Last(usize),
}

/// The dtype in which sums of a dtype go from rank to rank.
///
/// # Errors
/// [`Error::Unsupported`] for a dtype that collectives do not calculate with.
pub(super) fn wide(dtype: DType) -> Result<DType> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Ok(DType::F32),
        DType::I32 | DType::I64 => Ok(dtype),
        other => Err(Error::unsupported(other.to_string()).of(NAME)),
    }
}

/// The launch that combines `count` elements of a rank's tensor, from element `from` on, with the
/// sum so far. Inputs are the tensor and, except for the first rank, the sum; the output is the
/// next sum, or the result's tensor, in which the part begins at `to`.
///
/// # Errors
/// [`Error::Unsupported`] for a dtype without kernels, or more elements than 32 bits count.
pub(super) fn combine(
    how: Reduction,
    turn: Turn,
    dtype: DType,
    (from, to, count): (usize, usize, usize),
) -> Result<Recipe> {
    let wide = wide(dtype)?;
    let result = if matches!(turn, Turn::Last(_)) { dtype } else { wide };
    let short = |n: usize| i32::try_from(n).ok().and_then(|n| u32::try_from(n).ok());
    let unsupported = || Error::unsupported(format!("{count} elements of {dtype}")).of(NAME);
    let number = |n: usize| short(n).ok_or_else(unsupported);
    let (ends, starts) = (from + count, [number(from)?, number(to)?]);
    number(ends.max(to + count))?;
    let name = |dtype: DType| c_type(dtype).ok_or_else(unsupported);
    let sum = match turn {
        Turn::First => String::new(),
        _ => format!("GLOBAL const {} *sum,", name(wide)?),
    };
    let kernel = Kernel::new("reduce_part", include_str!("reduce.cl"), [GROUP, 1, 1])
        .define("TYPE", name(dtype)?)
        .define("WIDE", name(wide)?)
        .define("RESULT", name(result)?)
        .define("SUM", sum)
        .define("LOAD", load(dtype, "x", "(from + i)"))
        .define("STORE", store(result, &value(how, turn, wide), "y", "(to + i)"));
    let (mut arguments, mut inputs) = (vec![Argument::Input(0)], vec![ends * dtype.size()]);
    if turn != Turn::First {
        arguments.push(Argument::Input(1));
        inputs.push(count * wide.size());
    }
    arguments.push(Argument::Output(0));
    arguments.extend(starts.map(Argument::U32));
    arguments.push(Argument::U32(number(count)?));
    let outputs = vec![(to + count) * result.size()];
    let bytes = count * (dtype.size() + result.size() + (inputs.len() - 1) * wide.size());
    let (flops, groups) = (count as u64, [groups(count, GROUP), 1, 1]);
    let call = Call { kernel, groups, arguments, flops, bytes: bytes as u64 };
    Ok(Recipe::of(call.into(), inputs, outputs))
}

/// The expression of the result from the rank's `own` element and the sum so far.
fn value(how: Reduction, turn: Turn, wide: DType) -> String {
    let ranks = match turn {
        Turn::First => return "own".to_owned(),
        Turn::Middle => None,
        Turn::Last(ranks) => Some(ranks),
    };
    let larger = |a: &str, b: &str| format!("(sum[i] != sum[i] || {a} > {b} ? sum[i] : own)");
    let total = match (how, wide) {
        (Reduction::Max, _) => larger("sum[i]", "own"),
        (Reduction::Min, _) => larger("own", "sum[i]"),
        // Signed overflow is undefined in C; unsigned sums wrap.
        (_, DType::I32) => "((i32)((u32)sum[i] + (u32)own))".to_owned(),
        (_, DType::I64) => "((i64)((u64)sum[i] + (u64)own))".to_owned(),
        _ => "(sum[i] + own)".to_owned(),
    };
    match (how, ranks) {
        (Reduction::Mean, Some(ranks)) if wide == DType::F32 => format!("({total} / {ranks}.0f)"),
        (Reduction::Mean, Some(ranks)) => format!("({total} / {ranks})"),
        _ => total,
    }
}
