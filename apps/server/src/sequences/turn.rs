//! An inference's turn in its sequence.

use super::Stateful;
use super::asked::Asked;
use super::table::{Found, Model};
use super::ticket::{Guard, Place, Ticket};
use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::oip::{self, InferRequest};
use crate::state::ServerState;
use lgp_sdk::tensor::{NamedTensor, Shape, Tensor};
use std::time::{Duration, Instant};

impl Ticket {
    /// Waits until the earlier inferences are done.
    ///
    /// # Errors
    /// 503 after `within`; 400 if the sequence is not open and this inference does not start it.
    async fn turn(self, within: Duration) -> Result<Turn, Fault> {
        let Self { asked, turn, place } = self;
        let came = Instant::now();
        let (id, name) = (&asked.id, &place.key.name);
        let guard = match turn {
            Ok(guard) => guard,
            Err(waiting) => tokio::time::timeout(within, waiting).await.map_err(|_| {
                let ms = within.as_millis();
                let message = format!("those before it in sequence {id} of '{name}' took {ms} ms");
                Fault::unavailable("deadline_exceeded", message)
            })?,
        };
        let mut found = None;
        if asked.starts {
            // Even if this inference fails: later ones are not meant for the earlier sequence.
            place.sequences.table().close(&place.key);
        } else {
            let open = place.sequences.table().find(&place.key);
            found = Some(open.ok_or_else(|| not_open(&asked, name))?);
        }
        Ok(Turn { asked, waited: came.elapsed(), found, begun: None, place, _guard: guard })
    }
}

/// Waits for the turn of a request in a sequence. The wait counts towards its timeout.
pub(crate) async fn turn(
    state: &ServerState,
    request: &mut InferRequest,
) -> Result<Option<Turn>, Fault> {
    let Some(ticket) = request.ticket.take() else { return Ok(None) };
    let longest = state.config().deadline_max();
    let turn = ticket.turn(request.timeout.unwrap_or(longest).min(longest)).await?;
    request.timeout = request.timeout.map(|timeout| timeout.saturating_sub(turn.waited));
    Ok(Some(turn))
}

/// The turn of an inference: no other inference of its sequence runs.
pub(crate) struct Turn {
    asked: Asked,
    waited: Duration,
    /// The open sequence; `None` if this inference starts it.
    found: Option<Found<ModelEntry>>,
    /// The sequence's number, set by its first inference. Dropping the turn before that is done ends the sequence.
    begun: Option<u64>,
    place: Place,
    /// Dropped after the place, so that the next inference finds the final state.
    _guard: Guard,
}

impl Turn {
    /// How long the inference waited.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// The model on which the sequence started; `None` if this inference starts it.
    pub(crate) fn entry(&self) -> Option<&ModelEntry> {
        self.found.as_ref().map(|found| &found.entry)
    }

    /// Ends a sequence whose model has new settings of sequences, with which it cannot continue.
    ///
    /// # Errors
    /// 400, as for any sequence that is not open.
    pub(crate) fn check(&self, entry: &ModelEntry) -> Result<(), Fault> {
        let Some(found) = &self.found else { return Ok(()) };
        let wish = |entry: &ModelEntry| entry.stateful().map(|stateful| stateful.wish().clone());
        if found.entry.model() == entry.model() && wish(&found.entry) != wish(entry) {
            self.place.sequences.table().close(&self.place.key);
            return Err(not_open(&self.asked, &self.place.key.name));
        }
        Ok(())
    }

    /// Adds the states and the control values to the model's inputs.
    pub(crate) async fn give(
        &mut self,
        entry: &ModelEntry,
        inputs: &mut Vec<NamedTensor>,
    ) -> Result<(), Fault> {
        let stateful = stateful(entry)?;
        stateful.check()?;
        match self.found.as_mut() {
            Some(found) => inputs.append(&mut std::mem::take(&mut found.states)),
            None => {
                let mut states = self.begin(entry, stateful, inputs).await?;
                inputs.append(&mut states);
            }
        }
        inputs.append(&mut stateful.told(inputs, &self.asked)?);
        oip::check_inputs(stateful.inputs(), inputs)
    }

    async fn begin(
        &mut self,
        entry: &ModelEntry,
        stateful: &Stateful,
        inputs: &[NamedTensor],
    ) -> Result<Vec<NamedTensor>, Fault> {
        let first = stateful.first(inputs)?;
        let sizes = first.iter().map(|(_, dtype, shape)| shape.byte_len(*dtype));
        let bytes =
            sizes.fold(0, |sum: usize, bytes| sum.saturating_add(bytes.unwrap_or(usize::MAX)));
        let key = (entry.name().to_owned(), entry.version());
        let model = Model { key, idle: stateful.idle(), entry: entry.clone() };
        let begun =
            self.place.sequences.table().begin(&self.place.key, model, bytes, Instant::now());
        self.begun = Some(begun.map_err(|full| full.fault(entry.name()))?);
        oip::off_loop(bytes, move || {
            let zeros = |(name, dtype, shape): (String, _, Shape)| {
                let zeros = Tensor::zeros(dtype, shape).map_err(Fault::internal)?;
                Ok(NamedTensor::new(name, zeros))
            };
            first.into_iter().map(zeros).collect()
        })
        .await
    }

    /// Takes the states out of the model's outputs.
    pub(crate) fn take(
        &self,
        entry: &ModelEntry,
        outputs: &mut Vec<NamedTensor>,
    ) -> Result<Vec<NamedTensor>, Fault> {
        stateful(entry)?.taken(outputs)
    }

    /// Keeps the states for the next inference, or ends the sequence. A failure before this leaves the sequence
    /// unchanged.
    pub(crate) async fn done(mut self, states: Vec<NamedTensor>) -> Result<(), Fault> {
        let Some(number) = self.begun.or(self.found.as_ref().map(|found| found.number)) else {
            return Err(Fault::internal("an inference of a sequence ended before it began"));
        };
        let Place { sequences, key } = &self.place;
        if self.asked.ends {
            sequences.table().finish(key, number);
            return Ok(());
        }
        let bytes = states.iter().map(|state| state.tensor.packed_len()).sum();
        let copied = oip::off_loop(bytes, move || {
            // Copied, because memory that a worker lends must return to it.
            let copy = |state: NamedTensor| {
                let tensor = state.tensor.view().to_tensor().map_err(Fault::internal)?;
                Ok(NamedTensor::new(state.name, tensor))
            };
            states.into_iter().map(copy).collect::<Result<_, Fault>>()
        });
        let states = copied.await?;
        let kept = sequences.table().keep((key, number), states, bytes, Instant::now());
        kept.map_err(|full| full.fault(&key.name))?;
        self.begun = None;
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(number) = self.begun {
            self.place.sequences.table().finish(&self.place.key, number);
        }
    }
}

fn not_open(asked: &Asked, name: &str) -> Fault {
    let id = &asked.id;
    let message = format!(
        "sequence {id} of '{name}' is not open: it was never begun, has ended or was idle for too long; \
         expected sequence_start"
    );
    Fault::new(axum::http::StatusCode::BAD_REQUEST, "unknown_sequence", message)
}

fn stateful(entry: &ModelEntry) -> Result<&Stateful, Fault> {
    let found = entry.stateful();
    found.ok_or_else(|| Fault::internal("a sequence was begun on a model that keeps none"))
}
