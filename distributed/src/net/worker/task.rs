//! One task at the worker: read, wait for a thread of its device, answer.

use crate::config::INPUT_BYTES_MAX;
use crate::error::Result;
use crate::executor::{ExecError, Executor};
use crate::net::transfer::models::Fetcher;
use crate::net::transfer::tensors::{self, Fetched, Large, Offers, Peer, TensorCache};
use crate::net::transport::close::TAKEN;
use crate::net::transport::rpc::{self, Ask};
use crate::net::transport::shared_memory::SharedMemory;
use crate::net::transport::wire::{self, Start};
use crate::net::worker::Worker;
use crate::net::worker::attempts::{Attempts, Hold, Outcome, Reply};
use crate::net::worker::device_queue::{DeviceQueue, DeviceQueues, Job, Ran, Stage, Ticket};
use crate::net::worker::warm_up::WarmUps;
use crate::proto::frame::FrameError;
use crate::proto::message::{
    AttemptId, Kind, OutcomeHeader, TaskHeader, TensorBlob, TensorMeta, Verdict,
};
use crate::proto::tensors::{describe_any, plan};
use crate::run_trace::RunTrace;
use lgp_memory::NamedTensor;
use quinn::{Connection, RecvStream, SendStream};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// The state that the tasks of one connection share.
pub(crate) struct WorkerSession {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) fetcher: Fetcher,
    queues: DeviceQueues,
    /// Where memory is shared with the coordinator.
    pub(crate) shared_memory: Arc<SharedMemory>,
    pub(crate) input_cache: Arc<TensorCache>,
    /// Outputs that the coordinator may ask for.
    offers: Arc<Offers>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) warm_ups: Arc<WarmUps>,
    /// Bytes that the inputs of one run may have.
    pub(crate) input_bytes_max: usize,
    leaving: AtomicBool,
}

impl WorkerSession {
    pub(crate) fn new(worker: &Worker, fetcher: Fetcher) -> Self {
        Self {
            executor: Arc::clone(&worker.executor),
            fetcher,
            queues: Arc::clone(&worker.queues),
            shared_memory: Arc::default(),
            input_cache: Arc::clone(&worker.input_cache),
            offers: Arc::clone(&worker.offers),
            attempts: Arc::clone(&worker.attempts),
            warm_ups: Arc::clone(&worker.warm_ups),
            input_bytes_max: worker.config.input_bytes_max,
            leaving: AtomicBool::new(false),
        }
    }

    /// How many devices there are.
    pub(crate) fn devices(&self) -> usize {
        self.queues.len()
    }

    /// From now on tasks are refused, also waiting ones: other workers begin them sooner.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.attempts.recall_all();
    }

    /// Sends a frame on the report stream.
    pub(crate) fn report(&self, kind: Kind, header: &impl Serialize) {
        self.attempts.report(kind, header);
    }
}

fn refused(id: AttemptId) -> Reply {
    Reply::without(id, Verdict::Refused)
}

fn failed(id: AttemptId, error: ExecError) -> Reply {
    Reply::without(id, Verdict::Error(error.shortened()))
}

/// Serves one stream: a task, or a request for the outputs of one.
pub(crate) async fn work(session: Arc<WorkerSession>, mut send: SendStream, mut recv: RecvStream) {
    if let Err(error) = serve(&session, &mut send, &mut recv).await {
        tracing::debug!(%error, "a stream was not served");
    }
}

async fn serve(
    session: &Arc<WorkerSession>,
    send: &mut SendStream,
    recv: &mut RecvStream,
) -> Result<()> {
    let start = Start::read(recv).await?;
    if start.kind() == Kind::Fetch {
        let range = start.header(Kind::Fetch, "task or request")?;
        return Box::pin(tensors::send(&session.offers, range, send)).await;
    }
    let header: TaskHeader = start.header(Kind::Task, "task")?;
    let hold = session.attempts.hold(header.id);
    let id = hold.id;
    // Cancelled or broken: either way the coordinator learns that the slot is free.
    let released = || session.report(Kind::Released, &id);
    // Boxed: glibc is slow with pieces above a kilobyte, and both futures together have two.
    let performing = perform(session, &hold, start, header, send, recv);
    let performing = Box::pin(async { performing.await.map(Box::new) });
    let Ok(mut reply) = performing.await.inspect_err(|error| {
        tracing::debug!(%error, "task given up");
        released();
    }) else {
        return Ok(());
    };
    if !hold.stage.is_wanted() {
        released();
        return Ok(());
    }
    let given = async {
        answer(session, send, &reply).await?;
        wire::read_end(recv).await;
        // The attempt is held until its whole answer has arrived, however long that takes: the
        // coordinator gives attempts that no heartbeat names to others.
        send.stopped().await.map_err(wire::lost)
    };
    match given.await {
        Ok(None | Some(TAKEN)) => {}
        // A cancellation crossed the answer.
        Ok(Some(_)) => released(),
        // Another connection may take the answer; the trace belongs to this connection.
        Err(_) if session.fetcher.connection().close_reason().is_some() => {
            reply.header.trace = None;
            session.attempts.keep(hold, *reply);
        }
        Err(error) => {
            tracing::debug!(%error, "an answer was not taken");
            released();
        }
    }
    Ok(())
}

