//! The mean of several tensors.

use super::{Binary, BinaryKind};
use crate::Axes;
use crate::args::{float, output, required, same_dtype};
use crate::device::Element;
use crate::dims;
use crate::error::{Error, Result};
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Mean`: one or more inputs of one float dtype that broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mean;

impl Op for Mean {
    fn name(&self) -> &'static str {
        "Mean"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=usize::MAX
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let first = required(inputs, 0)?;
        float(first.ty.dtype)?;
        let mut shape = first.sym_shape().map(<[_]>::to_vec);
        for i in 1..inputs.len() {
            let x = required(inputs, i)?;
            same_dtype(&format!("input {i}"), first.ty.dtype, x.ty.dtype)?;
            shape = match (shape, x.sym_shape()) {
                (Some(a), Some(b)) => Some(dims::broadcast(&a, b)?),
                _ => None,
            };
        }
        Ok(output(first.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        let floats = [DType::F32, DType::F16, DType::BF16];
        let mut names = Vec::with_capacity(x.len());
        for x in x {
            names.push(x.filter(|x| floats.contains(&x.dtype))?.name);
        }
        Some(format!("({}) / {}.0f", names.join(" + "), names.len()))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, _) = crate::args::concrete_one(self, inputs)?;
        let mut sum = required(inputs, 0)?.to_tensor()?;
        for x in &inputs[1..] {
            let pair = [Some(sum.view()), x.clone()];
            let next = Binary::new(BinaryKind::Add).run(ctx, &pair)?.pop();
            sum = next.ok_or_else(|| Error::invalid("there is no sum"))?;
        }
        with_type!(dtype, real T => {
            let count = <T as crate::number::Number>::count(inputs.len());
            sum.as_mut_slice::<T>()?.iter_mut().for_each(|x| *x /= count);
            Ok(())
        })?;
        Ok(vec![sum])
    }
}
