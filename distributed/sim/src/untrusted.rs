//! Readers of bytes that peers, joiners or files may make up, behind one function: for those who
//! try them with bytes that nobody would send. Those of rings and of shared memory have tests of
//! their own.

use lgp_distributed::inside::frame::{PREFIX_BYTES, Prefix};
use lgp_distributed::inside::image::{Apart, Image};
use lgp_distributed::inside::message::{
    AttemptId, Heartbeat, Hello, Kind, Loaded, OutcomeHeader, Place, TaskHeader, TensorBlob,
    TensorRange, VERSION, Verdict, Welcome,
};
use lgp_distributed::inside::rpc::{Ask, Certification, Enrol, Renewal};
use lgp_distributed::inside::tensors::{describe, plan};
use lgp_distributed::inside::{self, call, frame, record, rpc};
use lgp_distributed::{
    CaHash, ExecError, ExecutorStatus, JoinRefusal, JoinToken, ModelRef, Pki, Result, Role, TaskId,
    TaskSpec, WorkerId,
};
use lgp_memory::{NamedTensor, Tensor};
use std::sync::Arc;
use std::time::Duration;

/// A record's key, under which samples and what is made of them are read.
const KEY: (u64, u64) = (7, 9);

/// The readers; the first byte of an input says which one gets the rest.
pub struct Untrusted {
    pki: Pki,
}

impl Untrusted {
    /// Readers with a certificate authority of their own.
    ///
    /// # Errors
    /// [`Error::Pki`](lgp_distributed::Error) where the system gives no random numbers.
    pub fn new() -> Result<Self> {
        Ok(Self { pki: Pki::generate()? })
    }

    /// Whether an input is something that its reader takes.
    #[must_use]
    pub fn read(&self, input: &[u8]) -> bool {
        let Some((reader, bytes)) = input.split_first() else { return false };
        match reader {
            0 => whole_frame(bytes).is_some(),
            1 => rpc::decode::<Enrol>(bytes)
                .is_ok_and(|asked| self.certify(asked.role, &asked.name, &asked.csr)),
            2 => rpc::decode::<Ask>(bytes).is_ok(),
            3 => rpc::decode::<Certification>(bytes).is_ok(),
            4 => Image::decode(bytes).is_ok(),
            5 => record::decode(KEY, bytes).is_ok_and(|value| Image::decode(value).is_ok()),
            6 => std::str::from_utf8(bytes).is_ok_and(is_known_text),
            7 => call::is_call(bytes),
            8 => call::is_answer(bytes),
            9 => rpc::decode::<Renewal>(bytes)
                .is_ok_and(|asked| self.certify(Role::Worker, "w", &asked.csr)),
            _ => false,
        }
    }

    /// Whether a request could be certified.
    fn certify(&self, role: Role, name: &str, csr: &[u8]) -> bool {
        let name = name.parse::<WorkerId>();
        name.is_ok_and(|name| inside::signs(&self.pki, role, &name, csr))
    }

