//! Tasks of a model that run as one batch, where that gives the same results.

use crate::results::agree;
use lgp_distributed::ModelRef;
use lgp_inference::{Profile, Result, Session, Stop};
use lgp_memory::{NamedTensor, Tensor, TensorView};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What was found out about joining each model's tasks.
///
/// That the first dimension of all inputs and outputs is one symbol says that it may vary, and not
/// that rows know nothing of each other. So a model's first batch runs both ways. Rows that are all the
/// same may agree by chance and prove nothing: where a batch has no others, the elements of its last
/// task, in reverse, make them.
#[derive(Debug, Default)]
pub(crate) struct Joins(Mutex<BTreeMap<ModelRef, bool>>);

impl Joins {
    /// Runs tasks as one batch; `None` where they have to be run one by one, or where the run was
    /// stopped. What the nodes of a batch took is told; of a model's first one, which runs both ways, nothing.
    pub(crate) fn run(
        &self,
        model: &ModelRef,
        session: &Session,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
        profile: Option<&mut Profile>,
    ) -> Option<Vec<Vec<NamedTensor>>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let trusted = known().get(model).copied();
        if trusted == Some(false) {
            return None;
        }
        if trusted == Some(true) {
            // A model that takes no batches says so at once; what else fails may be one task's fault.
            let Some(profile) = profile else { return session.run_batch_until(batch, stop).ok() };
            let (answers, measured) = session.profile_batch_until(batch, stop).ok()?;
            *profile = measured;
            return Some(answers);
        }
        // Where nothing can be found out, running both ways would be for nothing.
        let probe = telling(batch)?;
        let joined = session.run_batch_until(&probe, stop).ok()?;
        let mut alone: Vec<_> =
            probe.iter().map(|inputs| alone(session, inputs, stop)).collect::<Result<_>>().ok()?;
        let agree =
            alone.len() == joined.len() && alone.iter().zip(&joined).all(|(a, b)| agree(a, b));
        known().insert(model.clone(), agree);
        if !agree {
            tracing::warn!(%model, "rows of a batch depend on one another: its tasks run one by one");
        }
        if probe.len() > batch.len() {
            alone.pop();
        }
        Some(alone)
    }

    /// Whether a model's tasks may run as one batch, once that was found out.
    #[cfg(test)]
    pub(crate) fn known(&self, model: &ModelRef) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(model).copied()
    }

    /// Forgets a model.
    pub(crate) fn forget(&self, model: &ModelRef) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(model);
    }
}

/// A batch whose tasks are not all the same: the one that was given, if it is such a one, or with
/// another task at its end; `None` where there is no telling rows apart.
fn telling(batch: &[Vec<NamedTensor>]) -> Option<Cow<'_, [Vec<NamedTensor>]>> {
    if batch.windows(2).any(|pair| pair.first() != pair.last()) {
        return Some(Cow::Borrowed(batch));
    }
    let last = batch.last()?;
    let other: Option<Vec<NamedTensor>> = last.iter().map(reversed).collect();
    let other = other.filter(|other| other != last)?;
    let mut probe = batch.to_vec();
    probe.push(other);
    Some(Cow::Owned(probe))
}

/// The same elements in reverse: each is one that the model takes.
fn reversed(input: &NamedTensor) -> Option<NamedTensor> {
    let tensor = &input.tensor;
    let bytes = tensor.as_bytes();
    let elements = tensor.shape().iter().product::<usize>();
    let size = bytes.len().checked_div(elements).filter(|size| size * elements == bytes.len())?;
    let reversed: Vec<u8> = bytes.chunks_exact(size.max(1)).rev().flatten().copied().collect();
    let tensor = Tensor::from_bytes(tensor.dtype(), tensor.shape().clone(), &reversed).ok()?;
    Some(NamedTensor::new(input.name.clone(), tensor))
}

fn alone(session: &Session, inputs: &[NamedTensor], stop: &Stop) -> Result<Vec<NamedTensor>> {
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|input| (input.name.as_str(), input.tensor.view())).collect();
    session.run_until(&views, stop)
}