async fn perform(
    session: &Arc<WorkerSession>,
    hold: &Hold,
    start: Start,
    mut header: TaskHeader,
    send: &SendStream,
    recv: &mut RecvStream,
) -> Result<Reply> {
    let (id, mut came) = (hold.id, Instant::now());
    let metas = std::mem::take(&mut header.tensors);
    if session.leaving.load(Ordering::SeqCst) || session.attempts.was_recalled(id) {
        return Ok(refused(id));
    }
    let (inputs, room) = match header.blob {
        None => {
            let (memory, shared) = (&session.shared_memory, header.shared);
            let tensors = start.tensors_from(memory, recv, id, metas, shared).await?;
            came = Instant::now();
            (tensors, None)
        }
        Some(blob) => {
            start.end()?;
            let fetching = Box::pin(large_inputs(session, blob, metas));
            match unless_unwanted(hold, send, fetching).await? {
                Some(Ok(Fetched { tensors, room })) => (tensors, Some(room)),
                Some(Err(error)) => return Ok(failed(id, error)),
                None => return Ok(refused(id)),
            }
        }
    };
    let preparing = async { Ok(session.fetcher.ensure(&header.model).await) };
    match unless_unwanted(hold, send, preparing).await? {
        Some(Ok(())) => {}
        Some(Err(error)) => return Ok(failed(id, error)),
        None => return Ok(refused(id)),
    }
    let queue = usize::try_from(header.device).ok().and_then(|at| session.queues.get(at));
    let Some(queue) = queue else {
        let count = session.queues.len();
        return Err(wire::lost(format!("a task for device {} of {count}", header.device)));
    };
    let TaskHeader { priority, model, batching, traced, .. } = header;
    let stage = Arc::clone(&hold.stage);
    let job = Job { priority, model, batching, inputs, stage, room, traced };
    let ran = match queue.run_at_once(job) {
        Ok(ran) => ran,
        Err(job) => match wait(queue, queue.enter(job), &hold.stage, send).await? {
            Some(ran) => ran,
            None => return Ok(refused(id)),
        },
    };
    let model_us = u64::try_from(ran.took.as_micros()).unwrap_or(u64::MAX);
    let (batch, joined) = (ran.batch, ran.joined);
    let waited = ran.began.saturating_duration_since(came);
    let trace = traced.then(|| Box::new(RunTrace { waited, nodes: ran.nodes }));
    let mut reply = match ran.result {
        Ok(outputs) => done(session, id, outputs).await?,
        Err(error) => failed(id, error),
    };
    reply.header = OutcomeHeader { model_us, batch, joined, trace, ..reply.header };
    Ok(reply)
}

/// The answer with an attempt's outputs, which follow it unless they are too long.
async fn done(session: &WorkerSession, id: AttemptId, outputs: Vec<NamedTensor>) -> Result<Reply> {
    let (metas, body_bytes) = match describe_any(&outputs) {
        Ok(described) => described,
        Err(error) => {
            let message = format!("the model's outputs do not travel: {error}");
            return Ok(failed(id, ExecError::operator(message)));
        }
    };
    let (given, most) = (tensors::bytes_of(&outputs), session.input_bytes_max.max(INPUT_BYTES_MAX));
    if given > most {
        let message = format!("the model's outputs have {given} bytes, at most {most}");
        return Ok(failed(id, ExecError::operator(message)));
    }
    let mut reply = Reply::without(id, Verdict::Done(metas));
    if tensors::is_large(&outputs) {
        let large = Arc::new(Large::in_memory(&outputs)?);
        let offer = Box::pin(session.offers.offer(&large)).await?;
        reply.header.blob = Some(offer.blob);
        return Ok(Reply { offer: Some(offer), ..reply });
    }
    Ok(Reply { outputs, body_bytes, ..reply })
}

