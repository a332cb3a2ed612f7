//! A convolution of constant weights with its weight also as Winograd's algorithm reads it, for
//! devices: the weight is transformed once, when a model is loaded.

use super::device::Convolution;
use super::{Conv, cpu, device};
use crate::Axes;
use crate::args::optional;
use crate::device::Launches;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::{Operand, Step};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;

/// The operands of a plain convolution, of which the bias may be absent, and the transformed weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transformed(Conv);

/// The step with a transformed weight, where Winograd's algorithm is the fastest for one image.
pub(super) fn prepared(conv: &Conv, inputs: &[Option<&ValueInfo>]) -> Result<Option<Step>> {
    let (Some(x), Some(weight)) = (optional(inputs, 0), optional(inputs, 1)) else {
        return Ok(None);
    };
    let (Some([_, sizes @ ..]), Some(constant)) = (x.sym_shape(), &weight.constant) else {
        return Ok(None);
    };
    if weight.ty.dtype != DType::F32 {
        return Ok(None);
    }
    let mut one = ValueInfo::clone(x);
    let dims = std::iter::once(&Dim::Known(1)).chain(sizes).cloned();
    one.ty.shape = Some(SymShape(dims.collect()));
    let mut of_one = inputs.to_vec();
    of_one[0] = Some(&one);
    let convolution = Convolution::new(conv, &of_one, &conv.infer_types(&of_one)?);
    // Groups of one channel are computed plane by plane.
    let gains = |conv: &Convolution| {
        conv.channels > 1 && conv.cost().and_then(|cost| conv.winograd(cost)).is_some()
    };
    let known = convolution.map(|plain| Convolution { transformed: true, ..plain });
    let Some(convolution) = known.filter(gains) else { return Ok(None) };
    let transformed = convolution.transform(constant.view().as_slice()?)?;
    let bias = if optional(inputs, 2).is_some() { Operand::Input(2) } else { Operand::Absent };
    let operands = vec![Operand::Input(0), Operand::Input(1), bias, Operand::Constant(transformed)];
    Ok(Some(Step::new(Transformed(conv.clone()), operands)))
}

impl Op for Transformed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn arity(&self) -> RangeInclusive<usize> {
        4..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        self.0.infer_types(&inputs[..3])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        self.0.axes(&inputs[..3], outputs)
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        self.0.multiply_adds(inputs, outputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(&self.0, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(&self.0, inputs, outputs)
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        self.0.scratch_bytes(threads, inputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(&self.0, ctx, &inputs[..3])
    }
}