    /// Inputs that are taken, to begin with.
    ///
    /// # Errors
    /// None that are expected.
    pub fn samples(&self) -> Result<Vec<Vec<u8>>> {
        let mut samples = frames()?;
        let (_, csr) = rpc::request()?;
        let name: WorkerId = "w1".parse()?;
        let enrol = Enrol {
            secret: [7; 16],
            name: name.to_string(),
            csr: csr.clone(),
            now_s: 1,
            role: Role::Client,
        };
        let blob = Ask::Blob { sha256: "ab".repeat(32), offset: 9 };
        let refusal: Certification = Err(JoinRefusal::Clock { apart_s: 9, limit_s: 3 });
        for (reader, bytes) in [
            (1, postcard::to_stdvec(&enrol)),
            (9, postcard::to_stdvec(&Renewal { csr: csr.clone() })),
            (2, postcard::to_stdvec(&Ask::Renew { name: name.clone(), csr })),
            (2, postcard::to_stdvec(&blob)),
            (3, postcard::to_stdvec(&refusal)),
        ] {
            samples.push(input(reader, &bytes.map_err(rpc::lost)?));
        }
        let image = image()?.encode()?;
        samples.push(input(4, &image));
        let mut stored = Vec::new();
        record::encode(KEY, &image, &mut stored);
        samples.push(input(5, &stored));
        samples.push(input(4, &apart()?.encode()?));
        let token = inside::token(self.pki.hash(), [7; 16]);
        let id = inside::task_id(7, 9);
        for text in [token.to_string(), self.pki.hash().to_string(), id.to_string()] {
            samples.push(input(6, text.as_bytes()));
        }
        samples.push(input(6, name.as_str().as_bytes()));
        let [asked, answered] = call::samples(spec()?)?;
        samples.extend([input(7, &asked), input(8, &answered)]);
        Ok(samples)
    }
}

impl std::fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Untrusted").finish_non_exhaustive()
    }
}

fn input(reader: u8, bytes: &[u8]) -> Vec<u8> {
    [&[reader], bytes].concat()
}

fn is_known_text(text: &str) -> bool {
    text.parse::<JoinToken>().is_ok()
        || text.parse::<CaHash>().is_ok()
        || text.parse::<TaskId>().is_ok()
        || text.parse::<WorkerId>().is_ok()
}

