//! Two-dimensional convolution of channels-last f32 images with weights packed beforehand, and
//! with what follows it (bias, a residual, an activation) applied before the result is stored.
//!
//! The floor of a layer is the larger of its multiply-adds by the machine's rate and its bytes
//! (input, weights, output once each) by the memory's. Only Winograd's transforms go below the
//! first; depthwise layers and those of few channels on large images are bound by the second.

mod cpu;
mod depthwise;
mod direct;
mod facts;
mod grouped;
mod kernel;
mod pack;
#[cfg(test)]
mod tests;
mod winograd;

use crate::Axes;
use crate::args::{optional, output, rank, required};
use crate::dims;
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::{Absorbed, Following};
use crate::window::{Axis, Pads, specs};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

const NAME: &str = "ConvNhwc";

/// With fewer channels on either side the transforms cost more than they save.
const WINOGRAD_CHANNELS_MIN: usize = 32;
/// Fewer tiles than this wait for the memory that the larger weights come from: a product of t
/// tiles computes t / 2 operations for each byte of weights. Measured on 512 channels of 7×7.
const WINOGRAD_TILES_MIN: usize = 16;

/// Attributes of a convolution over two spatial axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Steps of the window.
    pub strides: [usize; 2],
    /// Distances between taps.
    pub dilations: [usize; 2],
    /// Zeros around the input.
    pub pads: Pads,
    /// Groups of channels that do not mix.
    pub group: usize,
    /// Input channels `c`.
    pub channels: usize,
    /// Output channels `m`.
    pub maps: usize,
}

/// What helps to choose an algorithm; a default means that nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConvHints {
    /// Images in a batch.
    pub batch: Option<usize>,
    /// Height and width of the input.
    pub input: Option<[usize; 2]>,
    /// Rounds weights and images to bf16, where that is faster; sums are f32. Only for machines
    /// with [`Simd::bf16`](crate::Simd::bf16): on others the convolution would not run.
    pub bf16: bool,
}

/// A convolution on channels-last images: inputs x `[n, h, w, c]`, the packed weights that
/// [`ConvNhwc::pack`] made, bias `[m]` (optional) and a residual of the output's shape (optional)
/// that is added before the activation; output `[n, oh, ow, m]`. All are f32, but where it
/// [multiplies bf16](ConvNhwc::multiplies_bf16), images may be bf16.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvNhwc {
    geometry: ConvGeometry,
    algorithm: Algorithm,
    /// What is done to the sum of products, bias and residual.
    pub activation: Activation,
    out: DType,
}

/// How the packed weights lie, and thus what reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    /// Panels of columns, for products with the windows.
    Direct,
    /// The same in words of two bf16: neighbouring channels of a tap.
    DirectBf16,
    /// A row of channels for each tap.
    Depthwise,
    /// A register for each tap and input of a group, of which there are `per_group`.
    Grouped { per_group: usize },
    /// Panels for each position of transformed tiles whose input is `side` wide, 4 or 6.
    Winograd { side: usize },
}

impl ConvNhwc {
    /// Packs weights `[m, c / group, kh, kw]` of f32 for the algorithm that suits the geometry and
    /// gives the operator that reads them. The packed tensor replaces the original.
    ///
    /// # Errors
    /// A weight that does not fit the geometry, or out of memory.
    pub fn pack(
        geometry: ConvGeometry,
        weight: &TensorView<'_>,
        hints: ConvHints,
    ) -> Result<(Self, Tensor)> {
        geometry.check(weight).map_err(|error| error.of(NAME))?;
        let values = weight.as_slice::<f32>()?;
        let algorithm = match geometry.algorithm(hints) {
            // The transform would spread an infinite weight to all taps, and sums of the largest
            // ones, which the plain sum keeps apart, overflow. NaN is below nothing.
            Algorithm::Winograd { .. } if !values.iter().all(|w| w.abs() <= 1e18) => {
                Algorithm::Direct
            }
            suited => suited,
        };
        let conv = Self { geometry, algorithm, activation: Activation::None, out: DType::F32 };
        let packed = pack::pack(&conv, values).map_err(|error| error.of(NAME))?;
        Ok((conv, packed))
    }

    /// The same convolution followed by an activation.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// The same convolution with an output in bf16; only where it
    /// [multiplies bf16](ConvNhwc::multiplies_bf16).
    #[must_use]
    pub fn with_bf16_output(self) -> Self {
        Self { out: DType::BF16, ..self }
    }

