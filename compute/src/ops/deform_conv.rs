//! Convolution whose taps are moved by offsets.

mod cpu;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, output, rank, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::window::{self, Axis, Pads, specs};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `DeformConv`: inputs x `[n, c, spatial…]`, weight `[m, c / group, kernel…]`, offset
/// `[n, offset groups · taps · axes, output…]`, bias `[m]` (optional), mask
/// `[n, offset groups · taps, output…]` (optional, ones).
///
/// Each tap reads x between its elements, linearly; outside there are zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeformConv {
    /// One a spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// All begins, then all ends; empty means none.
    pub pads: Vec<usize>,
    /// One a spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Groups of channels; an output channel sees only its own group.
    pub group: usize,
    /// Groups of channels that share offsets.
    pub offset_group: usize,
}

impl Default for DeformConv {
    fn default() -> Self {
        let (strides, pads, dilations) = (Vec::new(), Vec::new(), Vec::new());
        Self { strides, pads, dilations, group: 1, offset_group: 1 }
    }
}

impl DeformConv {
    /// The window of each axis.
    fn windows(&self, x: &[usize], kernel: &[usize]) -> Result<Vec<Axis>> {
        let pads = Pads::Explicit(self.pads.clone());
        let specs = specs(kernel, &self.strides, &self.dilations, &pads, false)?;
        specs.iter().zip(x).map(|(spec, &n)| spec.axis(n)).collect()
    }

    /// The output's shape; checks weight, offset, bias and mask.
    fn shape(&self, inputs: &[Option<&ValueInfo>], x: &[Dim], weight: &[Dim]) -> Result<Vec<Dim>> {
        let ([n, c, spatial @ ..], [m, per_group, kernel @ ..]) = (x, weight) else {
            return Err(Error::invalid("the inputs have rank 1 or less, expected 3 or more"));
        };
        if spatial.is_empty() || spatial.len() != kernel.len() {
            let message = format!("input of rank {}, weight of rank {}", x.len(), weight.len());
            return Err(Error::invalid(message));
        }
        let divides = |n: &Dim, by: usize| by != 0 && n.known().is_none_or(|n| n % by == 0);
        let (group, offset_group) = (self.group, self.offset_group);
        if !(divides(c, group) && divides(m, group) && divides(c, offset_group)) {
            let message = format!(
                "{group} groups and {offset_group} of offsets do not divide {c} to {m} channels"
            );
            return Err(Error::invalid(message));
        }
        let channels = dims::mul(per_group, &Dim::Known(group))?;
        dims::expect("the weight's channels of all groups", c, &channels)?;
        let known = |dims: &[Dim]| dims.iter().map(Dim::known).collect::<Option<Vec<_>>>();
        let mut out = vec![n.clone(), m.clone()];
        match (known(spatial), known(kernel)) {
            (Some(spatial), Some(kernel)) => {
                let axes = self.windows(&spatial, &kernel)?;
                out.extend(axes.iter().map(|a| Dim::Known(a.output)));
            }
            _ => out.extend(spatial.iter().map(|_| Dim::Unknown)),
        }
        let taps = dims::mul(&dims::product(kernel)?, &Dim::Known(offset_group))?;
        let moves = dims::mul(&taps, &Dim::Known(kernel.len()))?;
        for (i, what, channels) in [(2, "offset", moves), (4, "mask", taps)] {
            let Some(input) = optional(inputs, i) else { continue };
            rank(what, input, x.len())?;
            let want = [n, &channels].into_iter().chain(&out[2..]);
            for (want, given) in want.zip(input.sym_shape().unwrap_or_default()) {
                dims::expect(&format!("a dimension of {what}"), want, given)?;
            }
        }
        Ok(out)
    }
}

impl Op for DeformConv {
    fn name(&self) -> &'static str {
        "DeformConv"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=5
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
        required(inputs, 2)?;
        float(x.ty.dtype)?;
        for (i, what) in [(1, "weight"), (2, "offset"), (3, "bias"), (4, "mask")] {
            if let Some(input) = optional(inputs, i) {
                same_dtype(what, x.ty.dtype, input.ty.dtype)?;
            }
        }
        let shape = match (x.sym_shape(), weight.sym_shape()) {
            (Some(x), Some(weight)) => Some(self.shape(inputs, x, weight)?),
            _ => None,
        };
        if let Some(bias) = optional(inputs, 3) {
            rank("bias", bias, 1)?;
            if let (Some([length]), Some([_, m, ..])) = (bias.sym_shape(), shape.as_deref()) {
                dims::expect("the length of bias", m, length)?;
            }
        }
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let there = |i: &usize| optional(inputs, *i).is_some();
        let images = [0, 2, 4].into_iter().filter(there).map(|i| (i, 0));
        let axes = Axes::new().each(images, [(0, 0)]);
        let bias = optional(inputs, 3).map(|_| 3);
        match optional(inputs, 1) {
            // With several offset groups, a part of the channels would be divided otherwise.
            Some(weight) if self.offset_group == 1 => {
                window::channel_axes(axes, self.group, weight, 0, bias)
            }
            _ => axes,
        }
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let weight = optional(inputs, 1).copied();
        let products = window::multiply_adds(outputs.first(), weight);
        let maps = weight.and_then(|weight| weight.dim(0)?.known()).unwrap_or(0) as u64;
        // Each tap of each channel is interpolated between two elements on every axis.
        let corners = weight.and_then(ValueInfo::rank).map_or(0, |rank| rank.saturating_sub(2));
        let taps = products.checked_div(maps).unwrap_or(0).saturating_mul(self.group as u64);
        let corners = 2u64.saturating_pow(u32::try_from(corners).unwrap_or(u32::MAX));
        products.saturating_add(taps.saturating_mul(corners))
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = |info: &ValueInfo| info.ty.concrete_shape();
        let out = self.infer(inputs).ok().and_then(|out| shape(out.first()?));
        let given = |i: usize| optional(inputs, i).and_then(|info| shape(info));
        let (Some(out), Some(x), Some(weight)) = (out, given(0), given(1)) else { return 0 };
        // The columns: the taps of every channel at each output.
        let channels = x.get(1).copied().unwrap_or(0);
        let size = optional(inputs, 0).map_or(0, |info| info.ty.dtype.size());
        let dims = out.iter().skip(2).chain(weight.iter().skip(2));
        dims.fold(channels.saturating_mul(size), |n, &d| n.saturating_mul(d))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