/// Reads a frame as a stream would bring it, with all that its header says.
fn whole_frame(bytes: &[u8]) -> Option<()> {
    let (start, rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let Prefix { kind, header_bytes, body_bytes } = Prefix::decode(start).ok()?;
    let (header, mut body) = rest.split_at_checked(header_bytes)?;
    let metas = match kind {
        Kind::Task => frame::decode::<TaskHeader>(kind, header).ok()?.tensors,
        Kind::Outcome => match frame::decode::<OutcomeHeader>(kind, header).ok()?.verdict {
            Verdict::Done(tensors) => tensors,
            Verdict::Error(_) | Verdict::Refused => return Some(()),
        },
        other => return report(other, header),
    };
    for planned in plan(metas, body_bytes).ok()? {
        // A stream that says more than it brings has the memory that it says, until it ends.
        let (own, others) = body.split_at_checked(planned.bytes)?;
        let mut buffer = planned.buffer().ok()?;
        buffer.copy_from_slice(own);
        planned.finish(buffer).ok()?;
        body = others;
    }
    Some(())
}

fn report(kind: Kind, header: &[u8]) -> Option<()> {
    match kind {
        Kind::Hello => frame::decode::<Hello>(kind, header).map(drop),
        Kind::Welcome => frame::decode::<Welcome>(kind, header).map(drop),
        Kind::Heartbeat => frame::decode::<Heartbeat>(kind, header).map(drop),
        Kind::Loaded => frame::decode::<Loaded>(kind, header).map(drop),
        Kind::Released | Kind::Recall | Kind::Stop => {
            frame::decode::<AttemptId>(kind, header).map(drop)
        }
        Kind::Load | Kind::Unload | Kind::Unloaded => {
            frame::decode::<Place>(kind, header).map(drop)
        }
        Kind::Fetch => frame::decode::<TensorRange>(kind, header).map(drop),
        Kind::Draining | Kind::Drain | Kind::Task | Kind::Outcome => Ok(()),
    }
    .ok()
}

/// A frame of each kind.
fn frames() -> Result<Vec<Vec<u8>>> {
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
    };
    let (from, until) = (Some(id), Some(AttemptId { seq: id.seq + 1, ..id }));
    let heartbeat = Heartbeat { held: vec![(id, true)], status: Some(status), from, until };
    let welcome =
        Welcome { version: VERSION, epoch: 7, heartbeat_ms: 500, link: None, resumed: false };
    let failure = Err(ExecError::failed("no memory"));
    let verdicts = [
        Verdict::Done(metas.clone()),
        Verdict::Error(ExecError::bad_input("rank 1")),
        Verdict::Refused,
    ];
    let mut frames = vec![
        frame::encode(Kind::Hello, &hello, 0, 0)?,
        frame::encode(Kind::Welcome, &welcome, 0, 0)?,
        frame::encode(Kind::Heartbeat, &heartbeat, 0, 0)?,
        frame::encode(Kind::Draining, &(), 0, 0)?,
        frame::encode(
            Kind::Loaded,
            &Loaded { device: 0, model: model.clone(), result: failure, took_us: Some(2_000_000) },
            0,
            0,
        )?,
        frame::encode(Kind::Released, &id, 0, 0)?,
        frame::encode(Kind::Recall, &id, 0, 0)?,
        frame::encode(Kind::Stop, &id, 0, 0)?,
        frame::encode(Kind::Load, &Place { device: 0, model: model.clone() }, 0, 0)?,
        frame::encode(Kind::Unload, &Place { device: 0, model: model.clone() }, 0, 0)?,
        frame::encode(Kind::Unloaded, &Place { device: 0, model: model.clone() }, 0, 0)?,
        frame::encode(Kind::Drain, &(), 0, 0)?,
        frame::encode(
            Kind::Task,
            &TaskHeader {
                id,
                device: 0,
                priority: lgp_distributed::Priority::Normal,
                model,
                tensors: metas,
                shared: None,
                blob: None,
            },
            body_bytes,
            0,
        )?,
    ];
    for verdict in verdicts {
        let body = if matches!(verdict, Verdict::Done(_)) { body_bytes } else { 0 };
        frames.push(frame::encode(Kind::Outcome, &OutcomeHeader::of(id, verdict), body, 0)?);
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

fn spec() -> Result<TaskSpec> {
    let model = ModelRef { name: "digits".into(), version: 1, sha256: "ab".repeat(32) };
    Ok(TaskSpec {
        durable: true,
        idempotency_key: Some("k".into()),
        deadline: Some(Duration::from_secs(5)),
        depends_on: vec![inside::task_id(1, 2)],
        ..TaskSpec::new(model, tensors()?)
    })
}

/// A durable task that waits.
fn image() -> Result<Image> {
    let spec = spec()?;
    let (id, submitted) = (inside::task_id(KEY.0, KEY.1), Duration::from_millis(1234));
    let (spec, digest) = (Arc::new(spec), [3; 32]);
    Ok(Image { id, submitted, spec, digest, end: None, apart: None, gone: false })
}

/// The same with its inputs kept apart.
fn apart() -> Result<Image> {
    let image = image()?;
    let (tensors, bytes) = describe(&image.spec.inputs)?;
    let bytes = u64::try_from(bytes).map_err(rpc::lost)?;
    let spec = TaskSpec { inputs: Vec::new(), ..(*image.spec).clone() };
    let apart = Some(Apart { blob: TensorBlob { sha256: [5; 32], bytes }, tensors });
    Ok(Image { spec: Arc::new(spec), apart, ..image })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_and_nothing_panics_at_what_becomes_of_them() {
        let readers = Untrusted::new().expect("random numbers");
        let (mut tried, mut refused) = (0, 0);
        for sample in readers.samples().expect("own") {
            assert!(readers.read(&sample), "{sample:?}");
            // With every length, and with bytes here and there that are something else.
            for cut in 0..sample.len() {
                let mut other = sample.clone();
                for changed in [0, 1, 127, 128, 255] {
                    other[cut] = changed;
                    tried += 1;
                    refused += usize::from(!readers.read(&other));
                }
                refused += usize::from(!readers.read(&sample[..cut]));
                tried += 1;
            }
        }
        assert!(tried > 5_000 && refused * 3 > tried, "{refused} of {tried} refused");
    }
}
