//! Limits every element to a range.

mod cpu;

use crate::Axes;
use crate::args::{not_bool, optional, output, required, same_dtype, single};
use crate::device::{Element, literal};
use crate::epilogue::Activation;
use crate::error::Result;
use crate::op::{Context, Given, Op, ValueInfo, as_large};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Clip`: inputs x, min (scalar, optional), max (scalar, optional).
///
/// A bound is a field where its input is absent (opset < 11) or where a pass folded a constant
/// input. For integer dtypes the fields must be integers in range.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Clip {
    /// Lower bound.
    pub min: Option<f32>,
    /// Upper bound.
    pub max: Option<f32>,
}

impl Op for Clip {
    fn name(&self) -> &'static str {
        "Clip"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        not_bool(x.ty.dtype)?;
        for (i, what) in [(1, "min"), (2, "max")] {
            if let Some(bound) = optional(inputs, i) {
                same_dtype(what, x.ty.dtype, bound.ty.dtype)?;
                single(what, bound)?;
            }
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn overwrites(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
        // Only x may be overwritten, though a bound may have the same type.
        as_large(&inputs[..inputs.len().min(1)], outputs)
    }

    fn run_over(
        &self,
        ctx: &Context,
        given: Given,
        inputs: &[Option<TensorView<'_>>],
    ) -> Result<Vec<Tensor>> {
        let mut out = given.checked(self, inputs)?;
        let limited = cpu::limit(self, ctx, None, inputs, &mut out);
        limited.map_err(|error| error.of(self.name()))?;
        Ok(vec![out])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        // The bounds are single numbers, whatever their rank.
        Axes::elementwise(inputs.get(..1).unwrap_or_default(), outputs)
    }

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let value = x.first().copied().flatten()?;
        let is_float = matches!(value.dtype, DType::F32 | DType::F16 | DType::BF16);
        let bound = |i: usize, attribute: Option<f32>| match x.get(i).copied().flatten() {
            Some(given) => Some(Some(given.name.to_owned())),
            None if attribute.is_none() => Some(None),
            None => is_float.then(|| attribute.map(literal)),
        };
        let (least, most) = (bound(1, self.min)?, bound(2, self.max)?);
        let mut y = value.name.to_owned();
        if let Some(least) = least {
            y = format!("({y} < {least} ? {least} : {y})");
        }
        if let Some(most) = most {
            y = format!("({y} > {most} ? {most} : {y})");
        }
        Some(y)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn activation(&self, inputs: &[Option<&ValueInfo>]) -> Option<Activation> {
        let bound = |i: usize, attribute: Option<f32>, open: f32| match optional(inputs, i) {
            Some(info) => info.constant.as_ref()?.as_slice::<f32>().ok()?.first().copied(),
            None => Some(attribute.unwrap_or(open)),
        };
        let min = bound(1, self.min, f32::NEG_INFINITY)?;
        let max = bound(2, self.max, f32::INFINITY)?;
        let is_f32 = optional(inputs, 0).is_some_and(|x| x.ty.dtype == DType::F32);
        (is_f32 && min <= max).then_some(Activation::Clip { min, max })
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
