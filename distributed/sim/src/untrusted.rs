//! Readers of bytes from peers, joiners or files, behind one function, for fuzzing. The readers of
//! rings and of shared memory have their own tests.

mod samples;

use lgp_distributed::inside::frame::{PREFIX_BYTES, Prefix};
use lgp_distributed::inside::image::Image;
use lgp_distributed::inside::message::{
    AttemptId, Heartbeat, Hello, Kind, Load, Loaded, OutcomeHeader, Place, TaskHeader, TensorRange,
    Verdict, Welcome,
};
use lgp_distributed::inside::rpc::{Ask, Certification, Enrol, Renewal};
use lgp_distributed::inside::tensors::plan;
use lgp_distributed::inside::{self, call, frame, record, rpc};
use lgp_distributed::{CaHash, JoinRefusal, JoinToken, Pki, Result, Role, TaskId, WorkerId};

/// The key under which samples and their variations are read.
const KEY: (u64, u64) = (7, 9);

/// The readers. The first byte of an input chooses the reader of the rest.
pub struct Untrusted {
    pki: Pki,
}

impl Untrusted {
    /// Readers with their own certificate authority.
    ///
    /// # Errors
    /// [`Error::Pki`](lgp_distributed::Error) if the system has no random numbers.
    pub fn new() -> Result<Self> {
        Ok(Self { pki: Pki::generate()? })
    }

    /// Whether the reader of an input accepts it.
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

    /// Whether a certificate request would be signed.
    fn certify(&self, role: Role, name: &str, csr: &[u8]) -> bool {
        let name = name.parse::<WorkerId>();
        name.is_ok_and(|name| inside::signs(&self.pki, role, &name, csr))
    }

    /// Valid inputs to start from.
    ///
    /// # Errors
    /// None are expected.
    pub fn samples(&self) -> Result<Vec<Vec<u8>>> {
        let mut samples = samples::frames()?;
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
        let image = samples::image()?.encode()?;
        samples.push(input(4, &image));
        let mut stored = Vec::new();
        record::encode(KEY, &image, &mut stored);
        samples.push(input(5, &stored));
        samples.push(input(4, &samples::apart()?.encode()?));
        let token = inside::token(self.pki.hash(), [7; 16]);
        let id = inside::task_id(7, 9);
        for text in [token.to_string(), self.pki.hash().to_string(), id.to_string()] {
            samples.push(input(6, text.as_bytes()));
        }
        samples.push(input(6, name.as_str().as_bytes()));
        let [asked, answered] = call::samples(samples::spec()?)?;
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

/// Reads a frame as from a stream, with everything that its header describes.
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
        // A real stream holds the announced memory until it ends, even if it brings less.
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
        Kind::Load => frame::decode::<Load>(kind, header).map(drop),
        Kind::Unload | Kind::Unloaded => frame::decode::<Place>(kind, header).map(drop),
        Kind::Fetch => frame::decode::<TensorRange>(kind, header).map(drop),
        Kind::Draining | Kind::Drain | Kind::Task | Kind::Outcome => Ok(()),
    }
    .ok()
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
            // Cut at every length, and with some bytes changed.
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
