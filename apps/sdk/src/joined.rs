//! Tasks of a model that run as one batch, where that gives the same results.

use lgp_distributed::ModelRef;
use lgp_inference::{Result, Session};
use lgp_memory::{DType, NamedTensor, Tensor, TensorView};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How far results of a batch may be from those of its tasks alone, of the value and in any case:
/// sums may be added up in another order.
const RELATIVE: f32 = 1e-3;
const ABSOLUTE: f32 = 1e-4;

/// What was found out about joining each model's tasks.
///
/// That the first dimension of all inputs and outputs is one symbol says that it may vary, and not
/// that rows know nothing of each other. So a model's first batch runs both ways.
#[derive(Debug, Default)]
pub(crate) struct Joins(Mutex<BTreeMap<ModelRef, bool>>);

impl Joins {
    /// Runs tasks as one batch; `None` where they have to be run one by one.
    pub(crate) fn run(
        &self,
        model: &ModelRef,
        session: &Session,
        batch: &[Vec<NamedTensor>],
    ) -> Option<Vec<Vec<NamedTensor>>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let trusted = known().get(model).copied();
        if trusted == Some(false) {
            return None;
        }
        // A model that takes no batches says so at once; what else fails may be one task's fault.
        let joined = session.run_batch(batch).ok()?;
        if trusted.is_none() {
            let alone: Result<Vec<_>> = batch.iter().map(|inputs| alone(session, inputs)).collect();
            let alone = alone.ok()?;
            let agree = agree(&alone, &joined);
            // Rows that are all the same may agree by chance.
            if !agree || batch.windows(2).any(|pair| pair.first() != pair.last()) {
                known().insert(model.clone(), agree);
            }
            if !agree {
                tracing::warn!(%model, "rows of a batch depend on one another: its tasks run one by one");
            }
            return Some(alone);
        }
        Some(joined)
    }

    /// Forgets a model.
    pub(crate) fn forget(&self, model: &ModelRef) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(model);
    }
}

fn alone(session: &Session, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|input| (input.name.as_str(), input.tensor.view())).collect();
    session.run(&views)
}

fn agree(alone: &[Vec<NamedTensor>], joined: &[Vec<NamedTensor>]) -> bool {
    let outputs = |(alone, joined): (&Vec<NamedTensor>, &Vec<NamedTensor>)| {
        let same =
            |(a, b): (&NamedTensor, &NamedTensor)| a.name == b.name && close(&a.tensor, &b.tensor);
        alone.len() == joined.len() && alone.iter().zip(joined).all(same)
    };
    alone.len() == joined.len() && alone.iter().zip(joined).all(outputs)
}

fn close(a: &Tensor, b: &Tensor) -> bool {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return false;
    }
    let near = |(a, b): (&f32, &f32)| {
        (a - b).abs() <= RELATIVE.mul_add(a.abs(), ABSOLUTE) || a.to_bits() == b.to_bits()
    };
    match (a.dtype(), a.as_slice::<f32>(), b.as_slice::<f32>()) {
        (DType::F32, Ok(a), Ok(b)) => a.iter().zip(b).all(near),
        _ => a == b,
    }
}
