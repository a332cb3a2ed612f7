//! The record of a pipeline: what each stage did, what it cost, and whether it stayed.

use super::quality::Quality;
use super::runner::LatencyMs;
use serde::{Deserialize, Serialize};

/// Everything that is measured of a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of weights and values of a run on the device.
    pub memory_bytes: u64,
    /// Times of runs on the device.
    pub latency_ms: LatencyMs,
    /// The outputs, beside the original's.
    pub quality: Quality,
}

/// How a stage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The model has the stage's change.
    Kept,
    /// The change broke the bound, or did not pay on the device.
    RolledBack,
    /// There was nothing to change.
    Skipped,
}

/// One stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The technique's name.
    pub technique: String,
    /// How strongly it was applied at last; `None` where nothing was.
    pub strength: Option<f64>,
    /// How it ended.
    pub outcome: Outcome,
    /// The reason, as a sentence.
    pub reason: String,
    /// The candidate, whether it was kept or not; `None` where there was none.
    pub candidate: Option<Measured>,
    /// The model before the stage, measured beside the candidate.
    pub before: Option<Measured>,
    /// What the technique says of its work.
    pub notes: Vec<String>,
    /// Seconds that the stage took.
    pub seconds: f64,
}

/// The record of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The target's name.
    pub target: String,
    /// The loss that was allowed.
    pub drop_max: f64,
    /// The device on which everything was measured.
    pub device: String,
    /// The original model.
    pub original: Measured,
    /// The result, measured beside the original.
    pub result: Measured,
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// Whether the model was judged on the samples that calibrated it, because there was one run.
    pub judged_on_calibration: bool,
}