/// Prepares an attempt, which may take long; `None` when the attempt is recalled meanwhile, or its
/// worker leaves. The next attempt continues with the bytes that were fetched by then.
async fn unless_unwanted<T>(
    hold: &Hold,
    send: &SendStream,
    preparing: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    tokio::select! {
        // A finished preparation needs no decision.
        biased;
        ready = preparing => ready.map(Some),
        _ = send.stopped() => Err(wire::lost("cancelled")),
        () = hold.stage.cancelled.notified() => Err(wire::lost("cancelled")),
        () = hold.stage.recalled.notified() => Ok(None),
    }
}

/// Fetches inputs that are too long for a frame.
async fn large_inputs(
    session: &WorkerSession,
    blob: TensorBlob,
    metas: Vec<TensorMeta>,
) -> Result<Result<Fetched, ExecError>> {
    let planned = plan(metas, usize::try_from(blob.bytes).map_err(wire::lost)?)?;
    let coordinator = Peer::Coordinator(session.fetcher.connection());
    let fetched = session.input_cache.fetch(coordinator, blob, planned).await;
    // Another worker, or a later attempt, may succeed.
    Ok(fetched.map_err(|error| ExecError::unavailable(error.to_string())))
}

/// Waits in the queue until the task was run; `None` when it was recalled before its run.
async fn wait(
    queue: &Arc<DeviceQueue>,
    mut ticket: Ticket,
    stage: &Stage,
    send: &SendStream,
) -> Result<Option<Ran>> {
    let mut connected = true;
    loop {
        tokio::select! {
            ran = &mut ticket.ran => {
                return ran.map(Some).map_err(|_| wire::lost("the thread that ran it ended"));
            }
            () = stage.recalled.notified() => {
                if queue.leave(&ticket) {
                    return Ok(None);
                }
            }
            () = stage.cancelled.notified() => {
                // A run that other tasks share goes on without this one; a run of its own is asked
                // to stop, and keeps its place until it has.
                if queue.leave(&ticket) || stage.goes_on_for_others() {
                    return Err(wire::lost("cancelled"));
                }
            }
            stopped = send.stopped(), if connected => {
                // A lost connection ends the attempt's stream; the attempt goes on for the next one.
                connected = false;
                if stopped.is_ok() {
                    stage.cancel();
                }
            }
        }
    }
}

/// Writes an answer on the attempt's own stream; its tensors go through shared memory where there is
/// some.
async fn answer(session: &WorkerSession, send: &mut SendStream, reply: &Reply) -> Result<()> {
    let Reply { header, outputs, body_bytes, offer } = reply;
    let shared = session.shared_memory.lend(header.id, outputs, *body_bytes).await;
    let mut chunks = {
        let lent = shared.is_some();
        let header = OutcomeHeader { shared, ..header.clone() };
        let (outputs, body_bytes) = if lent { (&[][..], 0) } else { (&outputs[..], *body_bytes) };
        match wire::chunks(Kind::Outcome, &header, outputs, body_bytes) {
            // Many outputs and a trace do not fit one header.
            Err(FrameError::TooLong { .. }) if header.trace.is_some() => {
                let untraced = OutcomeHeader { trace: None, ..header };
                wire::chunks(Kind::Outcome, &untraced, outputs, body_bytes)?
            }
            chunks => chunks?,
        }
    };
    send.write_all_chunks(&mut chunks).await.map_err(wire::lost)?;
    match offer {
        // The stream stays open until the coordinator has the outputs, and stops it.
        Some(_) => Ok(()),
        None => send.finish().map_err(wire::lost),
    }
}

/// Sends outcomes whose own stream was lost over this connection, until it ends.
pub(crate) async fn deliver(session: Arc<WorkerSession>) {
    loop {
        let outcome = session.attempts.undelivered().await;
        match bring(session.fetcher.connection(), &outcome).await {
            Ok(()) => session.attempts.delivered(&outcome),
            // The next connection tries again.
            Err(error) => return tracing::debug!(%error, "an outcome was not delivered"),
        }
    }
}

async fn bring(connection: &Connection, outcome: &Outcome) -> Result<()> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(wire::lost)?;
    rpc::write(&mut send, &Ask::Outcome).await?;
    let Reply { header, outputs, body_bytes, .. } = &outcome.reply;
    let mut chunks = wire::chunks(Kind::Outcome, header, outputs, *body_bytes)?;
    send.write_all_chunks(&mut chunks).await.map_err(wire::lost)?;
    send.finish().map_err(wire::lost)?;
    rpc::read(&mut recv).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a runtime adds to a future.
    const HEAD_BYTES: usize = 144;

    #[test]
    fn the_future_of_a_stream_is_less_than_a_kilobyte() {
        fn bytes<A, B, C, F>(_: impl FnOnce(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        assert!(bytes(work) + HEAD_BYTES <= 1_024, "{}", bytes(work));
    }
}