    /// Whether products are of bf16. Then the output may be bf16, and so may the residual and, if
    /// it has an even number of channels, the input.
    #[must_use]
    pub fn multiplies_bf16(&self) -> bool {
        self.algorithm == Algorithm::DirectBf16
    }

    /// Whether every channel has a window of its own. Then the input may be bf16, and the output
    /// is what the input is.
    #[must_use]
    pub fn is_depthwise(&self) -> bool {
        self.algorithm == Algorithm::Depthwise
    }

    /// The output's dtype, for inputs whose dtypes fit.
    fn dtype(&self, inputs: &[Option<&ValueInfo>]) -> Result<DType> {
        let bf16 = self.multiplies_bf16();
        let paired = bf16 && self.geometry.channels.is_multiple_of(2);
        let may_be_bf16 = [paired || self.is_depthwise(), false, false, bf16];
        for (input, may_be_bf16) in inputs.iter().zip(may_be_bf16) {
            let Some(input) = input else { continue };
            let dtype = input.ty.dtype;
            if dtype != DType::F32 && !(may_be_bf16 && dtype == DType::BF16) {
                let message = format!("an input has dtype {dtype}, expected f32");
                return Err(Error::invalid(message));
            }
        }
        let x = required(inputs, 0)?.ty.dtype;
        Ok(if self.is_depthwise() {
            x
        } else if bf16 {
            self.out
        } else {
            DType::F32
        })
    }

    /// The attributes.
    #[must_use]
    pub fn geometry(&self) -> &ConvGeometry {
        &self.geometry
    }

    fn shape(&self, x: &[Dim]) -> Result<Vec<Dim>> {
        let [n, h, w, c] = x else { return Err(Error::invalid("the input has no rank 4")) };
        let g = &self.geometry;
        dims::expect("the number of channels", &Dim::Known(g.channels), c)?;
        let mut out = vec![n.clone()];
        for (spec, dim) in g.specs()?.iter().zip([h, w]) {
            out.push(spec.output(dim)?);
        }
        out.push(Dim::Known(g.maps));
        Ok(out)
    }
}

impl ConvGeometry {
    /// What suits the geometry.
    fn algorithm(&self, hints: ConvHints) -> Algorithm {
        if self.group == self.channels && self.group == self.maps && self.group > 1 {
            return Algorithm::Depthwise;
        }
        let eligible = self.kernel == [3; 2] && self.strides == [1; 2];
        // Pairs of channels must not mix groups.
        let paired = self.group == 1 || (self.channels / self.group).is_multiple_of(2);
        if hints.bf16 && paired {
            return Algorithm::DirectBf16;
        }
        if let Some(per_group) = grouped::per_group(self) {
            return Algorithm::Grouped { per_group };
        }
        if !eligible || self.group != 1 || self.channels.min(self.maps) < WINOGRAD_CHANNELS_MIN {
            return Algorithm::Direct;
        }
        let Some([h, w]) = hints.input else { return Algorithm::Winograd { side: 4 } };
        // Outputs that are a dilation apart are images of their own, which tiles may fill badly.
        let tiles = |out: usize| {
            let [dy, dx] = self.dilations.map(|d| d.max(1));
            let along = |n: usize, d: usize| n.div_ceil(d).div_ceil(out).saturating_mul(d);
            let across = along(h, dy).saturating_mul(along(w, dx));
            across.saturating_mul(hints.batch.unwrap_or(1).max(1))
        };
        if self.dilations != [1; 2] {
            let pixels = h.saturating_mul(w).saturating_mul(hints.batch.unwrap_or(1).max(1));
            let (four, six) = (tiles(2).saturating_mul(16), tiles(4).saturating_mul(36));
            let side = if four < six { 4 } else { 6 };
            // Transforms take a part of what fewer products save.
            let pays = four.min(six) <= pixels.saturating_mul(7);
            let enough = tiles(side - 2) >= WINOGRAD_TILES_MIN;
            return if pays && enough { Algorithm::Winograd { side } } else { Algorithm::Direct };
        }
        if tiles(4) >= WINOGRAD_TILES_MIN {
            Algorithm::Winograd { side: 6 }
        } else if tiles(2) >= WINOGRAD_TILES_MIN {
            Algorithm::Winograd { side: 4 }
        } else {
            Algorithm::Direct
        }
    }

    /// Whether groups of few channels are computed as they are: merging them would only add zeros.
    pub(crate) fn is_grouped(&self) -> bool {
        grouped::per_group(self).is_some()
    }

    fn specs(&self) -> Result<Vec<crate::window::Spec>> {
        specs(&self.kernel, &self.strides, &self.dilations, &self.pads, false)
    }

