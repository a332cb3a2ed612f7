//! Reads a tensor at given positions.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, output, required};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// How a value is computed from the neighbouring elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "ONNX's own names")]
pub enum SampleMode {
    Linear,
    Nearest,
    Cubic,
}

/// The values outside of x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplePadding {
    /// Zeros.
    Zeros,
    /// The nearest element.
    Border,
    /// The tensor mirrored at its edge.
    Reflection,
}

/// Images and volumes.
const SPATIAL_MAX: usize = 3;

/// `GridSample`: inputs x `[n, c, d1, …]` and grid `[n, o1, …, r]` of float dtypes, where r is the
/// number of spatial axes, 1 to 3, and a position counts from the last of them; -1 is the start of an axis
/// and 1 its end. Output `[n, c, o1, …]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridSample {
    /// Interpolation.
    pub mode: SampleMode,
    /// The values outside of x.
    pub padding: SamplePadding,
    /// -1 and 1 are the centres of the outermost elements, rather than their outer edges.
    pub align_corners: bool,
}

impl Op for GridSample {
    fn name(&self) -> &'static str {
        "GridSample"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, grid) = (required(inputs, 0)?, required(inputs, 1)?);
        float(x.ty.dtype)?;
        float(grid.ty.dtype)?;
        let (Some(dims), Some(at)) = (x.sym_shape(), grid.sym_shape()) else {
            return Ok(output(x.ty.dtype, None));
        };
        if dims.len() < 3 || at.len() != dims.len() {
            let message =
                format!("ranks are {} and {}, expected one from 3 on", dims.len(), at.len());
            return Err(Error::invalid(message));
        }
        // The number of elements that one output reads grows exponentially with the axes.
        if dims.len() - 2 > SPATIAL_MAX {
            return Err(Error::unsupported(format!("{} spatial axes", dims.len() - 2)));
        }
        let n = dims::unify("the grid's batch", &dims[0], &at[0])?;
        let spatial = Dim::Known(dims.len() - 2);
        dims::expect("the grid's last axis", &spatial, &at[at.len() - 1])?;
        let mut shape = vec![n, dims[1].clone()];
        shape.extend_from_slice(&at[1..at.len() - 1]);
        Ok(output(x.ty.dtype, Some(shape)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let Some(rank) = optional(inputs, 0).and_then(|x| x.rank()) else { return Axes::new() };
        let axes = Axes::new().each([(0, 0), (1, 0)], [(0, 0)]).each([(0, 1)], [(0, 1)]);
        (2..rank).fold(axes, |axes, axis| axes.each([(1, axis - 1)], [(0, axis)]))
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let taps = match self.mode {
            SampleMode::Nearest => 1,
            SampleMode::Linear => 2,
            SampleMode::Cubic => 4,
        };
        let elements = outputs.first().map_or(0, crate::cost::elements);
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        (2..rank).fold(elements, |work, _| work.saturating_mul(taps))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
