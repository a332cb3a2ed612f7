//! Walks over several operands that broadcast to one output.

use crate::error::Result;
use lgp_memory::{Layout, Shape};

/// The output as rows, and the beginning of each row in each operand.
///
/// Axes are merged where the strides of every operand allow, so that rows are as long as possible.
#[derive(Debug)]
pub(crate) struct Walk<const N: usize> {
    /// The size of each axis outside a row, outermost first, and the operands' strides along it.
    outer: Vec<(usize, [usize; N])>,
    /// Elements of a row.
    pub(crate) row: usize,
    /// Each operand's stride along a row: 0 or 1.
    pub(crate) steps: [usize; N],
}

impl<const N: usize> Walk<N> {
    /// A walk over `out`, to which every operand broadcasts.
    pub(crate) fn new(out: &Shape, operands: [&Shape; N]) -> Result<Self> {
        let mut layouts = Vec::with_capacity(N);
        for operand in operands {
            layouts.push(Layout::contiguous(operand)?.broadcast(out)?);
        }
        let mut axes: Vec<(usize, [usize; N])> = Vec::new();
        for (axis, &dim) in out.iter().enumerate() {
            if dim == 1 {
                continue;
            }
            let strides = std::array::from_fn(|i| layouts[i].strides()[axis].unsigned_abs());
            match axes.last_mut() {
                Some((outer, last))
                    if (0..N).all(|i| Some(last[i]) == strides[i].checked_mul(dim)) =>
                {
                    *outer *= dim;
                    *last = strides;
                }
                _ => axes.push((dim, strides)),
            }
        }
        let (row, steps) = axes.pop().unwrap_or((1, [0; N]));
        Ok(Self { outer: axes, row, steps })
    }

    /// The position of a row's first element in each operand.
    pub(crate) fn starts(&self, mut row: usize) -> [usize; N] {
        let mut starts = [0; N];
        for (dim, strides) in self.outer.iter().rev() {
            let i = row % dim;
            row /= dim;
            for (start, stride) in starts.iter_mut().zip(strides) {
                *start += i * stride;
            }
        }
        starts
    }
}
