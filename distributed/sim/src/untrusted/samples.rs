//! Valid messages and records.

use super::{KEY, input};
use lgp_distributed::inside::image::{Apart, Image};
use lgp_distributed::inside::message::{
    AttemptId, Heartbeat, Hello, Kind, Load, Loaded, OutcomeHeader, Place, Stint, TaskHeader,
    TensorBlob, VERSION, Verdict, Welcome,
};
use lgp_distributed::inside::tensors::describe;
use lgp_distributed::inside::{frame, rpc, task_id};
use lgp_distributed::{
    Batching, ExecError, ExecutorStatus, ModelRef, NodeTime, Priority, Result, RunTrace, TaskSpec,
};
use lgp_memory::{NamedTensor, Tensor};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// A frame of each kind.
pub(super) fn frames() -> Result<Vec<Vec<u8>>> {
    let status = ExecutorStatus::default();
    let id = AttemptId { epoch: 1, seq: 2, attempt: 3 };
    let model = ModelRef { name: "digits".into(), version: 1, sha256: "ab".repeat(32) };
    let tensors = tensors()?;
    let (metas, body_bytes) = describe(&tensors)?;
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        build: "0.1.0".into(),
        name: "w1".parse()?,
        pid: 1,
        slots: 2,
        threads: 1,
        incarnation: 3,
        status: status.clone(),
        input_bytes_max: 1 << 30,
        machine: "m".into(),
        stint: Some(Stint { epoch: 7, session: 9 }),
    };
    let (from, until) = (Some(id), Some(AttemptId { seq: id.seq + 1, ..id }));
    let heartbeat = Heartbeat { held: vec![(id, true)], status: Some(status), from, until };
    let welcome = Welcome {
        version: VERSION,
        epoch: 7,
        heartbeat_ms: 500,
        link: None,
        stint: Stint { epoch: 7, session: 9 },
    };
    let result = Err(ExecError::failed("no memory"));
    let loaded = Loaded { device: 0, model: model.clone(), result, took_us: Some(2_000_000) };
    let verdicts = [
        Verdict::Done(metas.clone()),
        Verdict::Error(ExecError::bad_input("rank 1")),
        Verdict::Refused,
    ];
    let warm_up = vec![metas.clone()];
    let run_limit_ms = Some(60_000);
    let load = Load { device: 0, model: model.clone(), warm_up, run_limit_ms };
    let mut frames = vec![
        frame::encode(Kind::Hello, &hello, 0, 0)?,
        frame::encode(Kind::Welcome, &welcome, 0, 0)?,
        frame::encode(Kind::Heartbeat, &heartbeat, 0, 0)?,
        frame::encode(Kind::Draining, &(), 0, 0)?,
        frame::encode(Kind::Loaded, &loaded, 0, 0)?,
        frame::encode(Kind::Released, &id, 0, 0)?,
        frame::encode(Kind::Recall, &id, 0, 0)?,
        frame::encode(Kind::Stop, &id, 0, 0)?,
        frame::encode(Kind::Load, &load, 0, 0)?,
        frame::encode(Kind::Unload, &Place { device: 0, model: model.clone() }, 0, 0)?,
        frame::encode(Kind::Unloaded, &Place { device: 0, model: model.clone() }, 0, 0)?,
        frame::encode(Kind::Drain, &(), 0, 0)?,
        frame::encode(
            Kind::Task,
            &TaskHeader {
                id,
                device: 0,
                priority: Priority::Normal,
                model,
                tensors: metas,
                shared: None,
                blob: None,
                batching: Some(Box::new(Batching {
                    max: NonZeroU32::MIN,
                    preferred: vec![NonZeroU32::MIN],
                    delay_us: 300,
                })),
                traced: true,
            },
            body_bytes,
            0,
        )?,
    ];
    for verdict in verdicts {
        let body = if matches!(verdict, Verdict::Done(_)) { body_bytes } else { 0 };
        let (op, name) = ("Conv".to_owned(), "c".to_owned());
        let nodes = vec![NodeTime { op, name, start_ns: 3, took_ns: 300 }];
        let trace = Some(Box::new(RunTrace { waited: Duration::from_micros(40), nodes }));
        let header = OutcomeHeader { trace, ..OutcomeHeader::of(id, verdict) };
        frames.push(frame::encode(Kind::Outcome, &header, body, 0)?);
    }
    let with_body = |frame: Vec<u8>| {
        let bodies = tensors.iter().flat_map(|named| named.tensor.as_bytes()).copied();
        input(0, &frame.into_iter().chain(bodies).collect::<Vec<_>>())
    };
    Ok(frames.into_iter().map(with_body).collect())
}

fn tensors() -> Result<Vec<NamedTensor>> {
    let of = |tensor: lgp_memory::Result<Tensor>| tensor.map_err(rpc::lost);
    Ok(vec![
        NamedTensor::new("image", of(Tensor::from_slice([1, 2, 2], &[1f32, 2., 3., 4.]))?),
        NamedTensor::new("mask", of(Tensor::scalar(true))?),
    ])
}

pub(super) fn spec() -> Result<TaskSpec> {
    let model = ModelRef { name: "digits".into(), version: 1, sha256: "ab".repeat(32) };
    Ok(TaskSpec {
        durable: true,
        idempotency_key: Some("k".into()),
        deadline: Some(Duration::from_secs(5)),
        depends_on: vec![task_id(1, 2)],
        ..TaskSpec::new(model, tensors()?)
    })
}

/// A durable task that waits.
pub(super) fn image() -> Result<Image> {
    let spec = spec()?;
    let (id, submitted) = (task_id(KEY.0, KEY.1), Duration::from_millis(1234));
    let (spec, digest) = (Arc::new(spec), [3; 32]);
    Ok(Image { id, submitted, spec, digest, end: None, apart: None, gone: false })
}

/// The same task with its inputs kept apart.
pub(super) fn apart() -> Result<Image> {
    let image = image()?;
    let (tensors, bytes) = describe(&image.spec.inputs)?;
    let bytes = u64::try_from(bytes).map_err(rpc::lost)?;
    let spec = TaskSpec { inputs: Vec::new(), ..(*image.spec).clone() };
    let apart = Some(Apart { blob: TensorBlob { sha256: [5; 32], bytes }, tensors });
    Ok(Image { spec: Arc::new(spec), apart, ..image })
}
