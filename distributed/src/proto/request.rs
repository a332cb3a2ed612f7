//! What a submission must satisfy before it reaches the queue.

use crate::error::{Error, Result};
use crate::proto::Order;
use crate::proto::frame::HEADER_BYTES_MAX;
use crate::proto::state::Digest;
use crate::proto::tensors::describe_any;
use crate::task::{Backoff, TaskSpec};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Most bytes of an idempotency key.
const KEY_BYTES_MAX: usize = 256;
/// Header bytes that are not names or dimensions, generously estimated.
const HEADER_BYTES_FIXED: usize = 256;

/// Checks a task whose inputs may have `input_bytes_max` bytes, and makes an order of it.
pub(crate) fn check(spec: TaskSpec, input_bytes_max: usize) -> Result<Order> {
    let (metas, body_bytes) = describe_any(&spec.inputs)
        .map_err(|error| Error::InvalidTask { message: error.to_string() })?;
    if body_bytes > input_bytes_max {
        let (what, limit) = ("inputs", input_bytes_max);
        return Err(Error::TooLarge { what, given: body_bytes, limit });
    }
    // A variable-length u64 takes up to ten bytes.
    let described: usize = metas.iter().map(|m| m.name.len() + 12 + 10 * m.shape.len()).sum();
    let names = spec.model.name.len() + spec.model.sha256.len();
    if let Some(key) = spec.affinity.as_ref().filter(|key| key.len() > KEY_BYTES_MAX) {
        let given = key.len();
        let message = format!("an affinity key of {given} bytes, expected at most {KEY_BYTES_MAX}");
        return Err(Error::InvalidTask { message });
    }
    let header = HEADER_BYTES_FIXED + described + names;
    if header > HEADER_BYTES_MAX {
        let what = "names and shapes of the inputs";
        return Err(Error::TooLarge { what, given: header, limit: HEADER_BYTES_MAX });
    }
    let mut digest = Digest::default();
    if let Some(key) = &spec.idempotency_key {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let given = key.len();
            let what = format!("an idempotency key of {given} bytes");
            let message = format!("{what}, expected 1 to {KEY_BYTES_MAX}");
            return Err(Error::InvalidTask { message });
        }
        digest = spec.request_digest.unwrap_or_else(|| digest_of(&spec));
    }
    Ok(Order {
        spec: Arc::new(spec),
        input_bytes: body_bytes,
        queued_bytes: body_bytes,
        digest,
        within: Vec::new(),
    })
}

