//! Repeated requests: an idempotency key identifies the task of its first request, even if the models, aliases or
//! tasks that the request names have changed since.
#![deny(clippy::as_conversions)]

use super::{Inputs, Task};
use crate::access::Caller;
use crate::cluster::references::{References, Taken};
use crate::fault::Fault;
use crate::faults;
use crate::state::ServerState;
use axum::http::StatusCode;
use lgp_sdk::cluster::{Error as ClusterError, Priority, TaskId, TaskSpec};
use sha2::{Digest as _, Sha256};

/// Distinguishes requests with the same key.
pub(super) type Digest = [u8; 32];

impl Task<Inputs> {
    /// The digest of the request as sent: models, aliases and other tasks' outputs count by name, not by content.
    /// An omitted field equals its default.
    pub(super) fn digest_of_sent(&self) -> Option<Digest> {
        self.idempotency_key.as_ref()?;
        let inputs = self.inputs.as_ref().ok()?;
        let mut hash = Sha256::new();
        // Each part follows its length, so that different requests never hash the same bytes.
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
            // 0 stands for an omitted value, because none of these may be 0.
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
                    // No datatype has this name, so it marks a reference.
                    for text in [name.as_str(), "from", task, output] {
                        part(text.as_bytes());
                    }
                }
            }
        }
        Some(hash.finalize().into())
    }

    /// Whether the request already has a task. `unanswered` keeps the reason why an earlier lookup got no answer.
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
            // The earlier task may have a digest of the whole task, as in journals of earlier versions. Without a
            // request digest, the coordinator compares the whole tasks.
            Some(_) => self.digest = None,
            None => {}
        }
        Ok(Repeated::Not)
    }
}

/// Whether a request already has a task.
enum Repeated {
    Yes(TaskId),
    Not,
    /// No leader looked up the key. A durable task is submitted anyway, and the log then finds the key.
    Perhaps,
}

/// Has the coordinator accept all tasks of a request or none, except those that it has already. `at` adds a task's
/// position to its refusal.
pub(super) async fn accept(
    state: &ServerState,
    caller: &Caller,
    tasks: Vec<Task<Inputs>>,
    at: impl Fn(usize, Fault) -> Fault,
) -> Result<Vec<TaskId>, Fault> {
    let mut known = Vec::with_capacity(tasks.len());
    let mut fresh = Vec::with_capacity(tasks.len());
    // The room of the references is freed once the coordinator owns the tensors.
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
            // The key may have a task that was submitted while the named things still existed.
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

/// Whether a request names something that does not exist, or no longer does.
fn is_gone(fault: &Fault) -> bool {
    [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&fault.status)
}

/// Rewrites dependencies within a batch: on new tasks by their positions among the new ones, on known tasks by
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
                // An invalid position is refused later with the others.
                _ => within.push(places.get(other).copied().unwrap_or(other)),
            }
        }
    }
}
