//! Matrix product, batched.

pub(crate) mod bytes;
pub(crate) mod cpu;
pub(crate) mod device;
pub(crate) mod facts;
pub(crate) mod packing;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{concrete_one, required};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::Launches;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::MatMulStored;
use crate::rewrite::{Decoder, Hints, Step};
use lgp_memory::{Tensor, TensorView};
use packing::PLAIN;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// `MatMul` by numpy's rules: the last two axes multiply, the others broadcast. The axis that is
/// added to a vector on either side is removed again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatMul;

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "MatMul"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        facts::infer(required(inputs, 0)?, required(inputs, 1)?)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        facts::axes(inputs, outputs)
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        facts::multiply_adds(inputs, outputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn prepared(&self, inputs: &[Option<&ValueInfo>], hints: Hints) -> Result<Option<Step>> {
        packing::prepared(Some(PLAIN), inputs, hints)
    }

    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        bytes::on_bytes(false, inputs, y)
    }

    fn on_dynamic_bytes(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<(Step, bool)>> {
        bytes::on_dynamic_bytes(false, inputs)
    }

    fn reading_stored(
        &self,
        input: usize,
        decoder: &Decoder,
        inputs: &[Option<&ValueInfo>],
    ) -> Option<Arc<dyn Op>> {
        let op = MatMulStored::of(decoder, inputs).filter(|_| input == 1)?;
        Some(Arc::new(op))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let factors = [required(inputs, 0)?, required(inputs, 1)?];
        Ok(vec![cpu::run(ctx, factors, dtype, &shape)?])
    }
}
