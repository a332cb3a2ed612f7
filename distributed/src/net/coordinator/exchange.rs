//! One attempt on its stream: the request goes out, the answer comes back.

use crate::batching::Batching;
use crate::error::{Error, Result};
use crate::executor::ExecError;
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::coordinator::outputs::Room;
use crate::net::transfer::tensors::{Fetched, Large, Offer, Peer, TensorCache};
use crate::net::transport::close::{CANCELLED, TAKEN};
use crate::net::transport::shared_memory::SharedMemory;
use crate::net::transport::wire::{self, Start};
use crate::proto::message::{AttemptId, Kind, OutcomeHeader, TaskHeader, Verdict};
use crate::proto::state::{Completion, SessionId};
use crate::proto::tensors::{describe, plan};
use crate::task::{ModelRef, TaskSpec};
use quinn::{Connection, RecvStream, SendStream};
use std::sync::Arc;
use std::time::Duration;

/// An attempt that a worker is given.
pub(crate) struct Attempt {
    pub(crate) core: Arc<CoreHandle>,
    pub(crate) connection: Connection,
    pub(crate) session: SessionId,
    pub(crate) device: u32,
    pub(crate) id: AttemptId,
    pub(crate) model: Arc<ModelRef>,
    /// How it is batched with others, if its model says so.
    pub(crate) batching: Option<Box<Batching>>,
    /// Whether its worker reports a trace of its run.
    pub(crate) traced: bool,
    pub(crate) spec: Arc<TaskSpec>,
    /// Its inputs, where they are too long to follow the request.
    pub(crate) large: Option<Arc<Large>>,
    pub(crate) shared_memory: Arc<SharedMemory>,
}

impl Attempt {
    /// Brings it to a device of its worker, and its answer to the core.
    ///
    /// Dropped early (the attempt was cancelled), it resets the request and stops the answer.
    pub(crate) async fn run(&self) {
        let mut exchange = match Exchange::open(self).await {
            Ok(exchange) => exchange,
            Err(error) => return self.broken(&error),
        };
        let performed = tokio::select! {
            performed = exchange.perform() => performed,
            reason = self.inputs_lost() => {
                return self.complete(Completion::NoInputs { reason });
            }
        };
        match performed {
            Ok((completion, room)) => {
                self.complete(completion);
                exchange.answered = true;
                match room {
                    // The worker keeps the outputs until it hears that they were taken.
                    Some(room) => {
                        let _ = exchange.recv.stop(TAKEN);
                        self.core.keep_room(self.id.seq, Some(room));
                    }
                    None => wire::read_end(&mut exchange.recv).await,
                }
            }
            // Neither the connection nor the worker is to blame.
            Err(error) if exchange.sharing && self.shared_memory.has_failed() => {
                tracing::info!(%error, "an attempt is done again without shared memory");
                if self.connection.close_reason().is_none() {
                    self.complete(Completion::Unshared);
                }
            }
            Err(error) => self.broken(&error),
        }
    }

    /// Resolves with the reason once its inputs are lost.
    async fn inputs_lost(&self) -> String {
        match &self.large {
            Some(large) => large.lost().await,
            None => std::future::pending().await,
        }
    }

    fn complete(&self, completion: Completion) {
        self.core.complete(self.session, self.id, completion);
    }

    fn broken(&self, error: &Error) {
        self.core.broken(&self.connection, self.session, self.id, error);
    }
}

struct Exchange<'a> {
    attempt: &'a Attempt,
    send: SendStream,
    recv: RecvStream,
    sent: bool,
    answered: bool,
    /// Whether memory was shared when the exchange began.
    shared: bool,
    /// Whether tensors of the request or of the answer lie in shared memory.
    sharing: bool,
}

impl<'a> Exchange<'a> {
    async fn open(attempt: &'a Attempt) -> Result<Self> {
        let (send, recv) = attempt.connection.open_bi().await.map_err(wire::lost)?;
        let shared = !attempt.shared_memory.is_dead();
        Ok(Self { attempt, send, recv, sent: false, answered: false, shared, sharing: false })
    }

