//! Inputs of tasks that are outputs of other tasks: they are waited for here, and do not pass the client.
#![deny(clippy::as_conversions)]

use super::waiting;
use crate::bodies::Room;
use crate::extract::make_room;
use crate::fault::Fault;
use crate::faults;
use crate::oip::{Input, Parameters, Raw};
use crate::state::ServerState;
use axum::http::StatusCode;
use lgp_sdk::{NamedTensor, TaskId, TaskRecord, TaskState};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Instant;

/// An output of another task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    task: String,
    output: String,
}

/// An input of a task as it is written.
pub(super) enum Written<'a> {
    Here(Input<'a>),
    Elsewhere(String, Origin),
}

/// An input of a task as it was read.
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
    /// Takes a tensor in, which may follow as raw bytes.
    pub(super) fn read(self, raw: &mut Raw<'_>) -> Result<Taken, Fault> {
        match self {
            Self::Here(input) => input.tensor(raw).map(Taken::Tensor),
            Self::Elsewhere(name, origin) => Ok(Taken::Elsewhere(name, origin)),
        }
    }
}

/// Whether any of them has to be waited for.
pub(super) fn any_elsewhere(inputs: &[Taken]) -> bool {
    inputs.iter().any(|input| matches!(input, Taken::Elsewhere(..)))
}

/// The tensors, once the tasks that they are outputs of have ended, and what these hold of the room for
/// bodies.
///
/// # Errors
/// 404 and 410 as for a task that is shown; 409 for one that did not succeed; 400 for an output that it does
/// not have; 503 for what does not end in time.
pub(super) async fn resolve(
    state: &ServerState,
    inputs: Vec<Taken>,
    until: Instant,
) -> Result<(Vec<NamedTensor>, Vec<Room>), Fault> {
    let mut ended: BTreeMap<TaskId, TaskRecord> = BTreeMap::new();
    let (mut tensors, mut rooms) = (Vec::with_capacity(inputs.len()), Vec::new());
    for input in inputs {
        let (name, Origin { task, output }) = match input {
            Taken::Tensor(tensor) => {
                tensors.push(tensor);
                continue;
            }
            Taken::Elsewhere(name, origin) => (name, origin),
        };
        let of_input = |mut fault: Fault| {
            fault.message = format!("input '{name}': {}", fault.message);
            fault
        };
        let id: TaskId = task.parse().map_err(|_| {
            let task: String = task.chars().take(64).collect();
            of_input(Fault::not_found("unknown_task", format!("no task '{task}'")))
        })?;
        let record = match ended.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let (record, room) = wait(state, id, until).await.map_err(of_input)?;
                rooms.push(room);
                place.insert(record)
            }
        };
        let outputs = record.outputs.as_ref();
        let outputs = outputs.ok_or_else(|| Fault::internal("a task succeeded without outputs"))?;
        let found = outputs.iter().find(|known| known.name == output).ok_or_else(|| {
            let known: Vec<String> = outputs.iter().map(|o| format!("'{}'", o.name)).collect();
            let output: String = output.chars().take(64).collect();
            of_input(Fault::bad_input(format!(
                "task {id} has no output '{output}', expected {}",
                known.join(", ")
            )))
        })?;
        tensors.push(NamedTensor::new(name, found.tensor.clone()));
    }
    Ok((tensors, rooms))
}

/// The record of a task that has succeeded.
async fn wait(
    state: &ServerState,
    id: TaskId,
    until: Instant,
) -> Result<(TaskRecord, Room), Fault> {
    let left = until.saturating_duration_since(Instant::now());
    let mut room = Room::default();
    let record = match waiting::ended(state, id, left).await? {
        Some(record) => record,
        None => {
            let coordinator = state.coordinator();
            if !coordinator.state(id).map_err(faults::cluster)?.is_terminal() {
                let message = format!("task {id} did not end in time");
                return Err(Fault::unavailable("deadline_exceeded", message));
            }
            let bytes = coordinator.stored_bytes(id).await.map_err(faults::cluster)?;
            make_room(state, &mut room, usize::try_from(bytes).unwrap_or(usize::MAX)).await?;
            coordinator.task(id).await.map_err(faults::cluster)?
        }
    };
    if record.state == TaskState::Succeeded {
        return Ok((record, room));
    }
    let why =
        record.error.as_ref().map_or(String::new(), |error| format!(": {}", error.code.name()));
    let message = format!("task {id} has {}{why}, expected one that succeeds", record.state.name());
    Err(Fault::new(StatusCode::CONFLICT, "dependency_failed", message))
}
