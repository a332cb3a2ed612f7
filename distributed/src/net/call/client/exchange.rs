//! Sends a call with its tensors, and reads the answer.

use super::Client;
use crate::error::{Error, Result};
use crate::net::call::{
    ADMIN_CALL_BYTES_MAX, ANSWER_BYTES_MAX, Answer, CALL_BYTES_MAX, Call, Item, PeerCall, Spec,
    Told, room,
};
use crate::net::identity::enrol::JoinRefusal;
use crate::net::transport::close::{Close, final_error};
use crate::net::transport::rpc;
use crate::net::transport::wire;
use crate::proto::frame::FrameError;
use crate::proto::tensors::{describe, plan_first};
use crate::task::{TaskId, TaskRecord, TaskSpec};
use lgp_memory::NamedTensor;
use quinn::{ConnectionError, RecvStream};
use std::net::SocketAddr;
use std::time::SystemTime;
use tokio::sync::SemaphorePermit;

/// Most bytes of outputs that the client accepts; each tensor is allocated in its turn.
const RESULT_BYTES_MAX: usize = 4 << 30;

/// Tasks on their way to another coordinator.
pub(crate) struct Parcel {
    items: Vec<Item>,
    /// The inputs of all items, in the order of the items.
    inputs: Vec<NamedTensor>,
}

impl Parcel {
    /// Packs tasks, each with the positions of the tasks that it depends on.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for inputs of more than 64 MiB, which only the leader takes.
    pub(crate) fn of(tasks: Vec<(TaskSpec, Vec<usize>)>) -> Result<Self> {
        let (mut items, mut all) = (Vec::with_capacity(tasks.len()), Vec::new());
        for (mut spec, within) in tasks {
            let inputs = std::mem::take(&mut spec.inputs);
            let (metas, _) = describe(&inputs)?;
            all.extend(inputs);
            let request_digest = spec.request_digest;
            let within = within.into_iter().map(|at| u64::try_from(at).unwrap_or(u64::MAX));
            let (spec, within) = (Spec::of(spec, metas), within.collect());
            items.push(Item { spec, request_digest, within });
        }
        describe(&all)?;
        Ok(Self { items, inputs: all })
    }
}

/// An answer, and the outputs of a record.
pub(crate) enum Answered {
    Told(Told),
    Record(Box<TaskRecord>),
}

impl Client {
    pub(super) async fn done(&self, call: Call) -> Result<()> {
        match self.call(call).await? {
            Told::Done => Ok(()),
            _ => Err(odd()),
        }
    }

    pub(super) async fn call(&self, call: Call) -> Result<Told> {
        Ok(self.exchange(call, &[], None).await?.0)
    }

    pub(super) async fn ask_record(&self, call: Call) -> Result<TaskRecord> {
        let (told, recv) = self.exchange(call, &[], None).await?;
        self.record(told, recv).await
    }

    /// Asks another coordinator, which answers from its own state only.
    pub(crate) async fn here(&self, call: PeerCall) -> Result<Answered> {
        let (told, recv) = self.exchange(Call::Peer(call), &[], None).await?;
        match told {
            told @ Told::Record(_) => {
                Ok(Answered::Record(Box::new(self.record(told, recv).await?)))
            }
            told => Ok(Answered::Told(told)),
        }
    }

    /// A part of a mirrored file; `None` where the other coordinator does not have the file.
    pub(crate) async fn part(&self, sha256: &str, offset: u64) -> Result<Option<Vec<u8>>> {
        let sha256 = sha256.to_owned();
        match self.here(PeerCall::Part { sha256, offset }).await? {
            Answered::Told(Told::Part(part)) => Ok(part),
            _ => Err(odd()),
        }
    }

    /// Makes another coordinator accept tasks, all of them or none. Their inputs have up to 64 MiB.
    pub(crate) async fn pass_on(&self, parcel: Parcel) -> Result<Vec<TaskId>> {
        let Parcel { items, inputs } = parcel;
        let bytes = inputs.iter().map(|input| input.tensor.packed_len()).sum();
        // The semaphore is never closed.
        let room = self.room.acquire_many(room::units(bytes)?).await.map_err(wire::lost)?;
        let call = Call::Peer(PeerCall::SubmitAll(items));
        match self.exchange(call, &inputs, Some(room)).await?.0 {
            Told::Ids(ids) => Ok(ids),
            _ => Err(odd()),
        }
    }

