//! What a stateful model says of the sequences that its clients send it.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// A second, as Triton's `max_sequence_idle_microseconds` has it where nothing is said.
const IDLE_MS: NonZeroU64 = NonZeroU64::new(1000).unwrap();

/// Inferences with the same `sequence_id` are one sequence: they run in their order, and a state goes
/// from each to the next.
///
/// ```
/// let wish: lgp_sdk::Sequences =
///     serde_json::from_str(r#"{"states": [{"input": "h", "output": "h_next"}]}"#)?;
/// assert_eq!(wish.idle_ms.get(), 1000);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequences {
    /// A sequence that has sent nothing for so long is over.
    #[serde(default = "idle_ms")]
    pub idle_ms: NonZeroU64,
    /// Outputs that are given to the model as inputs in the sequence's next inference; zeros in its first.
    #[serde(default)]
    pub states: Vec<SequenceState>,
    /// Inputs that tell the model where in the sequence an inference stands.
    #[serde(default)]
    pub controls: Vec<SequenceControl>,
}

/// A state of a sequence: it leaves the model by an output and comes back by an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceState {
    /// The input's name.
    pub input: String,
    /// The output's name.
    pub output: String,
}

/// An input that the server fills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceControl {
    /// The input's name.
    pub input: String,
    /// What it is told.
    pub kind: ControlKind,
}

/// What an input is told of a sequence, with Triton's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// 1 in the first inference of a sequence, else 0.
    Start,
    /// 1 in the last one, else 0.
    End,
    /// 1: there is an inference.
    Ready,
    /// The sequence's id.
    CorrelationId,
}

fn idle_ms() -> NonZeroU64 {
    IDLE_MS
}
