//! Pools regions of images.

mod cpu;
#[cfg(test)]
mod tests;

use crate::args::{float, output, rank, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::index::index_dtype;
use crate::op::{Context, Op, ValueInfo};
use crate::{Axes, AxisKind};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `RoiAlign`: inputs x `[n, c, h, w]`, regions `[k, 4]` (x1, y1, x2, y2) and each region's image
/// (i64 `[k]`); output `[k, c, output height, output width]`.
#[derive(Debug, Clone, PartialEq)]
pub struct RoiAlign {
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Samples on each axis of a bin, up to 64; 0 adapts them to the bin's size.
    pub sampling_ratio: usize,
    /// Factor from the regions' units to elements of x.
    pub spatial_scale: f32,
    /// Elements are at the centres of their pixels.
    pub half_pixel: bool,
    /// The largest of the samples rather than their mean.
    pub max: bool,
}

/// Every output element takes the square of this number of samples, and a model can ask for any.
const SAMPLES_MAX: usize = 64;

impl Op for RoiAlign {
    fn name(&self) -> &'static str {
        "RoiAlign"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, rois) = (required(inputs, 0)?, required(inputs, 1)?);
        let images = required(inputs, 2)?;
        float(x.ty.dtype)?;
        same_dtype("the regions", x.ty.dtype, rois.ty.dtype)?;
        index_dtype("the images", images.ty.dtype)?;
        rank("x", x, 4)?;
        rank("the regions", rois, 2)?;
        rank("the images", images, 1)?;
        if self.sampling_ratio > SAMPLES_MAX {
            let ratio = self.sampling_ratio;
            let message =
                format!("{ratio} samples on an axis of a bin, expected {SAMPLES_MAX} or fewer");
            return Err(Error::invalid(message));
        }
        let [height, width] = self.output.map(Dim::Known);
        let (Some([_, c, _, _]), Some([k, four])) = (x.sym_shape(), rois.sym_shape()) else {
            return Ok(output(x.ty.dtype, None));
        };
        dims::expect("the regions' last axis", &Dim::Known(4), four)?;
        if let Some([images]) = images.sym_shape() {
            dims::expect("the number of images", k, images)?;
        }
        Ok(output(x.ty.dtype, Some(vec![k.clone(), c.clone(), height, width])))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let axes = Axes::new().each([(0, 1)], [(0, 1)]).each([(1, 0), (2, 0)], [(0, 0)]);
        axes.with(AxisKind::Picked { by: 2 }, [(0, 0)], [])
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        // The region decides the number of adaptive samples; at least one counts on each axis.
        let samples = self.sampling_ratio.max(1) as u64;
        let taps = samples.saturating_mul(samples).saturating_mul(4);
        outputs.first().map_or(0, crate::cost::elements).saturating_mul(taps)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::align(self, ctx, inputs)
    }
}

/// `MaxRoiPool`: inputs x `[n, c, h, w]` and regions `[k, 5]` (image, x1, y1, x2, y2); output
/// `[k, c, height, width]`, the largest element of each of a region's bins.
#[derive(Debug, Clone, PartialEq)]
pub struct MaxRoiPool {
    /// Height and width of the output.
    pub output: [usize; 2],
    /// Factor from the regions' units to elements of x.
    pub spatial_scale: f32,
}

impl Op for MaxRoiPool {
    fn name(&self) -> &'static str {
        "MaxRoiPool"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, rois) = (required(inputs, 0)?, required(inputs, 1)?);
        float(x.ty.dtype)?;
        same_dtype("the regions", x.ty.dtype, rois.ty.dtype)?;
        rank("x", x, 4)?;
        rank("the regions", rois, 2)?;
        if self.output.contains(&0) {
            return Err(Error::invalid(format!(
                "the output is {:?}, expected 1s or more",
                self.output
            )));
        }
        let [height, width] = self.output.map(Dim::Known);
        let (Some([_, c, _, _]), Some([k, five])) = (x.sym_shape(), rois.sym_shape()) else {
            return Ok(output(x.ty.dtype, None));
        };
        dims::expect("the regions' last axis", &Dim::Known(5), five)?;
        Ok(output(x.ty.dtype, Some(vec![k.clone(), c.clone(), height, width])))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        // The image's number is among the region's floats.
        Axes::new().each([(0, 1)], [(0, 1)]).each([(1, 0)], [(0, 0)])
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::pool(self, ctx, inputs)
    }
}
