//! Durable tasks as the journal keeps them: all that a later coordinator needs to go on.
//!
//! An image is `u32 header length | postcard header | bytes of the inputs | bytes of the
//! outputs`, little-endian. Inputs that are kept apart have a description behind the header, within
//! its length, and no bytes here. Where the length's highest bit is set, [`Extra`] follows the header
//! instead, which older programs do not know, and then the description of outputs that are kept apart.
//! Times are those of the core's clock, which is wall time at its start and never jumps after it.

mod extra;
#[cfg(test)]
mod tests;

pub use extra::Apart;

use self::extra::{EXTRA, Extra};
use crate::proto::frame::FrameError;
use crate::proto::message::TensorMeta;
use crate::proto::state::Digest;
use crate::proto::tensors::{describe, plan_first};
use crate::task::{ModelRef, Priority, TaskError, TaskId, TaskSpec, TaskState};
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// A change of the journal.
#[derive(Debug, Clone)]
pub enum Change {
    /// All of them or none.
    Put(Vec<Image>),
    Remove(TaskId),
}

/// A durable task.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    pub id: TaskId,
    pub submitted: Duration,
    /// Without its inputs once the task has ended, because it is not run again, and where they are
    /// kept apart.
    pub spec: Arc<TaskSpec>,
    pub digest: Digest,
    pub end: Option<End>,
    pub apart: Option<Apart>,
    /// The task has ended, and its result is not kept any more.
    pub gone: bool,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub(crate) state: TaskState,
    pub(crate) result: Result<Vec<NamedTensor>, TaskError>,
    /// Where the outputs lie if they are kept apart. The image has no outputs then.
    pub(crate) apart: Option<Apart>,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) attempts: u32,
    pub(crate) queued: Duration,
    pub(crate) model_time: Option<Duration>,
    pub(crate) finished: Duration,
    /// The variant of the model that ran last, where that was not the model itself.
    pub(crate) variant: Option<Arc<ModelRef>>,
    /// The decisions about the task, and when; empty where its only attempt succeeded at once.
    pub(crate) story: Vec<(Duration, String)>,
}

impl End {
    /// The end of a task whose result is not kept any more.
    pub(crate) fn without_result(state: TaskState, finished: Duration) -> Self {
        Self {
            state,
            result: Ok(Vec::new()),
            apart: None,
            worker: None,
            attempts: 0,
            queued: Duration::ZERO,
            model_time: None,
            finished,
            variant: None,
            story: Vec::new(),
        }
    }

    /// Bytes of its result, wherever they lie.
    pub(crate) fn bytes(&self) -> usize {
        match (&self.apart, &self.result) {
            (Some(apart), _) => usize::try_from(apart.blob.bytes).unwrap_or(usize::MAX),
            (None, Ok(outputs)) => outputs.iter().map(|o| o.tensor.packed_len()).sum(),
            (None, Err(error)) => error.message.len(),
        }
    }

    /// As its image has it: without outputs that lie apart.
    pub(crate) fn to_keep(&self) -> Self {
        match &self.apart {
            Some(_) => Self { result: Ok(Vec::new()), ..self.clone() },
            None => self.clone(),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Header<'a> {
    id: TaskId,
    submitted: Duration,
    model: Cow<'a, ModelRef>,
    priority: Priority,
    deadline: Option<Duration>,
    key: Option<Cow<'a, str>>,
    max_attempts: u32,
    depends_on: Cow<'a, [TaskId]>,
    affinity: Option<Cow<'a, str>>,
    hedge_after: Option<Duration>,
    inputs: Vec<TensorMeta>,
    digest: Digest,
    end: Option<EndHeader<'a>>,
}

#[derive(Serialize, Deserialize)]
struct EndHeader<'a> {
    state: TaskState,
    result: Result<Vec<TensorMeta>, Cow<'a, TaskError>>,
    worker: Option<Cow<'a, WorkerId>>,
    attempts: u32,
    queued: Duration,
    model_time: Option<Duration>,
    finished: Duration,
}

/// Enough for most headers; a longer header is moved as it grows.
const HEADER_BYTES: usize = 384;

fn invalid(reason: impl std::fmt::Display) -> FrameError {
    FrameError::Header { kind: "journal record".into(), reason: reason.to_string() }
}

impl Image {
    /// Where its outputs lie, if they are kept apart.
    pub fn outputs_apart(&self) -> Option<&Apart> {
        self.end.as_ref()?.apart.as_ref()
    }

    /// The same image with outputs that were kept apart.
    pub fn with_outputs(self, outputs: Vec<NamedTensor>) -> Self {
        let end = self.end.map(|end| End { result: Ok(outputs), apart: None, ..end });
        Self { end, ..self }
    }

