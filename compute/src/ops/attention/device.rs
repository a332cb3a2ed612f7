//! Attention on devices.

use super::Attention;
use crate::args::{optional, required};
use crate::device::{self, Argument, AttentionMask, Call, Grid, Kernel, Launches, c_type, groups};
use crate::index::strides;
use crate::op::ValueInfo;
use lgp_memory::{DType, Dim};

const GROUP: usize = 64;

/// The sizes of key or value: batches, heads, keys, past keys, elements of a row.
#[derive(Clone, Copy)]
struct Cache {
    batch: usize,
    heads: usize,
    keys: usize,
    past: usize,
    size: usize,
}

/// Steps from one batch, head, row and element to the next in a tensor of shape
/// `[batch, heads, length, size]` or `[batch, length, heads · size]`.
fn steps(rank: usize, heads: usize, length: usize, size: usize) -> [usize; 4] {
    match rank {
        3 => [length * heads * size, size, heads * size, 1],
        _ => [heads * length * size, length * size, size, 1],
    }
}

pub(super) fn launches(
    op: &Attention,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (mut launches, attention) = parts(op, inputs, outputs)?;
    attention.add_to(&mut launches)?;
    Some(launches)
}

pub(super) fn schedules(
    op: &Attention,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    let parts = parts(op, inputs, outputs);
    parts.map_or(Vec::new(), |(first, attention)| attention.schedules(&first))
}

/// The launches that join keys and values with those of the past, and the attention to them.
fn parts(
    op: &Attention,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<(Launches, device::Attention)> {
    let forms = op.forms(inputs).ok()??;
    let keys = op.keys(inputs, &forms).ok()?.known()?;
    let [q, k, v] = &forms;
    let known = Dim::known;
    let (batch, heads, key_heads) = (known(&q.batch)?, known(&q.heads)?, known(&k.heads)?);
    let (rows, depth, columns) = (known(&q.length)?, known(&q.size)?, known(&v.size)?);
    let past = keys.checked_sub(known(&k.length)?)?;
    let dtype = required(inputs, 0).ok()?.ty.dtype;
    if op.scores.is_some() || batch * heads * rows * columns == 0 || key_heads == 0 {
        return None;
    }
    let rank = |i: usize| Some(optional(inputs, i)?.ty.concrete_shape()?.rank());
    let mut launches = Launches::default();
    let mut cache = |input: usize, size: usize| -> Option<Grid> {
        let own = Cache { batch, heads: key_heads, keys, past, size };
        let new = steps(rank(input)?, key_heads, keys - past, size);
        let joined = Grid { argument: Argument::Input(input), steps: new };
        if past == 0 && !op.present {
            return Some(joined);
        }
        let argument = if op.present {
            Argument::Output(input)
        } else {
            launches.scratch.push((batch * key_heads * keys * size * dtype.size()).max(1));
            Argument::Scratch(launches.scratch.len() - 1)
        };
        launches.calls.extend(own.present(dtype, input, new, argument)?);
        Some(Grid { argument, steps: steps(4, key_heads, keys, size) })
    };
    let (key, value) = (cache(1, depth)?, cache(2, columns)?);
    // Kernels read keys by columns.
    let [b, h, row, column] = key.steps;
    let key = Grid { steps: [b, h, column, row], ..key };
    let query = Grid { argument: Argument::Input(0), steps: steps(rank(0)?, heads, rows, depth) };
    let y = outputs.first()?.ty.concrete_shape()?;
    let y = Grid { argument: Argument::Output(0), steps: steps(y.rank(), heads, rows, columns) };
    let mask = match optional(inputs, 3) {
        Some(info) => Some(mask(info).filter(|m| m.dtype == DType::Bool || m.dtype == dtype)?),
        None => None,
    };
    let attention = device::Attention {
        dtype,
        batch,
        heads,
        sharing: heads / key_heads,
        sizes: [rows, keys, depth, columns],
        operands: [query, key, value],
        y,
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        scale: op.scale.unwrap_or_else(|| (depth as f32).sqrt().recip()),
        softcap: op.softcap,
        mask,
        causal: op.causal.then_some(past),
        counts: optional(inputs, 6).map(|_| Argument::Input(6)),
        nothing_is_zero: true,
    };
    Some((launches, attention))
}

/// The mask, which broadcasts to the scores along all axes but the last.
fn mask(info: &ValueInfo) -> Option<AttentionMask> {
    let shape = info.ty.concrete_shape()?;
    let mut dims = [1; 4];
    dims[4usize.checked_sub(shape.rank())?..].copy_from_slice(&shape);
    let mut steps: [usize; 4] = strides(&dims).try_into().ok()?;
    for (step, &size) in steps.iter_mut().zip(&dims[..3]) {
        *step = if size == 1 { 0 } else { *step };
    }
    let grid = Grid { argument: Argument::Input(3), steps };
    Some(AttentionMask { grid, dtype: info.ty.dtype, width: dims[3] })
}

impl Cache {
    /// The launch that joins the past and new rows of input `new`; `Some(None)` without rows.
    fn present(
        self,
        dtype: DType,
        new: usize,
        steps: [usize; 4],
        to: Argument,
    ) -> Option<Option<Call>> {
        let Self { batch, heads, keys, past, size } = self;
        let count = batch * heads * keys * size;
        if count == 0 {
            return Some(None);
        }
        // Kernels cannot assign values of 16-bit float types.
        let word = if dtype.size() == 2 { "u16" } else { c_type(dtype)? };
        let mut kernel =
            Kernel::new("present", include_str!("present.cl"), [GROUP, 1, 1]).define("WORD", word);
        let mut arguments = Vec::new();
        if past > 0 {
            arguments.push(Argument::Input(new + 3));
            kernel = kernel
                .define("PAST_POINTER", format!("GLOBAL const {word} *past_,"))
                .define("PAST(i)", "past_[i]");
        } else {
            kernel = kernel.define("PAST_POINTER", "").define("PAST(i)", "0");
        }
        arguments.extend([Argument::Input(new), to]);
        for number in [&[count, heads, keys, past, size], &steps[..3]].concat() {
            arguments.push(Argument::U32(u32::try_from(number).ok()?));
        }
        let bytes = 2 * (count * dtype.size()) as u64;
        let groups = [groups(count, GROUP), 1, 1];
        Some(Some(Call { kernel, groups, arguments, flops: 0, bytes }))
    }
}
