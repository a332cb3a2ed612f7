//! Shadows: another model runs a copy of an answered request, and outputs are compared.

mod room;

pub(crate) use room::Shadows;

use crate::aliases::Shadow;
use crate::fault::Fault;
use crate::faults;
use crate::oip;
use crate::state::ServerState;
use lgp_measure::agree;
use lgp_sdk::tensor::NamedTensor;
use std::sync::Arc;
use std::time::Duration;

/// How long a copy waits for a free device before it is dropped.
const PATIENCE: Duration = Duration::from_secs(10);
/// The least bytes that a copy counts as.
const LEAST_BYTES: usize = 512 << 10;

/// A request and its answer.
pub(crate) struct Answered {
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) outputs: Vec<NamedTensor>,
}

/// Runs a copy of a request on its shadow, if there is room. Nothing waits for the result.
pub(crate) fn cast(state: &ServerState, shadow: Shadow, answered: Answered) {
    let Answered { inputs, outputs } = &answered;
    let bytes: usize = inputs.iter().chain(outputs).map(|t| t.tensor.packed_len()).sum();
    let Ok(bytes) = u32::try_from(bytes.max(LEAST_BYTES)) else { return };
    let Ok(room) = Arc::clone(&state.shadows().0).try_acquire_many_owned(bytes) else { return };
    let state = state.clone();
    tokio::spawn(async move {
        if let Err(fault) = compare(&state, &shadow, answered).await {
            tracing::debug!(model = shadow.model, reason = fault.message, "a shadow was dropped");
        }
        drop(room);
    });
}

async fn compare(state: &ServerState, shadow: &Shadow, answered: Answered) -> Result<(), Fault> {
    let entry = state.catalog().get(&shadow.model, shadow.version).await?;
    if entry.ensemble().is_some() {
        let what = format!("the shadow '{}' is an ensemble by now", shadow.model);
        return Err(Fault::bad_input(what));
    }
    if entry.stateful().is_some() {
        let what = format!("the shadow '{}' keeps sequences by now", shadow.model);
        return Err(Fault::bad_input(what));
    }
    oip::check_inputs(entry.inputs(), &answered.inputs)?;
    state.catalog().require_ready(&entry)?;
    let same = match oip::run_in_background(state, &entry, answered.inputs, PATIENCE).await {
        Ok(outputs) => {
            let bytes = outputs.iter().map(|output| output.tensor.packed_len()).sum();
            oip::off_loop(bytes, move || Ok(agree(&answered.outputs, &outputs))).await?
        }
        // The shadow failed where the other model answered.
        Err(fault) if fault.code == faults::MODEL_FAILED => false,
        Err(fault) => return Err(fault),
    };
    state.metrics().model(entry.name(), entry.version()).shadowed(same);
    Ok(())
}
