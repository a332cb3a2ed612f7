//! Inputs of tasks that are outputs of other tasks. The server waits for them; they do not pass through the client.
#![deny(clippy::as_conversions)]

use super::waiting;
use crate::access::Caller;
use crate::aliases::Target;
use crate::bodies::Room;
use crate::extract::make_more_room;
use crate::fault::Fault;
use crate::faults;
use crate::oip::{Input, Parameters, Raw};
use crate::state::ServerState;
use axum::http::StatusCode;
use lgp_distributed::Stats;
use lgp_sdk::cluster::{TaskId, TaskRecord, TaskState};
use lgp_sdk::tensor::{NamedTensor, Tensor};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// An output of another task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    task: String,
    output: String,
}

impl Origin {
    /// The task and the name of its output, as sent.
    pub(super) fn parts(&self) -> (&str, &str) {
        (&self.task, &self.output)
    }
}

/// An input of a task as the request has it.
pub(super) enum Written<'a> {
    Here(Input<'a>),
    Elsewhere(String, Origin),
}

/// An input of a task after parsing.
pub(super) enum Taken {
    Tensor(NamedTensor),
    Elsewhere(String, Origin),
}

impl<'de: 'a, 'a> Deserialize<'de> for Written<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct All<'a> {
            name: String,
            shape: Option<Vec<usize>>,
            datatype: Option<String>,
            parameters: Option<Parameters>,
            #[serde(borrow)]
            data: Option<&'a RawValue>,
            from: Option<Origin>,
        }
        let All { name, shape, datatype, parameters, data, from } = All::deserialize(from)?;
        let Some(origin) = from else {
            let shape = shape.ok_or_else(|| D::Error::missing_field("shape"))?;
            let datatype = datatype.ok_or_else(|| D::Error::missing_field("datatype"))?;
            return Ok(Self::Here(Input { name, shape, datatype, parameters, data }));
        };
        let is_alone =
            shape.is_none() && datatype.is_none() && parameters.is_none() && data.is_none();
        match is_alone {
            true => Ok(Self::Elsewhere(name, origin)),
            false => {
                let what = format!("input '{name}' has more than name and from, expected no more");
                Err(D::Error::custom(what))
            }
        }
    }
}

impl Written<'_> {
    /// Parses the tensor, which may follow as raw bytes.
    pub(super) fn read(self, raw: &mut Raw<'_>) -> Result<Taken, Fault> {
        match self {
            Self::Here(input) => input.tensor(raw).map(Taken::Tensor),
            Self::Elsewhere(name, origin) => Ok(Taken::Elsewhere(name, origin)),
        }
    }
}

/// Whether an input is the output of another task, which may not have ended.
pub(super) fn any_elsewhere(inputs: &[Taken]) -> bool {
    inputs.iter().any(|input| matches!(input, Taken::Elsewhere(..)))
}

/// The tasks whose outputs a request uses as inputs. Each task's result is read once.
pub(super) struct References<'a> {
    state: &'a ServerState,
    caller: &'a Caller,
    began: Instant,
    ended: BTreeMap<TaskId, TaskRecord>,
    /// Bytes of outputs read from files.
    read_bytes: usize,
    /// The room for these bytes, to be kept until the request holds none of them any more.
    room: Room,
}

impl<'a> References<'a> {
    /// The references of a request that begins now.
    pub(super) fn new(state: &'a ServerState, caller: &'a Caller) -> Self {
        let room = state.bodies().room_of(caller.id());
        let (began, ended) = (Instant::now(), BTreeMap::new());
        Self { state, caller, began, ended, read_bytes: 0, room }
    }

    /// The tensors of the inputs. Waits until the tasks that output them have ended.
    ///
    /// # Errors
    /// 404 and 410 as for showing a task; 403 for a task whose model the caller's key does not cover; 409 for a
    /// task that did not succeed; 400 for an unknown output; 413 for outputs that exceed the room; 503 for a task
    /// that does not end within `limit` of the request's start.
    pub(super) async fn resolve(
        &mut self,
        inputs: Vec<Taken>,
        limit: Duration,
    ) -> Result<Vec<NamedTensor>, Fault> {
        // If the clock cannot represent the time, the request does not wait.
        let until = self.began.checked_add(limit).unwrap_or(self.began);
        let mut tensors = Vec::with_capacity(inputs.len());
        for input in inputs {
            tensors.push(match input {
                Taken::Tensor(tensor) => tensor,
                Taken::Elsewhere(name, origin) => {
                    let found = self.output(&origin, until).await.map_err(|mut fault| {
                        fault.message = format!("input '{name}': {}", fault.message);
                        fault
                    })?;
                    NamedTensor::new(name, found)
                }
            });
        }
        Ok(tensors)
    }

