//! Reductions of floats on a device. Reduced axes that are not neighbours are first made so.

use super::{Reduce, ReduceKind};
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, load, moves, plain, store};
use crate::op::ValueInfo;
use lgp_memory::{DType, Layout, Shape};

/// Work-items of a group, which reduce a row together or a column each.
const GROUP: usize = 64;

pub(super) fn launches(
    op: &Reduce,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
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
    launches.calls.push(call(op.kind, dtype, source, [count, size, inner])?);
    Some(launches)
}

fn call(
    kind: ReduceKind,
    dtype: DType,
    source: Argument,
    [count, size, inner]: [usize; 3],
) -> Option<Call> {
    let (start, join) = match kind {
        ReduceKind::Max => ("-INFINITY", "(b > a || b != b ? b : a)"),
        ReduceKind::Min => ("INFINITY", "(b < a || b != b ? b : a)"),
        ReduceKind::Prod => ("1.0f", "a * b"),
        _ => ("0.0f", "a + b"),
    };
    let each = match kind {
        ReduceKind::L1 => "fabs(v)",
        ReduceKind::L2 | ReduceKind::SumSquare => "v * v",
        ReduceKind::LogSumExp => "exp(v - most)",
        _ => "v",
    };
    let finish = match kind {
        ReduceKind::Mean => "sum / (float)size",
        ReduceKind::L2 => "sqrt(sum)",
        ReduceKind::LogSumExp => "log(sum) + most",
        _ => "sum",
    };
    let rows = inner == 1;
    let name = if rows { "reduce_rows" } else { "reduce_columns" };
    let kernel = Kernel::new(name, include_str!("reduce.cl"), [GROUP, 1, 1])
        .define("TYPE", c_type(dtype)?)
        .define("LOAD(i)", load(dtype, "x", "i"))
        .define("STORE(v, i)", store(dtype, "v", "y", "i"))
        .define("START", start)
        .define("JOIN(a, b)", join)
        .define("EACH(v)", each)
        .define("SHIFTED", usize::from(kind == ReduceKind::LogSumExp))
        .define("RESULT(sum)", finish);
    let mut arguments = vec![source, Argument::Output(0)];
    for number in [count, size, inner] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let all = (count * size) as u64;
    let groups = if rows { count } else { groups(count, GROUP) };
    let bytes = (all + count as u64) * dtype.size() as u64;
    Some(Call { kernel, groups: [groups, 1, 1], arguments, flops: all, bytes })
}
