//! The operator that runs one of two graphs.

use super::{Body, present, present_infos, truth};
use lgp_compute::{Context, Error, Op, Result, ValueInfo};
use lgp_memory::{Datum, Dim, SymShape, Tensor, TensorView, ValueKind};
use std::ops::RangeInclusive;

/// ONNX's `If`. Inputs: the condition, the values that the first graph takes from around it, and
/// those that the second graph takes.
#[derive(Debug)]
pub(crate) struct If {
    pub(crate) then_branch: Body,
    pub(crate) else_branch: Body,
    /// How many values the first graph takes.
    pub(crate) then_inputs: usize,
}

impl Op for If {
    fn name(&self) -> &'static str {
        "If"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        // The condition, and the values that the graphs take from around them.
        1 + self.then_inputs..=usize::MAX
    }

    fn held_bytes(&self) -> usize {
        self.then_branch.stored_bytes() + self.else_branch.stored_bytes()
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let mut infos = present_infos(inputs)?;
        let for_else = infos.split_off(1 + self.then_inputs);
        let for_then = infos.split_off(1);
        // The types of the inputs may contradict a branch that is never taken.
        let taken = infos[0].constant.as_ref().and_then(|c| truth(&c.clone().into()).ok());
        if let Some(truth) = taken {
            return if truth {
                self.then_branch.infer(for_then)
            } else {
                self.else_branch.infer(for_else)
            };
        }
        let a = self.then_branch.infer(for_then);
        let b = self.else_branch.infer(for_else);
        let (a, b) = match (a, b) {
            (Err(e), Err(_)) => return Err(e),
            // The branch that fails cannot run with these inputs: a run takes the other.
            (Ok(known), Err(_)) | (Err(_), Ok(known)) => return Ok(known),
            (Ok(a), Ok(b)) => (a, b),
        };
        if a.len() != b.len() {
            let message = format!("its graphs return {} and {} values", a.len(), b.len());
            return Err(Error::invalid(message));
        }
        a.into_iter().zip(b).map(|(a, b)| either(a, &b)).collect()
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
        let mut inputs = present(inputs)?;
        let for_else = inputs.split_off(1 + self.then_inputs);
        let for_then = inputs.split_off(1);
        if truth(&inputs[0])? {
            self.then_branch.run(ctx, for_then)
        } else {
            self.else_branch.run(ctx, for_else)
        }
    }
}

/// The facts that hold for both branches.
fn either(a: ValueInfo, b: &ValueInfo) -> Result<ValueInfo> {
    if a.ty.dtype != b.ty.dtype {
        let message = format!("its graphs return {} and {}", a.ty, b.ty);
        return Err(Error::invalid(message));
    }
    let kind = match (a.kind, b.kind) {
        (x, y) if x == y => x,
        (ValueKind::Tensor | ValueKind::Optional, ValueKind::Tensor | ValueKind::Optional) => {
            ValueKind::Optional
        }
        (x, y) => {
            let message =
                format!("its graphs return {} and {}", x.describe(&a.ty), y.describe(&b.ty));
            return Err(Error::invalid(message));
        }
    };
    let mut ty = a.ty;
    ty.shape = match (ty.shape, &b.ty.shape) {
        (Some(x), Some(y)) if x.rank() == y.rank() => {
            let dims = x.0.into_iter().zip(&y.0);
            Some(SymShape(dims.map(|(x, y)| if x == *y { x } else { Dim::Unknown }).collect()))
        }
        _ => None,
    };
    Ok(ValueInfo::holding(kind, ty))
}
