//! What a worker runs: the one seam between the cluster and whatever executes models.

use crate::net::blob::ModelCache;
use crate::task::ModelRef;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};

/// Runs models for a worker. All methods are called on blocking threads, several at a time.
///
/// A worker has one device or several; `device` is a position in [`ExecutorStatus::devices`],
/// whose number and order never change.
pub trait Executor: Send + Sync + 'static {
    /// Makes a model ready. Loading a model that is loaded already is not an error.
    ///
    /// # Errors
    /// [`ExecErrorKind::ModelNotFound`], or [`ExecErrorKind::Unavailable`] when it does not fit.
    fn load(&self, device: usize, model: &ModelRef) -> Result<(), ExecError>;

    /// The memory of a device that a loaded model takes, in bytes, where that is known. Models are
    /// placed by it.
    fn footprint(&self, _device: usize, _model: &ModelRef) -> Option<u64> {
        None
    }

    /// Lets go of a model; unknown models are ignored.
    fn unload(&self, device: usize, model: &ModelRef);

    /// Runs a model once. Its time is what tasks report as `model_ms`.
    ///
    /// # Errors
    /// [`ExecError`]; only [`ExecErrorKind::Unavailable`] is tried again, elsewhere or later.
    fn execute(
        &self,
        device: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
    ) -> Result<Vec<NamedTensor>, ExecError>;

    /// Runs a model for several tasks at once, whose inputs have the same names, types and shapes;
    /// answers one result for each, in their order, and those of the others where one fails.
    ///
    /// Each task reports the time of the whole call as `model_ms`, for so long it took to have its
    /// answer. Called only where [`WorkerConfig::batch_max`](crate::WorkerConfig::batch_max) is
    /// greater than 1; runs one after another unless an executor knows better. After a panic the
    /// worker runs them one by one with [`Executor::execute`].
    fn execute_batch(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        batch.iter().map(|inputs| self.execute(device, model, inputs)).collect()
    }

    /// The state that travels with each heartbeat; must answer within milliseconds.
    fn status(&self) -> ExecutorStatus;

    /// Where models that the coordinator has are kept, if this executor does not share its files.
    /// Models that it lacks are then fetched before they are loaded or executed.
    fn cache(&self) -> Option<&dyn ModelCache> {
        None
    }
}

/// What an executor says of itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExecutorStatus {
    /// Its devices; an executor that names none counts as one device without a name.
    pub devices: Vec<DeviceStatus>,
}

impl ExecutorStatus {
    /// The state of an executor with one device.
    #[must_use]
    pub fn of(device: DeviceStatus) -> Self {
        Self { devices: vec![device] }
    }
}

/// What an executor says of one of its devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// The device, for example `cpu:0`.
    pub device: String,
    /// Its backend, for example `cpu`.
    pub backend: String,
    /// The family of its chip, for example `Polaris`, where it is known.
    pub family: String,
    /// Models that are loaded.
    pub models: Vec<ModelRef>,
    /// Memory that it has taken, where there is such a thing.
    pub vram_used_bytes: Option<u64>,
    /// Memory that it may take.
    pub vram_total_bytes: Option<u64>,
    /// How busy it is, 0 to 1, where that can be read.
    pub utilisation: Option<f32>,
    /// The power that it draws in watts, where that can be read.
    pub power_w: Option<f32>,
}

/// Why an executor did not load or run a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ExecError {
    /// The class, which decides whether the task is tried again.
    pub kind: ExecErrorKind,
    /// The details, for people.
    pub message: String,
}

impl ExecError {
    /// The inputs do not fit the model.
    pub fn bad_input(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::BadInput, message: message.into() }
    }

    /// The model is not there.
    pub fn model_not_found(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::ModelNotFound, message: message.into() }
    }

    /// The model failed while it ran or loaded.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::Failed, message: message.into() }
    }

    /// The worker cannot do it for now; another one may.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: ExecErrorKind::Unavailable, message: message.into() }
    }
}

impl ExecError {
    /// The error with a message that fits a frame's header.
    pub(crate) fn shortened(mut self) -> Self {
        const MESSAGE_BYTES_MAX: usize = 8 << 10;
        self.message.truncate(self.message.floor_char_boundary(MESSAGE_BYTES_MAX));
        self
    }
}

/// Classes of [`ExecError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecErrorKind {
    /// Final: the inputs do not fit the model.
    BadInput,
    /// Final: the model is not there.
    ModelNotFound,
    /// Final: the model failed.
    Failed,
    /// Tried again: out of memory, device gone.
    Unavailable,
}
