//! Convolution.

mod bytes;
mod channels_last;
mod cpu;
mod depthwise;
pub(crate) mod device;
mod direct;
mod folding;
mod im2col;
mod operands;
mod plain;
mod planes;
mod schedule;
#[cfg(test)]
mod tests;
mod transformed;
mod winograd;

use crate::args::{float, optional, output, rank, required, same_dtype};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::Reordered;
use crate::rewrite::{Affine, Hints, Operand, Step};
use crate::window::{self, Axis, Pads, specs};
use crate::{Axes, AxisKind};
use lgp_memory::{Dim, SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// `Conv`: inputs x `[n, c, spatial…]`, weight `[m, c / group, kernel…]`, bias `[m]` (optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conv {
    /// One per spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// Zeros around the input.
    pub pads: Pads,
    /// One per spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Groups of channels that do not mix.
    pub group: usize,
}

impl Default for Conv {
    fn default() -> Self {
        Self { strides: Vec::new(), pads: Pads::default(), dilations: Vec::new(), group: 1 }
    }
}

impl Conv {
    /// The window of each spatial axis for actual shapes.
    pub(crate) fn windows(&self, x: &[usize], weight: &[usize]) -> Result<Vec<Axis>> {
        let specs = specs(&weight[2..], &self.strides, &self.dilations, &self.pads, false)?;
        specs.iter().zip(&x[2..]).map(|(spec, &n)| spec.axis(n)).collect()
    }

    /// The axes of image, weight, and input `row`, which has an entry for each output channel.
    pub(crate) fn image_axes(&self, inputs: &[Option<&ValueInfo>], row: Option<usize>) -> Axes {
        let (Some(x), Some(weight)) = (optional(inputs, 0), optional(inputs, 1)) else {
            return Axes::new();
        };
        let dims = weight.sym_shape().unwrap_or_default().iter().skip(2);
        let kernel: Vec<usize> = dims.map_while(Dim::known).collect();
        let known = weight.rank() == Some(kernel.len() + 2);
        let of = |kernel: &[usize]| {
            specs(kernel, &self.strides, &self.dilations, &self.pads, false).ok()
        };
        let specs = Some(&kernel[..]).filter(|_| known).and_then(of).unwrap_or_default();
        let axes = window::image_axes(x, &specs, 2, None);
        window::channel_axes(axes, self.group, weight, 0, row)
    }

    fn shape(&self, x: &[Dim], weight: &[Dim]) -> Result<Vec<Dim>> {
        let wrong_rank = || {
            let (x, weight) = (SymShape(x.to_vec()), SymShape(weight.to_vec()));
            let message = format!("input {x} and weight {weight}, expected equal ranks from 3 on");
            Error::invalid(message)
        };
        let ([n, c, spatial @ ..], [m, per_group, kernel @ ..]) = (x, weight) else {
            return Err(wrong_rank());
        };
        if spatial.is_empty() || spatial.len() != kernel.len() {
            return Err(wrong_rank());
        }
        if self.group == 0 || m.known().is_some_and(|m| m % self.group != 0) {
            let message = format!("group {} does not divide {m} output channels", self.group);
            return Err(Error::invalid(message));
        }
        let channels = dims::mul(per_group, &Dim::Known(self.group))?;
        if dims::expect("", &channels, c).is_err() {
            let group = self.group;
            let message = format!(
                "the input has {c} channels, expected {channels}: {group} groups of {per_group}"
            );
            return Err(Error::invalid(message));
        }
        let mut out = vec![n.clone(), m.clone()];
        match kernel.iter().map(Dim::known).collect::<Option<Vec<_>>>() {
            None => out.extend(kernel.iter().map(|_| Dim::Unknown)),
            Some(kernel) => {
                let specs = specs(&kernel, &self.strides, &self.dilations, &self.pads, false)?;
                for (spec, dim) in specs.iter().zip(spatial) {
                    out.push(spec.output(dim)?);
                }
            }
        }
        Ok(out)
    }
}

impl Op for Conv {
    fn name(&self) -> &'static str {
        "Conv"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
        float(x.ty.dtype)?;
        same_dtype("weight", x.ty.dtype, weight.ty.dtype)?;
        if let Some(bias) = optional(inputs, 2) {
            same_dtype("bias", x.ty.dtype, bias.ty.dtype)?;
            rank("bias", bias, 1)?;
            if let (Some([length]), Some([m, ..])) = (bias.sym_shape(), weight.sym_shape()) {
                dims::expect("the length of bias", m, length)?;
            }
        }
        let shape = match (x.sym_shape(), weight.sym_shape()) {
            (Some(x), Some(weight)) => Some(self.shape(x, weight)?),
            _ => None,
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        self.image_axes(inputs, optional(inputs, 2).map(|_| 2))
    }

    fn for_length(&self, axis: &crate::Axis, length: usize) -> Option<Arc<dyn Op>> {
        // Only a depthwise convolution has this axis, and it has a group for each channel.
        let is_channel = axis.kind == AxisKind::Each && axis.in_input(0) == Some(1);
        is_channel.then(|| -> Arc<dyn Op> { Arc::new(Self { group: length, ..self.clone() }) })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        window::multiply_adds(outputs.first(), optional(inputs, 1).copied())
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = |i: usize| optional(inputs, i).and_then(|info| info.ty.concrete_shape());
        let (Some(x), Some(weight)) = (shape(0), shape(1)) else { return 0 };
        if x.rank() != weight.rank() || x.rank() < 3 {
            return 0;
        }
        let size = optional(inputs, 0).map_or(4, |info| info.ty.dtype.size());
        self.windows(&x, &weight).map_or(0, |axes| {
            cpu::scratch_elements(self.group, threads, &axes, &weight, size).saturating_mul(size)
        })
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        channels_last::reordered(self, order, inputs)
    }

    fn prepared(&self, inputs: &[Option<&ValueInfo>], hints: Hints) -> Result<Option<Step>> {
        if hints.on_device { transformed::prepared(self, inputs) } else { Ok(None) }
    }

    fn with_affine(
        &self,
        inputs: &[Option<&ValueInfo>],
        affine: &Affine,
    ) -> Result<Option<Vec<Operand>>> {
        folding::with_affine(inputs, affine)
    }

    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        bytes::on_bytes(self, inputs, y)
    }

    fn on_dynamic_bytes(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<(Step, bool)>> {
        bytes::on_dynamic_bytes(self, inputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