/// Hashes the parts that make two requests the same: everything but the key. Each part is preceded
/// by its length, so that different requests never give the same bytes.
fn digest_of(spec: &TaskSpec) -> Digest {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(bytes);
    };
    part(spec.model.name.as_bytes());
    part(&spec.model.version.to_le_bytes());
    part(spec.model.sha256.as_bytes());
    part(spec.priority.name().as_bytes());
    part(&spec.deadline.map_or(u128::MAX, |d| d.as_nanos()).to_le_bytes());
    part(&spec.max_attempts.to_le_bytes());
    part(&[u8::from(spec.durable)]);
    part(spec.affinity.as_deref().unwrap_or_default().as_bytes());
    part(&spec.hedge_after.map_or(u128::MAX, |d| d.as_nanos()).to_le_bytes());
    part(&spec.run_limit.map_or(u128::MAX, |d| d.as_nanos()).to_le_bytes());
    let ids = spec.depends_on.iter();
    part(&ids.flat_map(|id| [id.epoch, id.seq]).flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    for input in &spec.inputs {
        part(input.name.as_bytes());
        part(input.tensor.dtype().name().as_bytes());
        let dims = input.tensor.shape().iter();
        part(&dims.flat_map(|d| d.to_le_bytes()).collect::<Vec<u8>>());
        part(&input.tensor.packed());
    }
    // These come last, and only if they are set: tasks without them keep their digests.
    if let Some(limit) = spec.run_limit {
        part(b"run_limit");
        part(&limit.as_nanos().to_le_bytes());
    }
    if let Some(Backoff { base, max }) = spec.backoff {
        part(b"backoff");
        part(&[base, max].map(|wait| wait.as_nanos().to_le_bytes()).concat());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{ModelRef, Priority};
    use lgp_memory::{NamedTensor, Tensor};
    use std::time::Duration;

    const MAX: usize = 64 << 20;

    fn spec(name: &str, values: &[f32]) -> TaskSpec {
        let model = ModelRef { name: "m".into(), version: 1, sha256: "ab".into() };
        let tensor = Tensor::from_slice([values.len()], values).expect("small");
        let mut spec = TaskSpec::new(model, vec![NamedTensor::new(name, tensor)]);
        spec.idempotency_key = Some("k".into());
        spec
    }

    #[test]
    fn the_digest_sees_every_part_of_the_body() {
        let base = spec("x", &[1.0, 2.0]);
        let digest = check(base.clone(), MAX).expect("valid").digest;
        assert_eq!(check(base.clone(), MAX).expect("valid").digest, digest);
        assert_eq!(check(base.clone(), MAX).expect("valid").input_bytes, 8);
        let changes: [fn(&mut TaskSpec); 14] = [
            |s| s.run_limit = Some(Duration::from_secs(1)),
            |s| {
                let second = Duration::from_secs(1);
                s.backoff = Some(Backoff { base: second, max: second });
            },
            |s| s.durable = true,
            |s| s.affinity = Some("a".into()),
            |s| s.hedge_after = Some(Duration::from_secs(1)),
            |s| s.depends_on = vec!["1-2".parse().expect("an id")],
            |s| s.model.name = "n".into(),
            |s| s.model.version = 2,
            |s| s.priority = Priority::High,
            |s| s.deadline = Some(Duration::from_secs(1)),
            |s| s.max_attempts = 1,
            |s| s.inputs[0].name = "y".into(),
            |s| s.inputs[0].tensor = Tensor::from_slice([2], &[1f32, 3.]).expect("small"),
            |s| s.inputs[0].tensor = s.inputs[0].tensor.reshape([1, 2]).expect("same size"),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(check(other, MAX).expect("valid").digest, digest, "change {number}");
        }
    }

    #[test]
    fn a_digest_of_the_request_stands_for_the_body() {
        let digest = |spec: TaskSpec| check(spec, MAX).expect("valid").digest;
        let given =
            |values: &[f32]| TaskSpec { request_digest: Some([7; 32]), ..spec("x", values) };
        assert_eq!(digest(given(&[1.0])), [7; 32]);
        assert_eq!(digest(given(&[2.0])), [7; 32]);
        let keyless = TaskSpec { idempotency_key: None, ..given(&[1.0]) };
        assert_eq!(digest(keyless), Digest::default(), "no key, nothing to compare");
    }

    #[test]
    fn what_does_not_fit_a_frame_is_refused_with_the_limit() {
        let long_name = spec(&"x".repeat(70_000), &[1.0]);
        let mut long_key = spec("x", &[1.0]);
        long_key.idempotency_key = Some("k".repeat(257));
        let mut many = spec("x", &[1.0]);
        many.inputs = vec![many.inputs[0].clone(); 1025];
        let big = Tensor::zeros(lgp_memory::DType::U8, [(64 << 20) + 1]).expect("lazily backed");
        let mut body = spec("x", &[1.0]);
        body.inputs[0].tensor = big;
        let cases = [
            (
                long_name,
                "70281 bytes of names and shapes of the inputs, at most 65536 are accepted",
            ),
            (long_key, "invalid task: an idempotency key of 257 bytes, expected 1 to 256"),
            (many, "invalid task: tensors: 1025 tensors, at most 1024 are accepted"),
            (body, "67108865 bytes of inputs, at most 67108864 are accepted"),
        ];
        for (spec, expected) in cases {
            let message = check(spec, MAX).expect_err(expected).to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