    /// Bytes of its tensors, which are most of it.
    pub(crate) fn tensor_bytes(&self) -> usize {
        let outputs = match self.end.as_ref().map(|end| &end.result) {
            Some(Ok(outputs)) => outputs.as_slice(),
            _ => &[],
        };
        let tensors = self.inputs().iter().chain(outputs);
        tensors.map(|tensor| tensor.tensor.packed_len()).sum()
    }

    /// The inputs that are written with it.
    fn inputs(&self) -> &[NamedTensor] {
        if self.end.is_some() { &[] } else { &self.spec.inputs }
    }

    /// The image's bytes.
    ///
    /// # Errors
    /// [`FrameError`] when tensors have no form on the wire, which admission refuses.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let (inputs, input_bytes) = describe(self.inputs())?;
        let outputs = match self.end.as_ref().map(|end| &end.result) {
            Some(Ok(outputs)) => outputs.as_slice(),
            _ => &[],
        };
        let (output_metas, output_bytes) = describe(outputs)?;
        let spec = &*self.spec;
        let end = self.end.as_ref().map(|end| EndHeader {
            state: end.state,
            result: end.result.as_ref().map(|_| output_metas).map_err(Cow::Borrowed),
            worker: end.worker.as_ref().map(Cow::Borrowed),
            attempts: end.attempts,
            queued: end.queued,
            model_time: end.model_time,
            finished: end.finished,
        });
        let header = Header {
            id: self.id,
            submitted: self.submitted,
            model: Cow::Borrowed(&spec.model),
            priority: spec.priority,
            deadline: spec.deadline,
            key: spec.idempotency_key.as_deref().map(Cow::Borrowed),
            max_attempts: spec.max_attempts,
            depends_on: Cow::Borrowed(&spec.depends_on),
            affinity: spec.affinity.as_deref().map(Cow::Borrowed),
            hedge_after: spec.hedge_after,
            inputs,
            digest: self.digest,
            end,
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + input_bytes + output_bytes);
        bytes.extend([0; 4]);
        let bytes = postcard::to_extend(&header, bytes).map_err(invalid)?;
        let variant = self.end.as_ref().and_then(|end| end.variant.as_deref().cloned());
        let story = self.end.as_ref().map(|end| end.story.clone()).unwrap_or_default();
        let (run_limit, backoff) = (spec.run_limit, spec.backoff);
        let extra = Extra { apart: None, gone: self.gone, variant, run_limit, backoff, story };
        let (mut bytes, flag) = extra.encode(bytes, self.apart.as_ref(), self.outputs_apart())?;
        let length = u32::try_from(bytes.len() - 4).map_err(invalid)?;
        if length >= EXTRA {
            return Err(invalid(format!("a header of {length} bytes")));
        }
        let length = length | flag;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        for tensor in self.inputs().iter().chain(outputs) {
            bytes.extend_from_slice(&tensor.tensor.packed());
        }
        Ok(bytes)
    }

    /// Reads an image.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that are no image.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let short = || invalid("it ends inside its header");
        let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let length = u32::from_le_bytes(*length);
        let (has_extra, length) = (length & EXTRA != 0, usize::try_from(length & !EXTRA));
        let (header, body) = rest.split_at_checked(length.map_err(invalid)?).ok_or_else(short)?;
        let (header, behind): (Header<'_>, _) =
            postcard::take_from_bytes(header).map_err(invalid)?;
        let (extra, outputs_apart) = Extra::decode(has_extra, behind)?;
        let Extra { apart, gone, variant, run_limit, backoff, story } = extra;
        let of_end = gone || variant.is_some() || !story.is_empty() || outputs_apart.is_some();
        if header.end.is_none() && of_end {
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
                    Err(error) => (Err(error.into_owned()), body),
                };
                let there = !matches!(&result, Ok(outputs) if outputs.is_empty());
                if outputs_apart.is_some() && (gone || there) {
                    return Err(invalid("outputs are kept apart that are here, or gone"));
                }
                let end = End {
                    state: end.state,
                    result,
                    apart: outputs_apart,
                    worker: end.worker.map(Cow::into_owned),
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
            model: header.model.into_owned(),
            inputs,
            priority: header.priority,
            deadline: header.deadline,
            idempotency_key: header.key.map(Cow::into_owned),
            max_attempts: header.max_attempts,
            durable: true,
            depends_on: header.depends_on.into_owned(),
            affinity: header.affinity.map(Cow::into_owned),
            hedge_after: header.hedge_after,
            run_limit,
            backoff,
            // `Image::digest` is the one that counts.
            request_digest: None,
            traced: false,
        };
        let (submitted, digest) = (header.submitted, header.digest);
        Ok(Self { id: header.id, submitted, spec: Arc::new(spec), digest, end, apart, gone })
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
