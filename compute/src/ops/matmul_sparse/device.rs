//! Products with sparse weights on devices. A block outside the weight is read as if in the last
//! row or column; the CPU refuses such a block.

use super::MatMulSparse;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups};
use crate::op::ValueInfo;
use lgp_memory::DType;

/// Work-items along each side of a work-group that multiplies blocks, and rows of its result.
const SIDE: usize = 16;
const ROWS: usize = 64;
/// For single elements: work-items that share a column, and columns and most rows of a work-group.
const LANES: usize = 8;
const COLUMNS: usize = 8;
const ROWS_OF_ELEMENTS: usize = 8;

pub(super) fn launches(op: &MatMulSparse, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let elements = |i: usize| optional(inputs, i)?.ty.concrete_shape()?.elements().ok();
    let MatMulSparse { k, n, block } = *op;
    let a = optional(inputs, 0)?.ty.concrete_shape()?;
    let m: usize = a.iter().rev().skip(1).product();
    let count = elements(2)?;
    if elements(3)? != count.checked_mul(block * block)? {
        return None;
    }
    if m == 0 || n == 0 {
        return Some(Launches::default());
    }
    let columns = n / block;
    let (kernel, grid) = match block {
        1 => {
            let rows = m.min(ROWS_OF_ELEMENTS);
            let body = include_str!("elements.cl");
            let kernel = Kernel::new("sparse_elements", body, [LANES, COLUMNS, 1]);
            (kernel.define("ROWS", rows), [groups(columns, COLUMNS), groups(m, rows), 1])
        }
        16 | 32 => {
            let kernel = Kernel::new("sparse_blocks", include_str!("blocks.cl"), [SIDE, SIDE, 1]);
            let kernel = kernel.define("ROWS", ROWS).define("BLOCK", block);
            (kernel, [columns, groups(m, ROWS), 1])
        }
        _ => return None,
    };
    let mut arguments: Vec<Argument> = (0..4).map(Argument::Input).collect();
    arguments.push(Argument::Output(0));
    for size in [m, n, k, count] {
        arguments.push(Argument::U32(u32::try_from(size).ok()?));
    }
    let (flops, bytes) = (2 * m * count * block * block, 4 * (m * (k + n) + count * block * block));
    let kernel = kernel.storing(DType::F32)?;
    let (flops, bytes) = (flops as u64, bytes as u64);
    // A weight without blocks has nothing to read.
    let reads = count > 0 && k > 0;
    reads.then(|| Call { kernel, groups: grid, arguments, flops, bytes }.into())
}