    async fn perform(&mut self) -> Result<(Completion, Option<Room>)> {
        // The offer stands until the attempt has ended.
        let _offer = self.ask().await?;
        let start = Start::read(&mut self.recv).await?;
        let mut header: OutcomeHeader = start.header(Kind::Outcome, "outcome")?;
        let Attempt { core, connection, session, id, shared_memory, traced, .. } = self.attempt;
        if header.id != *id {
            let reason = format!("the answer is for {:?}, not for {id:?}", header.id);
            return Err(Error::Connection(reason));
        }
        if header.blob.is_some() {
            core.with(|core, _| core.answering(*session, *id));
        }
        if let Some(trace) = header.trace.take().filter(|_| *traced) {
            core.run_traces.put(*id, *trace);
        }
        // An answer in memory that is not shared any more breaks the attempt itself.
        self.sharing = header.shared.is_some() && self.shared;
        let from = (&*core.collected, Peer::Worker(connection));
        Box::pin(completion(start, header, &mut self.recv, shared_memory, from)).await
    }

    /// Sends the request; returns the offer of its inputs, if they do not follow.
    async fn ask(&mut self) -> Result<Option<Offer>> {
        let Attempt { core, device, id, model, traced, spec, large, .. } = self.attempt;
        let shared_memory = &self.attempt.shared_memory;
        let batching = self.attempt.batching.clone();
        let offer = match large {
            Some(large) => Some(core.offers.offer(large).await?),
            None => None,
        };
        let blob = offer.as_ref().map(|offer| offer.blob);
        let (tensors, inputs, body_bytes) = match large {
            Some(large) => (large.tensors.clone(), &[][..], 0),
            None => {
                let (tensors, body_bytes) = describe(&spec.inputs)?;
                (tensors, &*spec.inputs, body_bytes)
            }
        };
        let shared = shared_memory.lend(*id, inputs, body_bytes).await;
        self.sharing = shared.is_some();
        let (inputs, body_bytes) = if self.sharing { (&[][..], 0) } else { (inputs, body_bytes) };
        let mut chunks = {
            let header = TaskHeader {
                id: *id,
                device: *device,
                priority: spec.priority,
                model: (**model).clone(),
                tensors,
                shared,
                blob,
                batching,
                traced: *traced,
            };
            wire::chunks(Kind::Task, &header, inputs, body_bytes)?
        };
        self.send.write_all_chunks(&mut chunks).await.map_err(wire::lost)?;
        self.send.finish().map_err(wire::lost)?;
        self.sent = true;
        Ok(offer)
    }
}

/// The result in an answer, whose tensors follow its header, lie in shared memory, or are asked for
/// by their digest.
pub(crate) async fn completion(
    start: Start,
    header: OutcomeHeader,
    recv: &mut RecvStream,
    shared_memory: &SharedMemory,
    (collected, worker): (&TensorCache, Peer<'_>),
) -> Result<(Completion, Option<Room>)> {
    let OutcomeHeader { id, model_us, batch, verdict, shared, blob, joined, trace: _ } = header;
    let model = Duration::from_micros(model_us);
    let metas = match verdict {
        Verdict::Done(metas) => metas,
        Verdict::Error(error) => return Ok((Completion::Error { error, model }, None)),
        Verdict::Refused => return Ok((Completion::Refused, None)),
    };
    let Some(blob) = blob else {
        let outputs = start.tensors_from(shared_memory, recv, id, metas, shared).await?;
        return Ok((Completion::Done { outputs, model, batch, joined }, None));
    };
    start.end()?;
    let planned = plan(metas, usize::try_from(blob.bytes).map_err(wire::lost)?)?;
    match Box::pin(collected.fetch(worker, blob, planned)).await {
        Ok(Fetched { tensors: outputs, room }) => {
            Ok((Completion::Done { outputs, model, batch, joined }, Some(room)))
        }
        // The answer of another worker would be as long.
        Err(error @ Error::TooLarge { .. }) => {
            let error = ExecError::failed(error.to_string());
            Ok((Completion::Error { error, model }, None))
        }
        Err(error) => Err(error),
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        // Both fail only if there is nothing left to stop.
        if !self.sent {
            let _ = self.send.reset(CANCELLED);
        }
        if !self.answered {
            let _ = self.recv.stop(CANCELLED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a runtime adds to a future.
    const HEAD_BYTES: usize = 144;

    #[test]
    fn the_future_of_an_attempt_is_less_than_a_kilobyte() {
        fn bytes<'a, F: Future>(_: impl FnOnce(&'a Attempt) -> F) -> usize {
            size_of::<Attempt>() + size_of::<F>()
        }
        assert!(bytes(Attempt::run) + HEAD_BYTES <= 1_024, "{}", bytes(Attempt::run));
    }
}
