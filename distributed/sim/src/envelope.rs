//! A task's frames without a stream: the cost of encoding and decoding them.

use lgp_distributed::inside::frame;
use lgp_distributed::inside::message::{AttemptId, Kind, OutcomeHeader, TaskHeader, Verdict};
use lgp_distributed::inside::tensors::{describe, plan};
use lgp_distributed::{FrameError, Result, TaskSpec};

/// The frames of a task and of its answer, as coordinator and worker exchange them.
pub struct Envelope {
    spec: TaskSpec,
    id: AttemptId,
}

impl Envelope {
    /// The frames of a task that returns nothing.
    #[must_use]
    pub fn new(spec: TaskSpec) -> Self {
        // Numbers as after some days, because small ones take fewer bytes.
        Self { spec, id: AttemptId { epoch: 1_800_000_000_000, seq: 10_000_000, attempt: 1 } }
    }

    /// Encodes the task's frame without the bytes of its tensors.
    ///
    /// # Errors
    /// [`Error::Frame`](lgp_distributed::Error) for a task that fits no frame.
    pub fn task(&self) -> Result<Vec<u8>> {
        let (tensors, body_bytes) = describe(&self.spec.inputs)?;
        let header = TaskHeader {
            id: self.id,
            device: 0,
            priority: self.spec.priority,
            model: self.spec.model.clone(),
            tensors,
            shared: None,
            blob: None,
            batching: None,
            traced: false,
        };
        Ok(frame::encode(Kind::Task, &header, body_bytes, 0)?)
    }

    /// Encodes the frame of the answer.
    ///
    /// # Errors
    /// [`Error::Frame`](lgp_distributed::Error), which does not happen.
    pub fn answer(&self) -> Result<Vec<u8>> {
        let answer = OutcomeHeader::of(self.id, Verdict::Done(Vec::new()));
        let header = OutcomeHeader { model_us: 15_000, ..answer };
        Ok(frame::encode(Kind::Outcome, &header, 0, 0)?)
    }

    /// Decodes the frame of [`Envelope::task`] and plans its tensors; returns their number.
    ///
    /// # Errors
    /// [`Error::Frame`](lgp_distributed::Error) for bytes that are no such frame.
    pub fn read_task(&self, bytes: &[u8]) -> Result<usize> {
        let (prefix, header) = split(bytes)?;
        let header: TaskHeader = frame::decode(Kind::Task, header)?;
        Ok(plan(header.tensors, prefix.body_bytes)?.len())
    }

    /// Decodes the frame of [`Envelope::answer`]; true if it belongs to this task.
    ///
    /// # Errors
    /// [`Error::Frame`](lgp_distributed::Error) for bytes that are no such frame.
    pub fn read_answer(&self, bytes: &[u8]) -> Result<bool> {
        let (_, header) = split(bytes)?;
        let header: OutcomeHeader = frame::decode(Kind::Outcome, header)?;
        Ok(header.id == self.id)
    }
}

fn split(bytes: &[u8]) -> Result<(frame::Prefix, &[u8])> {
    let truncated = |expected| FrameError::Truncated { given: bytes.len(), expected };
    let start = bytes.first_chunk().ok_or_else(|| truncated(frame::PREFIX_BYTES))?;
    let prefix = frame::Prefix::decode(start)?;
    let end = frame::PREFIX_BYTES + prefix.header_bytes;
    let header = bytes.get(frame::PREFIX_BYTES..end).ok_or_else(|| truncated(end))?;
    Ok((prefix, header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_distributed::ModelRef;
    use lgp_memory::{DType, NamedTensor, Tensor};

    #[test]
    fn what_is_wrapped_is_unwrapped() {
        let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
        let input = Tensor::zeros(DType::F32, [16]).expect("small");
        let spec = TaskSpec::new(model, vec![NamedTensor::new("x", input)]);
        let envelope = Envelope::new(spec);
        let (task, answer) = (envelope.task().expect("small"), envelope.answer().expect("small"));
        assert_eq!(envelope.read_task(&task).expect("own"), 1);
        assert!(envelope.read_answer(&answer).expect("own"));
        assert!(envelope.read_answer(&task).is_err());
        assert!(envelope.read_task(&task[..task.len() - 1]).is_err());
        assert!(task.len() < 64 && answer.len() < 64, "{} {}", task.len(), answer.len());
    }
}
