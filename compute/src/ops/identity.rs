//! Passes its input on.

use crate::Axes;
use crate::args::{optional, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Datum, Tensor, TensorView, ValueKind};
use std::ops::RangeInclusive;

/// `Identity`, and `Dropout` at inference without its mask. Nothing is copied for a tensor that
/// the caller owns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity;

impl Op for Identity {
    fn name(&self) -> &'static str {
        "Identity"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        // Dropout at inference has two more inputs: ratio and training mode.
        1..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        Ok(vec![ValueInfo::clone(required(inputs, 0)?)])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        match optional(inputs, 0) {
            Some(x) if x.kind == ValueKind::Tensor => Axes::each_but(&[], inputs, outputs.len()),
            _ => Axes::new(),
        }
    }

    fn moves(&self) -> bool {
        true
    }

    fn passes_memory_on(&self) -> bool {
        true
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        Ok(vec![required(inputs, 0)?.to_tensor()?])
    }

    fn takes_data(&self) -> bool {
        true
    }

    fn compute_data(&self, _: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let first = inputs.into_iter().next().flatten();
        Ok(vec![first.ok_or_else(|| Error::invalid("input 0 is missing"))?])
    }
}
