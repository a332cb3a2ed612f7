//! Shadows: a copy of a request, run by another model after the answer, and compared with it.

use crate::aliases::Shadow;
use crate::fault::Fault;
use crate::faults;
use crate::oip;
use crate::state::ServerState;
use lgp_sdk::{NamedTensor, agree};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a copy waits for a free device before it is dropped.
const PATIENCE: Duration = Duration::from_secs(10);
/// What copies hold at once, at most, and what each is counted as, at least.
const ROOM_BYTES: usize = 64 << 20;
const LEAST_BYTES: usize = 512 << 10;

/// The room for copies that wait or run.
#[derive(Debug)]
pub(crate) struct Shadows(Arc<Semaphore>);

impl Default for Shadows {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM_BYTES)))
    }
}

/// A request as it was answered.
pub(crate) struct Answered {
    pub(crate) inputs: Vec<NamedTensor>,
    pub(crate) outputs: Vec<NamedTensor>,
}

/// Runs a copy of a request on its shadow, unless there is no room for it. Nobody waits for it.
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
        // It answers nothing where the other one did.
        Err(fault) if fault.code == faults::MODEL_FAILED => false,
        Err(fault) => return Err(fault),
    };
    state.metrics().model(entry.name(), entry.version()).shadowed(same);
    Ok(())
}
