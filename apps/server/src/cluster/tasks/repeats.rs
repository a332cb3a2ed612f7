//! Requests that are repeated: an idempotency key stands for the task that it came with, whatever has become
//! since of what the request names.
#![deny(clippy::as_conversions)]

use super::{Inputs, Task};
use crate::access::Caller;
use crate::cluster::references::{References, Taken};
use crate::fault::Fault;
use crate::faults;
use crate::state::ServerState;
use axum::http::StatusCode;
use lgp_sdk::{ClusterError, Priority, TaskId, TaskSpec};
use sha2::{Digest as _, Sha256};

/// What tells a request from others with its key.
pub(super) type Digest = [u8; 32];

impl Task<Inputs> {
    /// The digest of what was sent, and not of what that comes to: models and aliases by their names, outputs
    /// of other tasks by those. What is not said is the same as its default.
    pub(super) fn digest_of_sent(&self) -> Option<Digest> {
        self.idempotency_key.as_ref()?;
        let inputs = self.inputs.as_ref().ok()?;
        let mut hash = Sha256::new();
        // Each part behind its length, so that no two requests run together.
        let mut part = |bytes: &[u8]| {
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(bytes);
        };
        part(b"as sent");
        part(self.model.as_bytes());
        part(self.priority.as_deref().unwrap_or(Priority::default().name()).as_bytes());
        part(&[u8::from(self.durable == Some(true))]);
        part(&self.max_attempts.unwrap_or(TaskSpec::DEFAULT_MAX_ATTEMPTS).to_le_bytes());
        for ms in [self.deadline_ms, self.hedge_after_ms, self.run_limit_ms] {
            // None of them may be 0.
            part(&ms.unwrap_or(0).to_le_bytes());
        }
        for ms in [self.retry_base_ms, self.retry_max_ms] {
            part(&ms.unwrap_or(0).to_le_bytes());
        }
        part(self.affinity.as_deref().unwrap_or_default().as_bytes());
        let others = self.depends_on.as_deref().unwrap_or_default();
        part(&u64::try_from(others.len()).unwrap_or(u64::MAX).to_le_bytes());
        others.iter().for_each(|other| part(other.as_bytes()));
        for input in inputs {
            match input {
                Taken::Tensor(input) => {
                    part(input.name.as_bytes());
                    part(input.tensor.dtype().name().as_bytes());
                    let dims = input.tensor.shape().iter();
                    part(&dims.flat_map(|dim| dim.to_le_bytes()).collect::<Vec<u8>>());
                    part(&input.tensor.packed());
                }
                Taken::Elsewhere(name, origin) => {
                    let (task, output) = origin.parts();
                    // No type of elements has this name.
                    for text in [name.as_str(), "from", task, output] {
                        part(text.as_bytes());
                    }
                }
            }
        }
        Some(hash.finalize().into())
    }

    /// Whether the same request stands for a task already. `unanswered` says why no question was answered
    /// that was asked before.
    async fn repeated(
        &mut self,
        state: &ServerState,
        unanswered: &mut Option<String>,
    ) -> Result<Repeated, Fault> {
        let (Some(key), Some(digest)) = (&self.idempotency_key, self.digest) else {
            return Ok(Repeated::Not);
        };
        let durable = self.durable == Some(true);
        if durable && unanswered.is_some() {
            return Ok(Repeated::Perhaps);
        }
        let known = match state.coordinator().keyed(key).await {
            Err(ClusterError::NoLeader { reason }) if durable => {
                *unanswered = Some(reason);
                return Ok(Repeated::Perhaps);
            }
            known => known.map_err(faults::cluster)?,
        };
        match known {
            Some((id, known)) if known == digest => return Ok(Repeated::Yes(id)),
            // It may stand for a task whose digest is that of the whole task, as those in journals of
            // earlier programs are: this one is compared with it as a whole.
            Some(_) => self.digest = None,
            None => {}
        }
        Ok(Repeated::Not)
    }
}

/// Whether a request stands for a task already.
enum Repeated {
    Yes(TaskId),
    Not,
    /// No leader looked the key up. A durable task is submitted all the same: the log finds the key then.
    Perhaps,
}

/// Has the coordinator accept the tasks of a request, all or none, but for those that it has already. `at`
/// says which one is refused.
pub(super) async fn accept(
    state: &ServerState,
    caller: &Caller,
    tasks: Vec<Task<Inputs>>,
    at: impl Fn(usize, Fault) -> Fault,
) -> Result<Vec<TaskId>, Fault> {
    let mut known = Vec::with_capacity(tasks.len());
    let mut fresh = Vec::with_capacity(tasks.len());
    // What they hold goes with them, once the tensors are the coordinator's.
    let mut references = References::new(state, caller);
    let mut unanswered = None;
    for (i, mut task) in tasks.into_iter().enumerate() {
        task.check_caller(caller).map_err(|fault| at(i, fault))?;
        let repeated = task.repeated(state, &mut unanswered).await.map_err(|fault| at(i, fault))?;
        if let Repeated::Yes(id) = repeated {
            known.push(Some(id));
            continue;
        }
        known.push(None);
        let spec = task.spec(state, &mut references).await;
        fresh.push(spec.map_err(|fault| match (&repeated, &unanswered) {
            // Its key may stand for a task from before what it names was gone.
            (Repeated::Perhaps, Some(reason)) if is_gone(&fault) => {
                at(i, faults::cluster(ClusterError::NoLeader { reason: reason.clone() }))
            }
            _ => at(i, fault),
        })?);
    }
    among_fresh(&known, &mut fresh);
    let ids = match fresh.is_empty() {
        true => Vec::new(),
        false => state.coordinator().submit_all(fresh).await.map_err(faults::cluster)?,
    };
    let mut ids = ids.into_iter();
    let all: Option<Vec<TaskId>> = known.into_iter().map(|id| id.or_else(|| ids.next())).collect();
    all.ok_or_else(|| Fault::internal("a task was accepted without an id"))
}

/// Whether a request names what there is no more, or never was.
fn is_gone(fault: &Fault) -> bool {
    [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&fault.status)
}

/// Has the new tasks of a batch name one another by their positions among themselves, and the others by
/// their ids.
fn among_fresh(known: &[Option<TaskId>], fresh: &mut [(TaskSpec, Vec<usize>)]) {
    let mut count = 0;
    let place = |id: &Option<TaskId>| {
        let place = count;
        count += usize::from(id.is_none());
        place
    };
    let places: Vec<usize> = known.iter().map(place).collect();
    for (spec, within) in fresh {
        let all = std::mem::take(within);
        for other in all {
            match known.get(other) {
                Some(Some(id)) => spec.depends_on.push(*id),
                // A position that there is not is refused with the rest.
                _ => within.push(places.get(other).copied().unwrap_or(other)),
            }
        }
    }
}
