//! Transposed convolution: the gradient of a convolution, used to upsample.

mod cpu;
mod device;

use crate::args::{float, optional, output, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::window::{self, Axis, Pads, per_axis};
use crate::{Axes, AxisKind};
use lgp_memory::{Dim, SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// `ConvTranspose`: inputs x `[n, c, spatial…]`, weight `[c, m / group, kernel…]`,
/// bias `[m]` (optional).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvTranspose {
    /// One per spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// The elements cut off the full output.
    pub pads: Pads,
    /// One per spatial axis; empty means all 1.
    pub dilations: Vec<usize>,
    /// Groups of channels that do not mix.
    pub group: usize,
    /// Elements added to one side of each spatial axis of the output; empty means all 0.
    pub output_padding: Vec<usize>,
    /// The output's spatial shape; when given, the pads follow from it.
    pub output_shape: Option<Vec<usize>>,
}

impl Default for ConvTranspose {
    fn default() -> Self {
        Self {
            strides: Vec::new(),
            pads: Pads::default(),
            dilations: Vec::new(),
            group: 1,
            output_padding: Vec::new(),
            output_shape: None,
        }
    }
}

impl ConvTranspose {
    /// The window of each axis, seen from the output: its `input` is this operator's output.
    fn windows(&self, x: &[usize], kernel: &[usize]) -> Result<Vec<Axis>> {
        let rank = kernel.len();
        let strides = per_axis("strides", &self.strides, rank, 1)?;
        let dilations = per_axis("dilations", &self.dilations, rank, 1)?;
        let extra = per_axis("output_padding", &self.output_padding, rank, 0)?;
        let explicit = match &self.pads {
            Pads::Explicit(p) => per_axis("pads", p, 2 * rank, 0)?,
            _ => vec![0; 2 * rank],
        };
        let wanted = match &self.output_shape {
            Some(shape) if shape.len() != rank => {
                let message = format!("output_shape has {} entries, expected {rank}", shape.len());
                return Err(Error::invalid(message));
            }
            shape => shape.as_ref(),
        };
        let one = |axis: usize| {
            let (stride, dilation, kernel) = (strides[axis], dilations[axis], kernel[axis]);
            let wrong = || {
                let message = format!(
                    "axis {axis} with kernel {kernel}, stride {stride}, dilation {dilation} and \
                     these pads has no valid output size"
                );
                Error::invalid(message)
            };
            if stride == 0 || dilation == 0 || kernel == 0 || x[axis] == 0 {
                return Err(wrong());
            }
            let reach = (kernel - 1).checked_mul(dilation).and_then(|n| n.checked_add(1));
            let span = (x[axis] - 1).checked_mul(stride);
            let full = span
                .zip(reach)
                .and_then(|(span, reach)| span.checked_add(reach)?.checked_add(extra[axis]));
            let full = full.ok_or_else(wrong)?;
            let same = !matches!(self.pads, Pads::Explicit(_));
            let size = match wanted {
                Some(wanted) => Some(wanted[axis]),
                None if same => Some(x[axis].checked_mul(stride).ok_or_else(wrong)?),
                None => None,
            };
            let (begin, output) = match size {
                Some(size) => {
                    // A size beyond the full one only adds zeros at the end.
                    let total = full.saturating_sub(size);
                    let small = total / 2;
                    let upper = self.pads == Pads::SameUpper;
                    (if upper { small } else { total - small }, size)
                }
                None => {
                    let (begin, end) = (explicit[axis], explicit[rank + axis]);
                    let rest = full.checked_sub(begin).and_then(|n| n.checked_sub(end));
                    (begin, rest.ok_or_else(wrong)?)
                }
            };
            Ok(Axis { input: output, output: x[axis], kernel, stride, dilation, begin, end: 0 })
        };
        (0..rank).map(one).collect()
    }

    fn shape(&self, x: &[Dim], weight: &[Dim]) -> Result<Vec<Dim>> {
        let (SymShape(x), SymShape(weight)) = (SymShape(x.to_vec()), SymShape(weight.to_vec()));
        let ([n, c, spatial @ ..], [inputs, per_group, kernel @ ..]) = (&x[..], &weight[..]) else {
            return Err(Error::invalid("the inputs have rank 1 or less, expected 3 or more"));
        };
        if spatial.is_empty() || spatial.len() != kernel.len() {
            let message = format!(
                "input of rank {} and weight of rank {}, expected equal ranks from 3 on",
                x.len(),
                weight.len()
            );
            return Err(Error::invalid(message));
        }
        dims::expect("the first dimension of weight", c, inputs)?;
        if self.group == 0 || c.known().is_some_and(|c| c % self.group != 0) {
            let message = format!("group {} does not divide {c} channels", self.group);
            return Err(Error::invalid(message));
        }
        let mut out = vec![n.clone(), dims::mul(per_group, &Dim::Known(self.group))?];
        let known = |dims: &[Dim]| dims.iter().map(Dim::known).collect::<Option<Vec<_>>>();
        match (known(spatial), known(kernel)) {
            (Some(spatial), Some(kernel)) => {
                let axes = self.windows(&spatial, &kernel)?;
                out.extend(axes.iter().map(|a| Dim::Known(a.input)));
            }
            _ => out.extend(spatial.iter().map(|_| Dim::Unknown)),
        }
        Ok(out)
    }
}

impl Op for ConvTranspose {
    fn name(&self) -> &'static str {
        "ConvTranspose"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, weight) = (required(inputs, 0)?, required(inputs, 1)?);
        float(x.ty.dtype)?;
        same_dtype("weight", x.ty.dtype, weight.ty.dtype)?;
        let shape = match (x.sym_shape(), weight.sym_shape()) {
            (Some(x), Some(weight)) => Some(self.shape(x, weight)?),
            _ => None,
        };
        if let Some(bias) = optional(inputs, 2) {
            same_dtype("bias", x.ty.dtype, bias.ty.dtype)?;
            rank("bias", bias, 1)?;
            if let (Some([length]), Some([_, m, ..])) = (bias.sym_shape(), shape.as_deref()) {
                dims::expect("the length of bias", m, length)?;
            }
        }
        Ok(output(x.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let (Some(x), Some(weight)) = (optional(inputs, 0), optional(inputs, 1)) else {
            return Axes::new();
        };
        let axes = window::image_axes(x, &[], 2, None);
        window::channel_axes(axes, self.group, weight, 1, optional(inputs, 2).map(|_| 2))
    }

    fn for_length(&self, axis: &crate::Axis, length: usize) -> Option<Arc<dyn Op>> {
        // Only a depthwise convolution has this axis, and it has a group for each channel.
        let is_channel = axis.kind == AxisKind::Each && axis.in_input(0) == Some(1);
        is_channel.then(|| -> Arc<dyn Op> { Arc::new(Self { group: length, ..self.clone() }) })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        let [x, weight] = [0, 1].map(|i| optional(inputs, i).copied());
        window::multiply_adds(x, weight)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = |i: usize| optional(inputs, i).and_then(|info| info.ty.concrete_shape());
        let (Some(x), Some(weight), Some(info)) = (shape(0), shape(1), optional(inputs, 0)) else {
            return 0;
        };
        // A plane of the input's size for each tap of each map of a group.
        let dims = x.iter().skip(2).chain(weight.iter().skip(1));
        dims.fold(info.ty.dtype.size(), |n, &d| n.saturating_mul(d))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
