//! One attempt on its stream: the request goes out, the answer comes back.

use crate::error::{Error, Result};
use crate::executor::ExecError;
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::transfer::tensors::{Fetched, Large, Peer, TensorCache};
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
use tokio::sync::OwnedSemaphorePermit;

/// Carries an attempt to a device of its worker and the answer back to the core.
///
/// Dropped early (the attempt was cancelled), it resets the request and stops the answer.
pub(crate) async fn run(
    shared: Arc<CoreHandle>,
    connection: Connection,
    to: (SessionId, u32),
    id: AttemptId,
    (model, spec, large): (Arc<ModelRef>, Arc<TaskSpec>, Option<Arc<Large>>),
    shared_memory: Arc<SharedMemory>,
) {
    let (session, _) = to;
    let mut exchange = match Exchange::open(&connection).await {
        Ok(exchange) => exchange,
        Err(error) => return shared.broken(&connection, session, id, &error),
    };
    let parts = (&*model, &*spec, large.as_ref());
    let performing = exchange.perform(&shared, &connection, to, id, parts, &shared_memory);
    let lost = async {
        match &large {
            Some(large) => large.lost().await,
            None => std::future::pending().await,
        }
    };
    let performed = tokio::select! {
        performed = performing => performed,
        reason = lost => return shared.complete(session, id, Completion::NoInputs { reason }),
    };
    match performed {
        Ok((completion, room)) => {
            shared.complete(session, id, completion);
            exchange.answered = true;
            match room {
                // The worker has them until it hears of it.
                Some(room) => {
                    let _ = exchange.recv.stop(TAKEN);
                    shared.keep_room(id.seq, Some(room));
                }
                None => wire::read_end(&mut exchange.recv).await,
            }
        }
        // The connection is not to blame, and neither is the worker.
        Err(error) if exchange.sharing && shared_memory.has_failed() => {
            tracing::info!(%error, "an attempt is done again without shared memory");
            if connection.close_reason().is_none() {
                shared.complete(session, id, Completion::Unshared);
            }
        }
        Err(error) => shared.broken(&connection, session, id, &error),
    }
}

struct Exchange {
    send: SendStream,
    recv: RecvStream,
    sent: bool,
    answered: bool,
    /// Memory was shared when it began.
    shared: bool,
    /// Its tensors lie there, those of the request or of the answer.
    sharing: bool,
}

impl Exchange {
    async fn open(connection: &Connection) -> Result<Self> {
        let (send, recv) = connection.open_bi().await.map_err(wire::lost)?;
        Ok(Self { send, recv, sent: false, answered: false, shared: false, sharing: false })
    }

    async fn perform(
        &mut self,
        core: &Arc<CoreHandle>,
        connection: &Connection,
        (session, device): (SessionId, u32),
        id: AttemptId,
        (model, spec, large): (&ModelRef, &TaskSpec, Option<&Arc<Large>>),
        shared_memory: &SharedMemory,
    ) -> Result<(Completion, Option<Room>)> {
        self.shared = !shared_memory.is_dead();
        // Stands until the attempt has ended.
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
        let shared = shared_memory.lend(id, inputs, body_bytes).await;
        self.sharing = shared.is_some();
        let (inputs, body_bytes) = if self.sharing { (&[][..], 0) } else { (inputs, body_bytes) };
        let (priority, model) = (spec.priority, model.clone());
        let header = TaskHeader { id, device, priority, model, tensors, shared, blob };
        let mut chunks = wire::chunks(Kind::Task, &header, inputs, body_bytes)?;
        self.send.write_all_chunks(&mut chunks).await.map_err(wire::lost)?;
        self.send.finish().map_err(wire::lost)?;
        self.sent = true;
        let start = Start::read(&mut self.recv).await?;
        let header: OutcomeHeader = start.header(Kind::Outcome, "outcome")?;
        if header.id != id {
            let reason = format!("the answer is for {:?}, not for {id:?}", header.id);
            return Err(Error::Connection(reason));
        }
        if header.blob.is_some() {
            core.with(|core, _| core.answering(session, id));
        }
        // An answer with what is not shared any more breaks the attempt itself.
        self.sharing = header.shared.is_some() && self.shared;
        let from = (&*core.collected, Peer::Worker(connection));
        completion(start, header, &mut self.recv, shared_memory, from).await
    }
}

/// Room for large outputs, which is to be kept as long as they are on their way.
pub(crate) type Room = OwnedSemaphorePermit;

/// What an answer says, with the tensors that follow its header, lie in shared memory, or are asked
/// for by their digest.
pub(crate) async fn completion(
    start: Start,
    header: OutcomeHeader,
    recv: &mut RecvStream,
    shared_memory: &SharedMemory,
    (collected, worker): (&TensorCache, Peer<'_>),
) -> Result<(Completion, Option<Room>)> {
    let OutcomeHeader { id, model_us, batch, verdict, shared, blob } = header;
    let model = Duration::from_micros(model_us);
    let metas = match verdict {
        Verdict::Done(metas) => metas,
        Verdict::Error(error) => return Ok((Completion::Error { error, model }, None)),
        Verdict::Refused => return Ok((Completion::Refused, None)),
    };
    let Some(blob) = blob else {
        let outputs = start.tensors_from(shared_memory, recv, id, metas, shared).await?;
        return Ok((Completion::Done { outputs, model, batch }, None));
    };
    // Nothing may follow besides.
    start.tensors(recv, Vec::new()).await?;
    let planned = plan(metas, usize::try_from(blob.bytes).map_err(wire::lost)?)?;
    match collected.fetch(worker, blob, planned).await {
        Ok(Fetched { tensors: outputs, room }) => {
            Ok((Completion::Done { outputs, model, batch }, Some(room)))
        }
        // No other worker has a shorter answer.
        Err(error @ Error::TooLarge { .. }) => {
            let error = ExecError::failed(error.to_string());
            Ok((Completion::Error { error, model }, None))
        }
        Err(error) => Err(error),
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Both fail only where there is nothing left to stop.
        if !self.sent {
            let _ = self.send.reset(CANCELLED);
        }
        if !self.answered {
            let _ = self.recv.stop(CANCELLED);
        }
    }
}
