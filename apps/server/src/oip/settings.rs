//! The batches, warm-up and cache in the model configuration that Triton's clients get, for both protocols.

use super::signature;
use crate::catalog::ModelEntry;
use crate::deployment::{Deployment, WarmUp};
use lgp_distributed::Batching;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, Dim};

/// The reported settings.
pub(crate) struct Settings {
    /// The most rows of one inference; requests with more are refused if the model's config file sets the number. 0
    /// if the shapes include the batch.
    pub(crate) max_batch_size: u32,
    /// How inferences are batched, if they are.
    pub(crate) batching: Option<Batching>,
    pub(crate) warm_up: Vec<WarmUpRun>,
    /// Whether answers are cached.
    pub(crate) is_cached: bool,
}

/// A run before the model is ready.
pub(crate) struct WarmUpRun {
    /// Rows; 0 if the shapes include them.
    pub(crate) batch_size: u32,
    pub(crate) inputs: Vec<WarmUpInput>,
}

/// An input of a warm-up run.
pub(crate) struct WarmUpInput {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<i64>,
}

impl Settings {
    /// The settings of a model with this deployment.
    pub(crate) fn of(entry: &ModelEntry, deployment: &Deployment) -> Self {
        let batching = deployment.batching.as_ref().filter(|batching| batching.max.get() > 1);
        // Batching counts inferences of any number of rows. Clients send batches only if they see a number.
        let most = match entry.max_batch_size() {
            0 => batching.map_or(0, |batching| batching.max.get()),
            most => most,
        };
        // A model with states is reported with whole shapes.
        let has_rows = deployment.sequences.is_none() && entry.has_rows();
        let max_batch_size = if has_rows { most } else { 0 };
        let run = |warm_up| warm_up_run(entry.inputs(), warm_up, max_batch_size > 0);
        Self {
            max_batch_size,
            batching: batching.filter(|_| max_batch_size > 0).cloned(),
            warm_up: deployment.warm_up.iter().map(run).collect(),
            // Answers of sequences are not cached.
            is_cached: deployment.cache_bytes.is_some() && deployment.sequences.is_none(),
        }
    }

    /// The dimensions of an input or output, without the batch unless the shapes include it.
    pub(crate) fn dims(&self, spec: &ValueSpec) -> Vec<i64> {
        let dims = signature::wire_dims(spec.ty.shape.as_ref());
        dims.into_iter().skip(usize::from(self.max_batch_size > 0)).collect()
    }
}

fn warm_up_run(specs: &[ValueSpec], warm_up: &WarmUp, has_rows: bool) -> WarmUpRun {
    let mut batch_size = 0;
    let input = |spec: &ValueSpec| {
        let own = || {
            let dims = spec.ty.shape.iter().flat_map(|shape| &shape.0).map(Dim::known);
            dims.map(|dim| dim.map_or(1, |n| u64::try_from(n).unwrap_or(u64::MAX))).collect()
        };
        let mut dims: Vec<u64> = warm_up.shapes.get(&spec.name).cloned().unwrap_or_else(own);
        if has_rows && !dims.is_empty() {
            batch_size = u32::try_from(dims.remove(0)).unwrap_or(u32::MAX);
        }
        let dims = dims.into_iter().map(|dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect();
        WarmUpInput { name: spec.name.clone(), dtype: spec.ty.dtype, dims }
    };
    let inputs = specs.iter().map(input).collect();
    WarmUpRun { batch_size, inputs }
}