    pub(super) async fn give(
        &self,
        mut spec: TaskSpec,
        call: impl FnOnce(Box<Spec>) -> Call,
    ) -> Result<(Told, RecvStream)> {
        let inputs = std::mem::take(&mut spec.inputs);
        let (metas, bytes) = describe(&inputs)?;
        // The semaphore is never closed.
        let room = self.room.acquire_many(room::units(bytes)?).await.map_err(wire::lost)?;
        self.exchange(call(Box::new(Spec::of(spec, metas))), &inputs, Some(room)).await
    }

    pub(super) async fn record(&self, told: Told, mut recv: RecvStream) -> Result<TaskRecord> {
        let Told::Record(mut record) = told else { return Err(odd()) };
        let Some(metas) = record.outputs.take() else { return Ok(record.with(None)) };
        let (planned, _) = plan_first(metas, RESULT_BYTES_MAX)?;
        let mut outputs = Vec::with_capacity(planned.len());
        for planned in planned {
            let mut buffer = planned.buffer()?;
            let filled = wire::fill(&mut recv, &mut buffer).await;
            filled.map_err(|error| self.explain(error))?;
            outputs.push(planned.finish(buffer)?);
        }
        Ok(record.with(Some(outputs)))
    }

    /// Sends a call and its tensors, and reads the answer; tensors may follow the answer. The room
    /// is given back once the inputs have arrived, which may be long before the answer.
    async fn exchange(
        &self,
        call: Call,
        inputs: &[NamedTensor],
        room: Option<SemaphorePermit<'_>>,
    ) -> Result<(Told, RecvStream)> {
        let bytes_max = match call {
            Call::Peer(_) => ADMIN_CALL_BYTES_MAX,
            _ => CALL_BYTES_MAX,
        };
        let exchange = async {
            let (mut send, mut recv) = self.connection.open_bi().await.map_err(wire::lost)?;
            let written = async {
                rpc::write_within(&mut send, &call, bytes_max).await?;
                wire::write_tensors(&mut send, inputs).await?;
                send.finish().map_err(wire::lost)
            };
            let written = written.await;
            if let Err(error @ Error::TooLarge { .. }) = written {
                return Err(error);
            }
            let arrived = send.stopped();
            let answer = {
                let mut reading =
                    std::pin::pin!(rpc::read_within::<Answer>(&mut recv, ANSWER_BYTES_MAX));
                tokio::select! {
                    answer = &mut reading => answer,
                    _ = arrived => {
                        drop(room);
                        reading.await
                    }
                }
            };
            // A coordinator that refuses a call stops reading it; the reason is in its answer.
            match answer {
                Ok(answer) => Ok((answer, recv)),
                Err(error) => Err(written.err().unwrap_or(error)),
            }
        };
        let (answer, recv) = exchange.await.map_err(|error| self.explain(error))?;
        Ok((answer.map_err(|refusal| refusal.given_by(self.addr))?, recv))
    }

    /// Why a call got no answer: the connection's close reason, if the connection has ended.
    fn explain(&self, error: Error) -> Error {
        match self.connection.close_reason() {
            Some(reason) => ended(self.addr, &reason, self.until),
            None => error,
        }
    }
}

/// The error that tells the user why a connection ended.
pub(super) fn ended(addr: SocketAddr, error: &ConnectionError, until: SystemTime) -> Error {
    if Close::given_by_peer(error) == Some(Close::Expired) {
        return Error::JoinRefused { addr, refusal: JoinRefusal::CertificateExpired };
    }
    final_error(addr, error, until).unwrap_or_else(|| Error::Connection(format!("{addr}: {error}")))
}

/// The error for an answer that belongs to another call.
pub(super) fn odd() -> Error {
    let (expected, given) = ("the answer to the call", "that of another".to_owned());
    FrameError::Unexpected { expected, given }.into()
}
