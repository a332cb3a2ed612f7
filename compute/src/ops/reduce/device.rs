//! Reductions of floats on a device. Reduced axes that are not neighbours are first made so.

use super::{Reduce, ReduceKind};
use crate::device::{
    Argument, Call, Kernel, Launches, WAVES_BUSY, c_type, groups, load, moves, plain, store,
};
use crate::op::ValueInfo;
use lgp_memory::{DType, Layout, Shape};

/// Work-items of a group, one wave, which reduce a row together or a column each.
const GROUP: usize = 64;
/// The numbers of parts that lines may be reduced in, and the fewest turns of a work-item in a part.
const PARTS: [usize; 6] = [2, 4, 8, 16, 32, 64];
const TURNS_MIN: usize = 16;

/// Reductions of `count` lines of `size` elements that are `inner` apart.
#[derive(Clone, Copy)]
struct Lines {
    count: usize,
    size: usize,
    inner: usize,
}

impl Lines {
    fn is_rows(self) -> bool {
        self.inner == 1
    }

    fn groups(self) -> usize {
        if self.is_rows() { self.count } else { groups(self.count, GROUP) }
    }

    /// The numbers of parts worth measuring, the best by estimate first; one part alone for short lines.
    fn parts(self, kind: ReduceKind) -> Vec<usize> {
        let lanes = if self.is_rows() { GROUP } else { 1 };
        let fits = |parts: &usize| {
            self.size.is_multiple_of(*parts) && self.size / parts >= lanes * TURNS_MIN
        };
        // The largest element of the whole line is wanted before its sum.
        let can = kind != ReduceKind::LogSumExp;
        let mut all = vec![1];
        all.extend(PARTS.into_iter().filter(|parts| can && fits(parts)));
        let busy = |parts: &usize| self.groups() * parts >= WAVES_BUSY;
        let best = all.iter().position(busy).unwrap_or(all.len() - 1);
        all.swap(0, best);
        all
    }
}

/// The launches worth measuring, the best by estimate first; none where there are no kernels.
pub(super) fn schedules(
    op: &Reduce,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    let Some((before, dtype, source, lines)) = lines(op, inputs, outputs) else {
        return Vec::new();
    };
    let launches = |parts: usize| {
        let mut launches = before.clone();
        if parts == 1 {
            launches.calls.push(call(op.kind, Pass::Whole, dtype, source, lines)?);
            return Some(launches);
        }
        let Lines { count, size, inner } = lines;
        let part = Lines { count: count * parts, size: size / parts, inner };
        let sums = Argument::Scratch(launches.scratch.len());
        launches.scratch.push(4 * part.count);
        let mut first = call(op.kind, Pass::Part, dtype, source, part)?;
        first.arguments[1] = sums;
        let rest = Lines { count, size: parts, inner };
        let second = call(op.kind, Pass::Rest { size }, dtype, sums, rest)?;
        launches.calls.extend([first, second]);
        Some(launches)
    };
    lines.parts(op.kind).into_iter().filter_map(launches).collect()
}

/// The lines to reduce: the launches that lay them out, their type, where they lie then, and their sizes.
fn lines(
    op: &Reduce,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<(Launches, DType, Argument, Lines)> {
    let (x, y) = (inputs.first().copied().flatten()?, outputs.first()?);
    let dtype = x.ty.dtype;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return None;
    }
    let whole = plain(x)?;
    let dims = whole.dims();
    let reduced = op.reduced(inputs, dims.len()).ok()??;
    let product = |axes: &mut dyn Iterator<Item = usize>| axes.map(|a| dims[a]).product::<usize>();
    let size = product(&mut reduced.iter().copied());
    let count = y.ty.concrete_shape()?.elements().ok()?;
    if size == 0 || count == 0 {
        return None;
    }
    let mut launches = Launches::default();
    let (first, last) = (reduced.first().copied(), reduced.last().copied());
    let together = first.zip(last).is_none_or(|(first, last)| last - first + 1 == reduced.len());
    let (source, inner) = if together {
        let after = last.map_or(dims.len(), |last| last + 1);
        (Argument::Input(0), product(&mut (after..dims.len())))
    } else {
        let kept = (0..dims.len()).filter(|axis| !reduced.contains(axis));
        let perm: Vec<usize> = kept.chain(reduced.iter().copied()).collect();
        let view = whole.permuted(&perm).ok()?;
        let to = Layout::contiguous(&Shape::from(view.dims())).ok()?;
        let (from, target) = ((Argument::Input(0), &view), (Argument::Scratch(0), &to));
        launches.calls.push(moves(dtype, from, target)?);
        launches.scratch.push(count * size * dtype.size());
        (Argument::Scratch(0), 1)
    };
    Some((launches, dtype, source, Lines { count, size, inner }))
}

/// What a launch reduces: whole lines, or parts of them to floats, or those parts of lines of `size` elements.
enum Pass {
    Whole,
    Part,
    Rest { size: usize },
}

fn call(
    kind: ReduceKind,
    pass: Pass,
    dtype: DType,
    source: Argument,
    lines: Lines,
) -> Option<Call> {
    let Lines { count, size, inner } = lines;
    let (start, join) = match kind {
        ReduceKind::Max => ("-INFINITY", "(b > a || b != b ? b : a)"),
        ReduceKind::Min => ("INFINITY", "(b < a || b != b ? b : a)"),
        ReduceKind::Prod => ("1.0f", "a * b"),
        _ => ("0.0f", "a + b"),
    };
    let each = match kind {
        _ if matches!(pass, Pass::Rest { .. }) => "v",
        ReduceKind::L1 => "fabs(v)",
        ReduceKind::L2 | ReduceKind::SumSquare => "v * v",
        ReduceKind::LogSumExp => "exp(v - most)",
        _ => "v",
    };
    let whole = if let Pass::Rest { size } = pass { size } else { size };
    let mean = format!("sum / {whole}.0f");
    let finish = match kind {
        _ if matches!(pass, Pass::Part) => "sum",
        ReduceKind::Mean => &mean,
        ReduceKind::L2 => "sqrt(sum)",
        ReduceKind::LogSumExp => "log(sum) + most",
        _ => "sum",
    };
    let [from, to] = match pass {
        Pass::Whole => [dtype, dtype],
        Pass::Part => [dtype, DType::F32],
        Pass::Rest { .. } => [DType::F32, dtype],
    };
    let name = if lines.is_rows() { "reduce_rows" } else { "reduce_columns" };
    let kernel = Kernel::new(name, include_str!("reduce.cl"), [GROUP, 1, 1])
        .define("X_TYPE", c_type(from)?)
        .define("Y_TYPE", c_type(to)?)
        .define("LOAD(i)", load(from, "x", "i"))
        .define("STORE(v, i)", store(to, "v", "y", "i"))
        .define("START", start)
        .define("JOIN(a, b)", join)
        .define("EACH(v)", each)
        .define("SHIFTED", usize::from(kind == ReduceKind::LogSumExp))
        .define("RESULT(sum)", finish);
    let mut arguments = vec![source, Argument::Output(0)];
    for number in [count, size, inner] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let flops = (count * size) as u64;
    let bytes = flops * from.size() as u64 + (count * to.size()) as u64;
    Some(Call { kernel, groups: [lines.groups(), 1, 1], arguments, flops, bytes })
}