    async fn output(&mut self, origin: &Origin, until: Instant) -> Result<Tensor, Fault> {
        let Origin { task, output } = origin;
        let id: TaskId = task.parse().map_err(|_| {
            let task: String = task.chars().take(64).collect();
            faults::unknown_task(format!("no task '{task}'"))
        })?;
        check_task(self.state, self.caller, id).await?;
        if !self.ended.contains_key(&id) {
            let record = self.wait(id, until).await?;
            self.ended.insert(id, record);
        }
        let outputs = self.ended.get(&id).and_then(|record| record.outputs.as_ref());
        let outputs = outputs.ok_or_else(|| Fault::internal("a task succeeded without outputs"))?;
        let found = outputs.iter().find(|known| known.name == *output).ok_or_else(|| {
            let known: Vec<String> = outputs.iter().map(|o| format!("'{}'", o.name)).collect();
            let output: String = output.chars().take(64).collect();
            let known = known.join(", ");
            Fault::bad_input(format!("task {id} has no output '{output}', expected {known}"))
        })?;
        Ok(found.tensor.clone())
    }

    /// Waits for a task and returns its record, if it succeeded.
    async fn wait(&mut self, id: TaskId, until: Instant) -> Result<TaskRecord, Fault> {
        let left = until.saturating_duration_since(Instant::now());
        let record = match waiting::ended((self.state, self.caller), id, left).await? {
            Some(record) => record,
            None => {
                let coordinator = self.state.coordinator();
                if !coordinator.state_of(id).await.map_err(faults::cluster)?.is_terminal() {
                    let message = format!("task {id} did not end in time");
                    return Err(Fault::unavailable("deadline_exceeded", message));
                }
                let bytes = coordinator.stored_bytes(id).await.map_err(faults::cluster)?;
                self.make_room(usize::try_from(bytes).unwrap_or(usize::MAX)).await?;
                coordinator.task(id).await.map_err(faults::cluster)?
            }
        };
        if record.state == TaskState::Succeeded {
            return Ok(record);
        }
        let error = record.error.as_ref();
        let why = error.map_or(String::new(), |error| format!(": {}", error.code.name()));
        let ended = record.state.name();
        let message = format!("task {id} has {ended}{why}, expected one that succeeds");
        Err(Fault::new(StatusCode::CONFLICT, "dependency_failed", message))
    }

    /// Takes room for the outputs of one more task. A single task's outputs may exceed the room, as a body may.
    async fn make_room(&mut self, bytes: usize) -> Result<(), Fault> {
        let (all, most) =
            (self.read_bytes.saturating_add(bytes), self.state.config().bodies_bytes_max);
        if self.read_bytes > 0 && all > most {
            let message = format!(
                "the results that inputs come from have {all} bytes together, expected at most {most} \
                 (http.bodies_bytes_max sets that)"
            );
            return Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
        }
        make_more_room(self.state, &mut self.room, all).await?;
        self.read_bytes = all;
        Ok(())
    }
}

/// Refuses a task whose model the caller's key covers neither by its name nor by an alias that leads to it. A task
/// submitted through an alias belongs to the model that the alias chose.
pub(super) async fn check_task(
    state: &ServerState,
    caller: &Caller,
    id: TaskId,
) -> Result<(), Fault> {
    let model = state.coordinator().model_of(id).await.map_err(faults::cluster)?;
    if may_see(state, caller, (&model.name, model.version)) {
        return Ok(());
    }
    let (key, name) = (caller.id(), &model.name);
    let message = format!(
        "task {id} is one of model '{name}', and key {key} is for neither it nor an alias that leads to it"
    );
    Err(Fault::new(StatusCode::FORBIDDEN, "forbidden_model", message))
}

/// Drops figures about models that the caller may not see.
pub(crate) fn leave_out(state: &ServerState, caller: &Caller, stats: &mut Stats) {
    stats.queued_by_model.retain(|model, _| {
        let named = model.rsplit_once('/');
        let named = named.and_then(|(name, version)| Some((name, version.parse().ok()?)));
        named.is_some_and(|named| may_see(state, caller, named))
    });
}

/// Whether a caller may see a model's tasks, events and figures.
pub(crate) fn may_see(state: &ServerState, caller: &Caller, (name, version): (&str, u64)) -> bool {
    let leads = |target: &Target| {
        target.model == name && target.version.is_none_or(|leads_to| leads_to == version)
    };
    caller.may_use(name)
        || state
            .catalog()
            .aliases()
            .list()
            .iter()
            .any(|(name, alias)| caller.may_use(name) && alias.targets.iter().any(leads))
}
