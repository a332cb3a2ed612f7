//! The operator that runs a graph on each element of sequences.

use super::{Body, present, present_infos};
use lgp_compute::{Context, Error, Op, Result, ValueInfo};
use lgp_memory::{Datum, Tensor, TensorView, ValueKind};
use std::ops::RangeInclusive;

/// ONNX's `SequenceMap`. Inputs: the sequence, further sequences of the same length or values that
/// every call gets, and the values that the graph takes from around it.
#[derive(Debug)]
pub(crate) struct SequenceMap {
    pub(crate) body: Body,
}

impl Op for SequenceMap {
    fn name(&self) -> &'static str {
        "SequenceMap"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=usize::MAX
    }

    fn held_bytes(&self) -> usize {
        self.body.stored_bytes()
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let mut infos = present_infos(inputs)?;
        for info in infos.iter_mut().take(self.body.own) {
            if info.kind == ValueKind::Sequence {
                info.kind = ValueKind::Tensor;
            }
        }
        let outputs = self.body.infer(infos)?;
        let outputs = outputs.into_iter().map(|mut o| {
            o.ty.shape = None;
            ValueInfo::holding(ValueKind::Sequence, o.ty)
        });
        Ok(outputs.collect())
    }

    // Operators inside may draw random numbers.
    fn is_deterministic(&self) -> bool {
        false
    }

    fn compute(&self, _: &Context, _: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        Err(Error::unsupported("tensors alone"))
    }

    fn takes_data(&self) -> bool {
        true
    }

    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let inputs = present(inputs)?;
        let Some(Datum::Sequence(first)) = inputs.first() else {
            return Err(Error::invalid("input 0 is no sequence"));
        };
        let mut lists: Vec<Vec<Datum>> = vec![Vec::new(); self.body.outputs()];
        for i in 0..first.len() {
            let given = inputs.iter().enumerate().map(|(k, input)| match input {
                Datum::Sequence(items) if k < self.body.own => {
                    items.get(i).cloned().ok_or_else(|| {
                        let (given, expected) = (items.len(), first.len());
                        let message =
                            format!("input {k} is a sequence of {given}, expected {expected}");
                        Error::invalid(message)
                    })
                }
                other => Ok(other.clone()),
            });
            let outputs = self.body.run(ctx, given.collect::<Result<_>>()?)?;
            lists.iter_mut().zip(outputs).for_each(|(list, value)| list.push(value));
        }
        Ok(lists.into_iter().map(Datum::Sequence).collect())
    }
}
