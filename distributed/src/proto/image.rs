//! Durable tasks as the journal keeps them: all that a later coordinator needs to go on.
//!
//! An image is `u32 header length | postcard header | bytes of the inputs | bytes of the
//! outputs`, little-endian. Inputs that are kept apart have a description behind the header, within
//! its length, and no bytes here. Where the length's highest bit is set, [`Extra`] follows the header
//! instead, which older programs do not know. Times are those of the core's clock, which is wall time
//! at its start and never jumps after it.

#[cfg(test)]
mod tests;

use crate::proto::frame::FrameError;
use crate::proto::message::{InputBlob, TensorMeta};
use crate::proto::state::Digest;
use crate::proto::tensors::{describe, plan, plan_first};
use crate::task::{Backoff, ModelRef, Priority, TaskError, TaskId, TaskSpec, TaskState};
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A change of the journal.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// All of them or none.
    Put(Vec<Image>),
    Remove(TaskId),
}

/// A durable task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Image {
    pub(crate) id: TaskId,
    pub(crate) submitted: Duration,
    /// Without inputs once the task has ended, and where they are kept apart.
    pub(crate) spec: Arc<TaskSpec>,
    pub(crate) digest: Digest,
    pub(crate) end: Option<End>,
    pub(crate) apart: Option<Apart>,
    /// It has ended, and its result is kept no more.
    pub(crate) gone: bool,
}

/// What not every task has. Reading one takes all of it.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Extra {
    apart: Option<Apart>,
    gone: bool,
    variant: Option<ModelRef>,
    run_limit: Option<Duration>,
    backoff: Option<Backoff>,
    story: Vec<(Duration, String)>,
}

/// Set in the header's length where [`Extra`] follows it.
const EXTRA: u32 = 1 << 31;

/// Inputs that are not kept with their task, but under the digest of their bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Apart {
    pub(crate) blob: InputBlob,
    pub(crate) tensors: Vec<TensorMeta>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct End {
    pub(crate) state: TaskState,
    pub(crate) result: Result<Vec<NamedTensor>, TaskError>,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) attempts: u32,
    pub(crate) queued: Duration,
    pub(crate) model_time: Option<Duration>,
    pub(crate) finished: Duration,
    /// The variant of the model that ran last, where that was not the model itself.
    pub(crate) variant: Option<Arc<ModelRef>>,
    /// What was decided about it, and when; empty where its only attempt succeeded at once.
    pub(crate) story: Vec<(Duration, String)>,
}

impl End {
    /// What is left of an end whose result is kept no more.
    pub(crate) fn without_result(state: TaskState, finished: Duration) -> Self {
        Self {
            state,
            result: Ok(Vec::new()),
            worker: None,
            attempts: 0,
            queued: Duration::ZERO,
            model_time: None,
            finished,
            variant: None,
            story: Vec::new(),
        }
    }

