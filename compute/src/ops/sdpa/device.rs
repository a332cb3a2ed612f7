//! Attention on devices.

use super::Sdpa;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches};
use crate::index::strides;
use crate::op::ValueInfo;

/// Columns of a work-group's result, for each work-item, at most.
const COLUMNS_MAX: usize = 8;
/// Work-items along each side of a work-group.
const SIDE: usize = 16;
/// Work-groups of four waves that keep a card busy.
const GROUPS: usize = 72;

/// The dimensions of four axes and elements between neighbours along each, 0 where a size of 1 is
/// repeated.
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
    let [output] = outputs else { return None };
    let input = |i, axes| grid(optional(inputs, i)?, axes);
    let ((q, q_steps), (k, k_steps), (v, v_steps)) =
        (input(0, op.q)?, input(1, op.k)?, input(2, op.v)?);
    let order = if op.swapped { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
    let (y, y_steps) = grid(output, order)?;
    let ([batch, heads, rows, columns], depth, keys) = (y, q[3], k[3]);
    if batch * heads * rows * columns == 0 {
        return Some(Launches::default());
    }
    let each_column = columns.div_ceil(SIDE).min(COLUMNS_MAX);
    let groups = |each_row: usize| {
        [rows.div_ceil(SIDE * each_row), batch * heads, columns.div_ceil(SIDE * each_column)]
    };
    // Fewer rows a work-group where that keeps more of the card busy.
    let each_row = if groups(4).iter().product::<usize>() >= GROUPS { 4 } else { 1 };
    let mut kernel =
        Kernel::new("sdpa", include_str!("sdpa.cl"), [SIDE, SIDE, 1]).define("EACH_ROW", each_row);
    let mut arguments: Vec<Argument> = (0..3).map(Argument::Input).collect();
    let mut sizes: Vec<usize> = [q_steps, k_steps, v_steps].concat();
    kernel = match optional(inputs, 3) {
        None => kernel
            .define("MASK_POINTER", "")
            .define("MASK_STEPS", "")
            .define("MASK_START", "")
            .define("MASKED(row, key)", ""),
        Some(mask) => {
            arguments.push(Argument::Input(3));
            sizes.extend(grid(mask, [0, 1, 2, 3])?.1);
            kernel
                .define("MASK_POINTER", "GLOBAL const float *mask,")
                .define("MASK_STEPS", "STEPS(mask),")
                .define("MASK_START", "u32 mask_start = START(mask);")
                .define("MASKED(row, key)", "+ mask[PLACE(mask, row, key)]")
        }
    };
    let kernel =
        kernel.define("EACH_COLUMN", each_column).define("KEYS_APART", u8::from(k_steps[3] != 1));
    arguments.push(Argument::Output(0));
    sizes.extend(y_steps);
    sizes.extend([heads, rows, keys, depth, columns]);
    for size in sizes {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    arguments.push(Argument::F32(op.scale));
    let scores = (batch * heads * rows * keys) as u64;
    let read = [q, k, v, y].iter().map(|dims| dims.iter().product::<usize>()).sum::<usize>();
    let (flops, bytes) = (2 * scores * (depth + columns) as u64, 4 * read as u64);
    let groups = groups(each_row);
    let fits = groups[1..].iter().all(|&n| n <= 65_535);
    fits.then(|| Call { kernel, groups, arguments, flops, bytes }.into())
}