    /// The window of each axis for an actual height and width.
    fn axes(&self, h: usize, w: usize) -> Result<[Axis; 2]> {
        let specs = self.specs()?;
        Ok([specs[0].axis(h)?, specs[1].axis(w)?])
    }

    fn check(&self, weight: &TensorView<'_>) -> Result<()> {
        let (group, channels, maps) = (self.group, self.channels, self.maps);
        if channels == 0 {
            return Err(Error::invalid("there are 0 input channels, expected 1 or more"));
        }
        if group == 0 || !channels.is_multiple_of(group) || !maps.is_multiple_of(group) {
            let message = format!("group {group} does not divide {channels} and {maps} channels");
            return Err(Error::invalid(message));
        }
        self.specs()?;
        let expected = [maps, channels / group, self.kernel[0], self.kernel[1]];
        if weight.dtype() != DType::F32 || weight.shape().dims() != expected {
            let (dtype, shape) = (weight.dtype(), weight.shape());
            let message = format!("the weight is {dtype} {shape:?}, expected f32 {expected:?}");
            return Err(Error::invalid(message));
        }
        Ok(())
    }
}

impl Op for ConvNhwc {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
        let dtype = self.dtype(inputs)?;
        rank("the input", x, 4)?;
        rank("the packed weight", weight, 1)?;
        if let Some([length]) = weight.sym_shape() {
            let expected = Dim::Known(pack::len(self)?);
            dims::expect("the length of the packed weight", &expected, length)?;
        }
        if let Some(bias) = optional(inputs, 2) {
            rank("bias", bias, 1)?;
            if let Some([length]) = bias.sym_shape() {
                let maps = Dim::Known(self.geometry.maps);
                dims::expect("the length of bias", &maps, length)?;
            }
        }
        let shape = x.sym_shape().map(|x| self.shape(x)).transpose()?;
        if let Some(residual) = optional(inputs, 3) {
            rank("the residual", residual, 4)?;
            if let (Some(shape), Some(given)) = (&shape, residual.sym_shape()) {
                for (want, given) in shape.iter().zip(given) {
                    dims::expect("a dimension of the residual", want, given)?;
                }
            }
        }
        Ok(output(dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        self.geometry.image_axes(inputs, optional(inputs, 3).map(|_| 3))
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        self.geometry.multiply_adds(outputs)
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = optional(inputs, 0).and_then(|x| x.ty.concrete_shape());
        let Some(&[images, h, w, channels]) = shape.as_ref().map(|s| s.dims()) else { return 0 };
        let Ok(axes) = self.geometry.axes(h, w) else { return 0 };
        let maps = self.geometry.maps;
        match self.algorithm {
            Algorithm::Direct | Algorithm::Depthwise | Algorithm::Grouped { .. } => 0,
            Algorithm::DirectBf16 => {
                let is_f32 = optional(inputs, 0).is_some_and(|x| x.ty.dtype == DType::F32);
                let words = if is_f32 { channels.div_ceil(2) } else { 0 };
                let rounded =
                    [images, h, w, words, 4].iter().fold(1, |n: usize, &d| n.saturating_mul(d));
                if self.out == DType::F32 {
                    return rounded;
                }
                let pixels = axes.iter().fold(images, |n, a| n.saturating_mul(a.output));
                rounded.saturating_add(direct::Direct::sums_bytes(threads, pixels, maps))
            }
            Algorithm::Winograd { side: 4 } => {
                winograd::scratch_bytes::<4>(threads, images, &axes, (channels, maps))
            }
            Algorithm::Winograd { .. } => {
                winograd::scratch_bytes::<6>(threads, images, &axes, (channels, maps))
            }
        }
    }

    fn absorbing(&self, inputs: &[Option<&ValueInfo>], next: &Following<'_>) -> Option<Absorbed> {
        let is_free = |i: usize| optional(inputs, i).is_none();
        if self.activation != Activation::None {
            return None;
        }
        match *next {
            Following::Activation(activation) => {
                Some(Absorbed::held(self.clone().with_activation(activation)))
            }
            Following::Row(row) => (is_free(2) && row.len() == self.geometry.maps)
                .then(|| Absorbed::given(self.clone(), 2)),
            Following::Residual => is_free(3).then(|| Absorbed::given(self.clone(), 3)),
        }
    }

    fn narrowed(&self) -> Option<Arc<dyn Op>> {
        let may = self.multiplies_bf16();
        may.then(|| -> Arc<dyn Op> { Arc::new(self.clone().with_bf16_output()) })
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
