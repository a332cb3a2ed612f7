//! Fused attention on devices.

use super::Sdpa;
use crate::args::optional;
use crate::device::{Argument, Attention, AttentionMask, Grid, Launches};
use crate::index::strides;
use crate::op::ValueInfo;
use lgp_memory::DType;

/// The dimensions of four axes and the step between neighbours along each, in elements; 0 where a
/// size of 1 is repeated.
fn grid(info: &ValueInfo, axes: [usize; 4]) -> Option<([usize; 4], [usize; 4])> {
    let shape = info.ty.concrete_shape()?;
    let mut dims = [1; 4];
    dims[4usize.checked_sub(shape.rank())?..].copy_from_slice(&shape);
    let strides = strides(&dims);
    let step = |axis: usize| if dims[axis] == 1 { 0 } else { strides[axis] };
    Some((axes.map(|axis| dims[axis]), axes.map(step)))
}

pub(super) fn launches(
    op: &Sdpa,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let mut launches = Launches::default();
    if let Some(attention) = attention(op, inputs, outputs)? {
        attention.add_to(&mut launches)?;
    }
    Some(launches)
}

pub(super) fn schedules(
    op: &Sdpa,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    match attention(op, inputs, outputs) {
        Some(Some(attention)) => attention.schedules(&Launches::default()),
        Some(None) => vec![Launches::default()],
        None => Vec::new(),
    }
}

/// The attention; `Some(None)` where there is nothing to compute.
fn attention(
    op: &Sdpa,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Option<Attention>> {
    let [output] = outputs else { return None };
    let input = |i: usize, axes| {
        let (dims, steps) = grid(optional(inputs, i)?, axes)?;
        Some((dims, Grid { argument: Argument::Input(i), steps }))
    };
    let ((q, query), (k, key), (_, value)) = (input(0, op.q)?, input(1, op.k)?, input(2, op.v)?);
    let order = if op.swapped { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
    let ([batch, heads, rows, columns], steps) = grid(output, order)?;
    if batch * heads * rows * columns == 0 {
        return Some(None);
    }
    let (depth, keys) = (q[3], k[3]);
    let mask = match optional(inputs, 3) {
        Some(_) => {
            let (_, grid) = input(3, [0, 1, 2, 3])?;
            Some(AttentionMask { grid, dtype: DType::F32, width: keys })
        }
        None => None,
    };
    Some(Some(Attention {
        dtype: DType::F32,
        batch,
        heads,
        sharing: op.sharing,
        sizes: [rows, keys, depth, columns],
        operands: [query, key, value],
        y: Grid { argument: Argument::Output(0), steps },
        scale: op.scale,
        softcap: 0.,
        mask,
        causal: None,
        counts: None,
        nothing_is_zero: false,
    }))
}
