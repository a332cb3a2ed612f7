//! Decodes a request and finds the model that answers it.

use super::blobs::Inputs;
use super::off_loop::off_loop;
use super::request::InferRequest;
use super::task;
use crate::call::Call;
use crate::catalog::{ModelEntry, Named};
use crate::fault::Fault;
use crate::metrics::{ModelCounters, Pending};
use crate::places::is_free;
use crate::sequences::{self, Turn};
use crate::state::ServerState;
use crate::trace::Steps;
use std::time::{Duration, Instant};

/// A decoded request, and the model that answers it.
pub(super) struct Received {
    pub(super) entry: ModelEntry,
    pub(super) request: InferRequest,
    pub(super) turn: Option<Turn>,
    /// How long the request waited for its turn in its sequence.
    pub(super) waited: Duration,
    /// When work on the request began, excluding that wait.
    pub(super) clock: Instant,
}

/// Decodes a request of `bytes` bytes, waits for its turn in its sequence, and finds the model that answers it.
pub(super) async fn receive(
    state: &ServerState,
    named: &Named,
    (call, pending, steps): (&Call, &mut Pending, &mut Steps),
    (bytes, decode): (
        usize,
        impl FnOnce(&ModelEntry) -> Result<InferRequest, Fault> + Send + 'static,
    ),
) -> Result<Received, Fault> {
    let mut entry = named.entry().clone();
    if !named.is_alias() {
        entry = state.catalog().ready(named, entry).await?;
        task::is_of(&entry, state, (call, &mut *pending, &mut *steps));
    }
    let clock = Instant::now();
    let asked = entry.clone();
    let request = off_loop(bytes, move || decode(&asked)).await;
    steps.decode = Some((clock, Instant::now()));
    let mut request = request?;
    let id = request.id.clone();
    let id = id.as_deref();
    if let Some(id) = id {
        call.named(id);
    }
    sequences::check(&entry, request.sequence.as_ref())?;
    if named.is_alias() && request.ticket.is_some() {
        // A request that waits for its turn counts as pending, though its model is known only after the wait.
        check_pending((state, call), &entry, pending.counters())?;
    }
    let waits = request.ticket.is_some().then(|| pending.waits());
    let turn = sequences::turn(state, &mut request).await?;
    drop(waits);
    let waited = turn.as_ref().map(Turn::waited).unwrap_or_default();
    let begun_on = turn.as_ref().and_then(Turn::entry).cloned();
    if named.is_alias() || begun_on.as_ref().is_some_and(|on| on.model() != entry.model()) {
        let chosen = match begun_on {
            Some(on) => on,
            None => state.catalog().answering(named, id).await?,
        };
        let about = (call, &mut *pending, &mut *steps);
        entry = move_to(chosen, (named, turn.is_some()), state, about).await?;
        request.check_fits(&entry)?;
    }
    if let Some(turn) = &turn {
        turn.check(&entry)?;
    }
    check_kind(&entry, &request)?;
    // The wait for earlier inferences is not work on this one.
    Ok(Received { entry, request, turn, waited, clock: clock + waited })
}

/// Moves a request to the model that answers instead of the named one. In a sequence, only the chosen version may
/// answer.
async fn move_to(
    chosen: ModelEntry,
    (named, in_sequence): (&Named, bool),
    state: &ServerState,
    (call, pending, steps): (&Call, &mut Pending, &mut Steps),
) -> Result<ModelEntry, Fault> {
    pending.moved(state.metrics().model(chosen.name(), chosen.version()));
    check_pending((state, call), &chosen, pending.counters())?;
    let entry = match in_sequence {
        true => state.catalog().require_ready(&chosen).map(|()| chosen)?,
        false => state.catalog().ready(named, chosen).await?,
    };
    task::is_of(&entry, state, (call, pending, steps));
    Ok(entry)
}

/// Refuses an inference if too many are pending for its model or for its caller, counting this one.
pub(super) fn check_pending(
    (state, call): (&ServerState, &Call),
    entry: &ModelEntry,
    counters: &ModelCounters,
) -> Result<(), Fault> {
    let (most, name) = (state.config().pending_max, entry.name());
    let (all, own) = counters.pending(call.caller());
    let [most_places, taken, own] = [most, all.saturating_sub(1), own.saturating_sub(1)]
        .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    if is_free(most_places, taken, own) {
        return Ok(());
    }
    let message = format!(
        "{taken} inferences of model '{name}' are under way, {own} of them of this caller: {most} may be, the \
         last eighth of them of callers that have few"
    );
    Err(Fault::unavailable("overloaded", message)
        .hint("come again later; pending_max sets the limit"))
}

/// Refuses inputs that the model does not take, and an ensemble within another.
fn check_kind(entry: &ModelEntry, request: &InferRequest) -> Result<(), Fault> {
    sequences::check(entry, request.sequence.as_ref())?;
    check_rows(entry, &request.inputs)?;
    match (entry.ensemble(), request.inputs.blobs.first()) {
        (None, Some(blobs)) => Err(blobs.is_no_text()),
        (Some(_), _) if request.is_step => {
            let what = format!("'{}' is an ensemble, and ensembles run models alone", entry.name());
            Err(Fault::bad_input(what))
        }
        _ => Ok(()),
    }
}

/// Refuses more rows than the model's config file allows, with Triton's message.
fn check_rows(entry: &ModelEntry, inputs: &Inputs) -> Result<(), Fault> {
    let Some(most) = entry.rows_max() else { return Ok(()) };
    let has_rows = |name: &str| {
        let spec = entry.inputs().iter().find(|spec| spec.name == name);
        let shape = spec.and_then(|spec| spec.ty.shape.as_ref());
        shape.and_then(|shape| shape.0.first()).is_some_and(|first| first.known().is_none())
    };
    let tensors = inputs.tensors.iter().map(|it| (&it.name, it.tensor.shape().dims()));
    let all = tensors.chain(inputs.blobs.iter().map(|it| (&it.name, it.shape.as_slice())));
    let rows = all.filter(|(name, _)| has_rows(name)).filter_map(|(_, dims)| dims.first());
    match rows.max() {
        Some(rows) if *rows > most => Err(Fault::bad_input(format!(
            "inference request batch-size must be <= {most} for '{}', it is {rows}",
            entry.name()
        ))),
        _ => Ok(()),
    }
}
