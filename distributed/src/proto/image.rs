//! Durable tasks as the journal keeps them: all that a later coordinator needs to go on.
//!
//! An image is `u32 header length | postcard header | bytes of the inputs | bytes of the
//! outputs`, little-endian. Inputs that are kept apart have a description behind the header, within
//! its length, and no bytes here. Times are those of the core's clock, which is wall time at its start
//! and never jumps after it.

use crate::proto::frame::FrameError;
use crate::proto::message::{InputBlob, TensorMeta};
use crate::proto::state::Digest;
use crate::proto::tensors::{describe, plan, plan_first};
use crate::task::{ModelRef, Priority, TaskError, TaskId, TaskSpec, TaskState};
use crate::worker_info::WorkerId;
use lgp_memory::NamedTensor;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A change of the journal.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Put(Box<Image>),
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
}

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
        if let Some(apart) = &self.apart {
            bytes = postcard::to_extend(apart, bytes).map_err(invalid)?;
        }
        let length = u32::try_from(bytes.len() - 4).map_err(invalid)?;
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
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(invalid)?;
        let (header, body) = rest.split_at_checked(length).ok_or_else(short)?;
        let (header, behind): (Header, _) = postcard::take_from_bytes(header).map_err(invalid)?;
        let apart = if behind.is_empty() { None } else { Some(Apart::decode(behind)?) };
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
        };
        let (submitted, digest) = (header.submitted, header.digest);
        Ok(Self { id: header.id, submitted, spec: Arc::new(spec), digest, end, apart })
    }
}

impl Apart {
    fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let (apart, rest): (Self, _) = postcard::take_from_bytes(bytes).map_err(invalid)?;
        if !rest.is_empty() {
            return Err(invalid(format!("{} bytes follow its header", rest.len())));
        }
        let length = usize::try_from(apart.blob.bytes).map_err(invalid)?;
        plan(apart.tensors.clone(), length)?;
        Ok(apart)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskErrorKind;
    use lgp_memory::Tensor;

    fn image() -> Image {
        let model = ModelRef { name: "m".into(), version: 2, sha256: "ab".into() };
        let input = Tensor::from_slice([2, 2], &[1f32, 2., 3., 4.]).expect("small");
        let mut spec = TaskSpec::new(model, vec![NamedTensor::new("x", input)]);
        spec.durable = true;
        spec.idempotency_key = Some("k".into());
        spec.deadline = Some(Duration::from_secs(5));
        spec.depends_on = vec![TaskId { epoch: 1, seq: 2 }];
        Image {
            id: TaskId { epoch: 7, seq: 9 },
            submitted: Duration::from_millis(1234),
            spec: Arc::new(spec),
            digest: [3; 32],
            end: None,
            apart: None,
        }
    }

    fn ended(result: Result<Vec<NamedTensor>, TaskError>) -> Image {
        let end = End {
            state: if result.is_ok() { TaskState::Succeeded } else { TaskState::Failed },
            result,
            worker: "w1".parse().ok(),
            attempts: 3,
            queued: Duration::from_millis(1),
            model_time: Some(Duration::from_micros(2)),
            finished: Duration::from_secs(3),
        };
        Image { end: Some(end), ..image() }
    }

    fn kept_apart() -> Image {
        let tensors = describe(&image().spec.inputs).expect("small").0;
        let spec = TaskSpec { inputs: Vec::new(), ..(*image().spec).clone() };
        let blob = InputBlob { sha256: [5; 32], bytes: 16 };
        Image { spec: Arc::new(spec), apart: Some(Apart { blob, tensors }), ..image() }
    }

    #[test]
    fn inputs_apart_that_fit_nothing_are_refused() {
        let change = |change: fn(&mut Image)| {
            let mut image = kept_apart();
            change(&mut image);
            Image::decode(&image.encode().expect("it fits"))
        };
        assert!(change(|_| ()).is_ok());
        let longer = change(|image| {
            image.apart.iter_mut().for_each(|apart| apart.blob.bytes = 17);
        });
        assert!(longer.is_err());
        assert!(change(|other| other.spec = image().spec).is_err(), "twice");
        assert!(change(|other| other.end = ended(Ok(Vec::new())).end).is_err(), "after its end");
    }

    #[test]
    fn images_survive_their_bytes() {
        let output = Tensor::from_slice([3], &[5u8, 6, 7]).expect("small");
        let images = [
            image(),
            kept_apart(),
            ended(Ok(vec![NamedTensor::new("y", output)])),
            ended(Ok(Vec::new())),
            ended(Err(TaskError::new(TaskErrorKind::ModelFailed, "why"))),
        ];
        for image in images {
            let bytes = image.encode().expect("it fits");
            assert_eq!(Image::decode(&bytes).expect("its own bytes"), image);
            for cut in 0..bytes.len() {
                assert!(Image::decode(&bytes[..cut]).is_err(), "{cut} of {}", bytes.len());
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert!(Image::decode(&longer).is_err());
        }
    }
}
