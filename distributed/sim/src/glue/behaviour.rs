//! The behaviour of a task's runs, and their inputs and outputs.

use lgp_memory::{NamedTensor, Tensor};

/// The behaviour of a task's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// Each run takes this many milliseconds.
    Takes(u32),
    /// The model fails, by an error or a panic.
    Fails,
    /// In this many runs the device is unavailable.
    Unavailable(u32),
    /// The first N runs hang until they are asked to stop.
    Hangs(u32),
    /// The first N runs hang until their process ends, even when asked to stop.
    Deaf(u32),
    /// The runs last until the callers have left.
    Held,
}

/// Inputs that name their task, followed by filling.
pub(super) fn inputs_of(number: usize, filling: usize) -> Vec<NamedTensor> {
    let mut bytes = u64::try_from(number).unwrap_or(u64::MAX).to_le_bytes().to_vec();
    bytes.extend((0..filling).map(|at| (at % 251) as u8));
    let tensor = Tensor::from_slice([bytes.len()], &bytes);
    tensor.map(|tensor| vec![NamedTensor::new("x", tensor)]).unwrap_or_default()
}

/// The outputs of a model for these inputs.
pub(super) fn outputs_of(inputs: &[NamedTensor]) -> Vec<NamedTensor> {
    let output = |input: &NamedTensor| {
        let bytes: Vec<u8> =
            input.tensor.as_bytes().iter().rev().map(|byte| byte.wrapping_add(7)).collect();
        let tensor = Tensor::from_slice([bytes.len()], &bytes).ok()?;
        Some(NamedTensor::new("y", tensor))
    };
    inputs.iter().filter_map(output).collect()
}

/// The name of the output that distinguishes runs.
const MARK: &str = "run";

/// The output that distinguishes a run.
pub(super) fn mark(run: u32) -> Option<NamedTensor> {
    let tensor = Tensor::from_slice([4], &run.to_le_bytes()).ok()?;
    Some(NamedTensor::new(MARK, tensor))
}

/// Whether a run of this model computed these outputs from the inputs.
pub(super) fn are_outputs_of(outputs: &[NamedTensor], inputs: &[NamedTensor]) -> bool {
    match outputs {
        [own @ .., mark] => mark.name == MARK && own == outputs_of(inputs),
        [] => false,
    }
}