    /// Bytes of its result.
    pub(crate) fn bytes(&self) -> usize {
        match &self.result {
            Ok(outputs) => outputs.iter().map(|output| output.tensor.as_bytes().len()).sum(),
            Err(error) => error.message.len(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    id: TaskId,
    submitted: Duration,
    model: ModelRef,
    priority: Priority,
    deadline: Option<Duration>,
    key: Option<String>,
    max_attempts: u32,
    depends_on: Vec<TaskId>,
    affinity: Option<String>,
    hedge_after: Option<Duration>,
    inputs: Vec<TensorMeta>,
    digest: Digest,
    end: Option<EndHeader>,
}

#[derive(Serialize, Deserialize)]
struct EndHeader {
    state: TaskState,
    result: Result<Vec<TensorMeta>, TaskError>,
    worker: Option<WorkerId>,
    attempts: u32,
    queued: Duration,
    model_time: Option<Duration>,
    finished: Duration,
}

fn invalid(reason: impl std::fmt::Display) -> FrameError {
    FrameError::Header { kind: "journal record".into(), reason: reason.to_string() }
}

impl Image {
    /// Bytes of its tensors, which are most of it.
    pub(crate) fn tensor_bytes(&self) -> usize {
        let outputs = match self.end.as_ref().map(|end| &end.result) {
            Some(Ok(outputs)) => outputs.as_slice(),
            _ => &[],
        };
        let tensors = self.spec.inputs.iter().chain(outputs);
        tensors.map(|tensor| tensor.tensor.as_bytes().len()).sum()
    }

    /// The image's bytes.
    ///
    /// # Errors
    /// [`FrameError`] when tensors have no form on the wire, which admission refuses.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let (inputs, _) = describe(&self.spec.inputs)?;
        let outputs = match self.end.as_ref().map(|end| &end.result) {
            Some(Ok(outputs)) => outputs.as_slice(),
            _ => &[],
        };
        let (output_metas, _) = describe(outputs)?;
        let spec = &*self.spec;
        let end = self.end.as_ref().map(|end| EndHeader {
            state: end.state,
            result: end.result.as_ref().map(|_| output_metas).map_err(Clone::clone),
            worker: end.worker.clone(),
            attempts: end.attempts,
            queued: end.queued,
            model_time: end.model_time,
            finished: end.finished,
        });
        let header = Header {
            id: self.id,
            submitted: self.submitted,
            model: spec.model.clone(),
            priority: spec.priority,
            deadline: spec.deadline,
            key: spec.idempotency_key.clone(),
            max_attempts: spec.max_attempts,
            depends_on: spec.depends_on.clone(),
            affinity: spec.affinity.clone(),
            hedge_after: spec.hedge_after,
            inputs,
            digest: self.digest,
            end,
        };
        let mut bytes = postcard::to_extend(&header, vec![0; 4]).map_err(invalid)?;
        let variant = self.end.as_ref().and_then(|end| end.variant.as_deref().cloned());
        let story = self.end.as_ref().map(|end| end.story.clone()).unwrap_or_default();
        let (run_limit, backoff) = (spec.run_limit, spec.backoff);
        let extra = Extra { apart: None, gone: self.gone, variant, run_limit, backoff, story };
        let mut flag = 0;
        if extra != Extra::default() {
            let extra = Extra { apart: self.apart.clone(), ..extra };
            bytes = postcard::to_extend(&extra, bytes).map_err(invalid)?;
            flag = EXTRA;
        } else if let Some(apart) = &self.apart {
            bytes = postcard::to_extend(apart, bytes).map_err(invalid)?;
        }
        let length = u32::try_from(bytes.len() - 4).map_err(invalid)?;
        if length >= EXTRA {
            return Err(invalid(format!("a header of {length} bytes")));
        }
        let length = length | flag;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        for tensor in spec.inputs.iter().chain(outputs) {
            bytes.extend_from_slice(tensor.tensor.as_bytes());
        }
        Ok(bytes)
    }

    /// Reads an image.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that are none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let short = || invalid("it ends inside its header");
        let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let length = u32::from_le_bytes(*length);
        let (has_extra, length) = (length & EXTRA != 0, usize::try_from(length & !EXTRA));
        let (header, body) = rest.split_at_checked(length.map_err(invalid)?).ok_or_else(short)?;
        let (header, behind): (Header, _) = postcard::take_from_bytes(header).map_err(invalid)?;
        let extra = match has_extra {
            true => Extra::decode(behind)?,
            false if behind.is_empty() => Extra::default(),
            false => Extra { apart: Some(Apart::decode(behind)?), ..Extra::default() },
        };
        let Extra { apart, gone, variant, run_limit, backoff, story } = extra;
        if header.end.is_none() && (gone || variant.is_some() || !story.is_empty()) {
            return Err(invalid("it has not ended, and something is left of its end"));
        }
        let (inputs, body) = tensors(header.inputs, body)?;
        if apart.is_some() && (header.end.is_some() || !inputs.is_empty()) {
            return Err(invalid("inputs are kept apart that are here, or of no use"));
        }
        let (end, body) = match header.end {
            None => (None, body),
            Some(end) => {
                let (result, body) = match end.result {
                    Ok(metas) => tensors(metas, body).map(|(outputs, body)| (Ok(outputs), body))?,
                    Err(error) => (Err(error), body),
                };
                let end = End {
                    state: end.state,
                    result,
                    worker: end.worker,
                    attempts: end.attempts,
                    queued: end.queued,
                    model_time: end.model_time,
                    finished: end.finished,
                    variant: variant.map(Arc::new),
                    story,
                };
                (Some(end), body)
            }
        };
        if !body.is_empty() {
            return Err(invalid(format!("{} bytes follow it", body.len())));
        }
        let spec = TaskSpec {
            model: header.model,
            inputs,
            priority: header.priority,
            deadline: header.deadline,
            idempotency_key: header.key,
            max_attempts: header.max_attempts,
            durable: true,
            depends_on: header.depends_on,
            affinity: header.affinity,
            hedge_after: header.hedge_after,
            run_limit,
            backoff,
        };
        let (submitted, digest) = (header.submitted, header.digest);
        Ok(Self { id: header.id, submitted, spec: Arc::new(spec), digest, end, apart, gone })
    }
}

/// What fills the bytes behind a header.
fn behind<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, FrameError> {
    let (value, rest): (T, _) = postcard::take_from_bytes(bytes).map_err(invalid)?;
    if !rest.is_empty() {
        return Err(invalid(format!("{} bytes follow its header", rest.len())));
    }
    Ok(value)
}

impl Extra {
    fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let extra: Self = behind(bytes)?;
        extra.apart.as_ref().map_or(Ok(()), Apart::check)?;
        Ok(extra)
    }
}

impl Apart {
    fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let apart: Self = behind(bytes)?;
        apart.check()?;
        Ok(apart)
    }

    fn check(&self) -> Result<(), FrameError> {
        let length = usize::try_from(self.blob.bytes).map_err(invalid)?;
        plan(self.tensors.clone(), length).map(drop)
    }
}

/// Takes described tensors from the front of a body.
fn tensors(
    metas: Vec<TensorMeta>,
    mut body: &[u8],
) -> Result<(Vec<NamedTensor>, &[u8]), FrameError> {
    let (planned, _) = plan_first(metas, body.len())?;
    let mut tensors = Vec::with_capacity(planned.len());
    for planned in planned {
        let mut buffer = planned.buffer()?;
        let cut = body.split_at_checked(buffer.len());
        let (bytes, rest) = cut.ok_or_else(|| invalid("it ends inside a tensor"))?;
        buffer.copy_from_slice(bytes);
        body = rest;
        tensors.push(planned.finish(buffer)?);
    }
    Ok((tensors, body))
}
