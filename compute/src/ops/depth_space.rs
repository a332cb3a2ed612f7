//! DepthToSpace and SpaceToDepth: channels become pixels and back.

mod cpu;
mod device;

use crate::args::{output, rank, required};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::{Axes, AxisKind};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// How `DepthToSpace` reads the channel axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DepthMode {
    /// Depth, column, row: the block position is outermost.
    Dcr,
    /// Column, row, depth: the block position is innermost, as in PyTorch's pixel shuffle.
    Crd,
}

/// `DepthToSpace`: `[n, c, h, w]` to `[n, c / block², h · block, w · block]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepthToSpace {
    /// Side of a block in pixels.
    pub block: usize,
    /// Order of the channels.
    pub mode: DepthMode,
}

/// `SpaceToDepth`: `[n, c, h, w]` to `[n, c · block², h / block, w / block]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceToDepth {
    /// Side of a block in pixels.
    pub block: usize,
}

/// Four dimensions of the only input, and the square of a checked block.
type Planes<'a> = (Option<[&'a Dim; 4]>, usize);

fn planes<'a>(inputs: &[Option<&'a ValueInfo>], block: usize) -> Result<Planes<'a>> {
    let x = *required(inputs, 0)?;
    rank("the input", x, 4)?;
    let square = block.checked_mul(block).filter(|&n| n > 0);
    let square = square.ok_or_else(|| Error::invalid(format!("the block size is {block}")))?;
    let dims = x.sym_shape().and_then(|d| match d {
        [n, c, h, w] => Some([n, c, h, w]),
        _ => None,
    });
    Ok((dims, square))
}

impl Op for DepthToSpace {
    fn name(&self) -> &'static str {
        "DepthToSpace"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (dims, square) = planes(inputs, self.block)?;
        let shape = match dims {
            Some([n, c, h, w]) => {
                let block = Dim::Known(self.block);
                let c = dims::quotient(std::slice::from_ref(c), &[Dim::Known(square)])?;
                Some(vec![n.clone(), c, dims::mul(h, &block)?, dims::mul(w, &block)?])
            }
            None => None,
        };
        Ok(output(required(inputs, 0)?.ty.dtype, shape))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        Axes::new().each([(0, 0)], [(0, 0)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::depth_to_space(self, inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::depth_to_space(self, ctx, inputs)
    }
}

impl Op for SpaceToDepth {
    fn name(&self) -> &'static str {
        "SpaceToDepth"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (dims, square) = planes(inputs, self.block)?;
        let shape = match dims {
            Some([n, c, h, w]) => {
                let part =
                    |d: &Dim| dims::quotient(std::slice::from_ref(d), &[Dim::Known(self.block)]);
                let c = dims::mul(c, &Dim::Known(square))?;
                Some(vec![n.clone(), c, part(h)?, part(w)?])
            }
            None => None,
        };
        Ok(output(required(inputs, 0)?.ty.dtype, shape))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let window = AxisKind::Window { stride: self.block, before: 0, extent: self.block };
        [2, 3].into_iter().fold(Axes::new().each([(0, 0)], [(0, 0)]), |axes, axis| {
            axes.with(window, [(0, axis)], [(0, axis)])
        })
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::space_to_depth(self, inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::space_to_depth(self, ctx, inputs)
    }
}
