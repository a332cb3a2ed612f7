//! Tasks of a model that run as one batch, where that gives the same results.

use lgp_distributed::ModelRef;
use lgp_inference::{Result, Session, Stop};
use lgp_memory::{DType, NamedTensor, Tensor, TensorView};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How far results of a batch may be from those of its tasks alone, of the value and in any case:
/// sums may be added up in another order.
const RELATIVE: f32 = 1e-3;
const ABSOLUTE: f32 = 1e-4;

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
    /// stopped.
    pub(crate) fn run(
        &self,
        model: &ModelRef,
        session: &Session,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> Option<Vec<Vec<NamedTensor>>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let trusted = known().get(model).copied();
        if trusted == Some(false) {
            return None;
        }
        if trusted == Some(true) {
            // A model that takes no batches says so at once; what else fails may be one task's fault.
            return session.run_batch_until(batch, stop).ok();
        }
        // Where nothing can be found out, running both ways would be for nothing.
        let probe = telling(batch)?;
        let joined = session.run_batch_until(&probe, stop).ok()?;
        let mut alone: Vec<_> =
            probe.iter().map(|inputs| alone(session, inputs, stop)).collect::<Result<_>>().ok()?;
        let agree = agree(&alone, &joined);
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
