//! Joins tensors along an axis.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{axis, output_moved, required, same_dtype};
use crate::bytes::{Dequantized, OnBytes, Requantized, requantized};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::reorder::{Reordered, moved_axis, moved_constant};
use crate::rewrite::{Operand, Step};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Concat`: one or more inputs that agree in dtype and in every dimension but one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Concat {
    /// Axis, negative from the back.
    pub axis: i64,
}

impl Op for Concat {
    fn name(&self) -> &'static str {
        "Concat"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=usize::MAX
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let first = required(inputs, 0)?;
        let mut shape = first.sym_shape().map(<[_]>::to_vec);
        let along = shape.as_ref().map(|dims| axis(self.axis, dims.len())).transpose()?;
        for i in 1..inputs.len() {
            let next = required(inputs, i)?;
            same_dtype(&format!("input {i}"), first.ty.dtype, next.ty.dtype)?;
            let (Some(dims), Some(along), Some(out)) = (next.sym_shape(), along, &mut shape) else {
                shape = None;
                continue;
            };
            if dims.len() != out.len() {
                let message = format!("input {i} has rank {}, expected {}", dims.len(), out.len());
                return Err(Error::invalid(message));
            }
            for (a, (out, dim)) in out.iter_mut().zip(dims).enumerate() {
                *out = if a == along {
                    dims::add(out, dim)?
                } else {
                    dims::unify(&format!("axis {a} of input {i}"), out, dim)?
                };
            }
        }
        output_moved(self, inputs, 0..inputs.len(), shape)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        let along = axis(self.axis, rank).ok();
        let others = (0..rank).filter(|&axis| Some(axis) != along);
        others.fold(Axes::new(), |axes, axis| {
            axes.each((0..inputs.len()).map(|i| (i, axis)), [(0, axis)])
        })
    }

    fn moves(&self) -> bool {
        true
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        _: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        let axis = moved_axis(order, self.axis)?;
        let mut reordered = Vec::with_capacity(inputs.len());
        let mut operands = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            let info = input.filter(|info| info.rank() == Some(order.len()))?;
            reordered.push(info.constant.is_none());
            operands.push(match &info.constant {
                Some(constant) => Operand::Constant(moved_constant(order, constant)?),
                None => Operand::Input(i),
            });
        }
        let any = reordered.contains(&true);
        let make = move |_| Ok(vec![Step::new(Self { axis }, operands)]);
        any.then(|| Reordered::new(reordered, vec![true], make))
    }

    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        let mut steps = Vec::new();
        let mut operands = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.iter().enumerate() {
            let x = input.as_ref()?.quant?;
            if x == y.quant && y.is_plain() {
                operands.push(Operand::Input(i));
                continue;
            }
            let table = requantized(x, y)?;
            operands.push(Operand::Made(steps.len()));
            steps.push(Step::new(table, vec![Operand::Input(i)]));
        }
        steps.push(Step::same(operands));
        Some(OnBytes { steps, channels_last: false, is_cheap: true })
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
