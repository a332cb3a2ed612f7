//! One task at the worker: read, wait for a slot, execute on a blocking thread, answer.

use crate::error::Result;
use crate::executor::{ExecError, Executor};
use crate::net::blob::Fetcher;
use crate::net::lane::Berth;
use crate::net::large::Larder;
use crate::net::wire::{self, Start};
use crate::proto::frame;
use crate::proto::message::{
    AttemptId, InputBlob, Kind, OutcomeHeader, TaskHeader, TensorMeta, Verdict,
};
use crate::proto::tensors::{describe, plan};
use crate::task::ModelRef;
use lgp_memory::NamedTensor;
use quinn::{RecvStream, SendStream};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

/// Free slots of each device, shared by all sessions of a worker: work of a lost one may still be
/// running when the next begins.
pub(super) type Slots = Vec<Arc<Semaphore>>;

/// What the tasks of one connection share.
pub(super) struct Desk {
    pub(super) executor: Arc<dyn Executor>,
    pub(super) fetcher: Fetcher,
    /// Where memory is shared with the coordinator.
    pub(super) berth: Arc<Berth>,
    larder: Arc<Larder>,
    slots: Slots,
    reports: mpsc::UnboundedSender<Vec<u8>>,
    held: Mutex<BTreeSet<AttemptId>>,
    /// Tasks that wait, by device.
    queued: Vec<AtomicU32>,
    leaving: AtomicBool,
    emptied: Notify,
}

impl Desk {
    pub(super) fn new(
        executor: Arc<dyn Executor>,
        fetcher: Fetcher,
        larder: Arc<Larder>,
        slots: Slots,
        reports: mpsc::UnboundedSender<Vec<u8>>,
    ) -> Self {
        let queued = slots.iter().map(|_| AtomicU32::new(0)).collect();
        Self {
            executor,
            fetcher,
            berth: Arc::default(),
            larder,
            slots,
            reports,
            held: Mutex::default(),
            queued,
            leaving: AtomicBool::new(false),
            emptied: Notify::new(),
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<AttemptId>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attempts held, and how many of them wait for a slot of each device.
    pub(super) fn holdings(&self) -> (Vec<AttemptId>, Vec<u32>) {
        let queued = self.queued.iter().map(|queued| queued.load(Ordering::Relaxed));
        (self.held().iter().copied().collect(), queued.collect())
    }

    /// How many devices there are.
    pub(super) fn devices(&self) -> usize {
        self.slots.len()
    }

    /// From now on tasks are refused.
    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    /// Resolves once nothing is held.
    pub(super) async fn until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.held().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Sends a frame on the report stream.
    pub(super) fn report(&self, kind: Kind, header: &impl Serialize) {
        match frame::encode(kind, header, 0, 0) {
            // A closed channel belongs to a connection that has ended.
            Ok(bytes) => drop(self.reports.send(bytes)),
            Err(error) => tracing::error!(%error, "report not sent"),
        }
    }
}

/// Marks an attempt as held for as long as it lives.
struct Hold {
    desk: Arc<Desk>,
    id: AttemptId,
}

impl Hold {
    fn new(desk: &Arc<Desk>, id: AttemptId) -> Self {
        desk.held().insert(id);
        Self { desk: Arc::clone(desk), id }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.desk.held();
        held.remove(&self.id);
        if held.is_empty() {
            self.desk.emptied.notify_waiters();
        }
    }
}

/// Serves the task of one stream.
pub(super) async fn work(desk: Arc<Desk>, mut send: SendStream, mut recv: RecvStream) {
    let (start, mut header) = match read_header(&mut recv).await {
        Ok(read) => read,
        Err(error) => return tracing::debug!(%error, "no task on the stream"),
    };
    let hold = Hold::new(&desk, header.id);
    let metas = std::mem::take(&mut header.tensors);
    match perform(&desk, start, header, metas, &mut send, &mut recv).await {
        Ok(()) => {
            wire::read_end(&mut recv).await;
            // The attempt is held until its whole answer has arrived, however long that takes:
            // what no heartbeat names is given to others.
            if let Ok(Some(_)) = send.stopped().await {
                // A cancellation that crossed the answer.
                desk.report(Kind::Released, &hold.id);
            }
        }
        Err(error) => {
            // Cancelled, or broken: either way the coordinator learns that the slot is free.
            tracing::debug!(%error, "task given up");
            desk.report(Kind::Released, &hold.id);
        }
    }
}

async fn read_header(recv: &mut RecvStream) -> Result<(Start, TaskHeader)> {
    let start = Start::read(recv).await?;
    let header = start.header(Kind::Task, "task")?;
    Ok((start, header))
}

async fn perform(
    desk: &Arc<Desk>,
    start: Start,
    header: TaskHeader,
    metas: Vec<TensorMeta>,
    send: &mut SendStream,
    recv: &mut RecvStream,
) -> Result<()> {
    let TaskHeader { id, device, model, shared, blob, .. } = header;
    let device = usize::try_from(device).unwrap_or(usize::MAX);
    if desk.leaving.load(Ordering::SeqCst) {
        return answer(send, id, 0, Verdict::Refused).await;
    }
    let inputs = match blob {
        None => start.tensors_from(&desk.berth, recv, id, metas, shared).await?,
        Some(blob) => {
            // Nothing may follow besides.
            start.tensors(recv, Vec::new()).await?;
            match large_inputs(desk, blob, metas, send).await? {
                Ok(inputs) => inputs,
                Err(error) => {
                    return answer(send, id, 0, Verdict::Error(error.shortened())).await;
                }
            }
        }
    };
    if let Err(error) = desk.fetcher.ensure(&model).await {
        return answer(send, id, 0, Verdict::Error(error.shortened())).await;
    }
    let permit = slot(desk, device, send).await?;
    let (result, model_us) = execute(desk, permit, device, model, inputs).await;
    let described = result.and_then(|outputs| {
        let described = describe(&outputs);
        let (metas, bytes) =
            described.map_err(|e| ExecError::failed(format!("outputs do not fit a frame: {e}")))?;
        Ok((outputs, metas, bytes))
    });
    match described {
        Ok((outputs, metas, bytes)) => {
            let shared = desk.berth.lend(id, &outputs, bytes).await;
            let verdict = Verdict::Done(metas);
            let header = OutcomeHeader { id, model_us, verdict, shared };
            match shared {
                None => write_answer(send, &header, &outputs, bytes).await,
                Some(_) => write_answer(send, &header, &[], 0).await,
            }
        }
        Err(error) => answer(send, id, model_us, Verdict::Error(error.shortened())).await,
    }
}

/// Fetches inputs that are too long for a frame, unless nobody wants the answer any more.
async fn large_inputs(
    desk: &Desk,
    blob: InputBlob,
    metas: Vec<TensorMeta>,
    send: &SendStream,
) -> Result<Result<Vec<NamedTensor>, ExecError>> {
    let planned = plan(metas, usize::try_from(blob.bytes).map_err(wire::lost)?)?;
    let fetched = tokio::select! {
        fetched = desk.larder.fetch(desk.fetcher.connection(), blob, planned) => fetched,
        _ = send.stopped() => return Err(wire::lost("cancelled")),
    };
    // Another worker, or another time, may have more luck.
    Ok(fetched.map_err(|error| ExecError::unavailable(error.to_string())))
}

/// Waits for a free slot, or for the news that nobody wants the answer any more.
async fn slot(desk: &Desk, device: usize, send: &SendStream) -> Result<OwnedSemaphorePermit> {
    let (Some(slots), Some(queued)) = (desk.slots.get(device), desk.queued.get(device)) else {
        let count = desk.slots.len();
        return Err(wire::lost(format!("a task for device {device} of {count}")));
    };
    if let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
        return Ok(permit);
    }
    queued.fetch_add(1, Ordering::Relaxed);
    let permit = tokio::select! {
        permit = Arc::clone(slots).acquire_owned() => permit.map_err(wire::lost),
        _ = send.stopped() => Err(wire::lost("cancelled")),
    };
    queued.fetch_sub(1, Ordering::Relaxed);
    permit
}

async fn execute(
    desk: &Desk,
    permit: OwnedSemaphorePermit,
    device: usize,
    model: ModelRef,
    inputs: Vec<NamedTensor>,
) -> (Result<Vec<NamedTensor>, ExecError>, u64) {
    let executor = Arc::clone(&desk.executor);
    let run = tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let result = executor.execute(device, &model, &inputs);
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Held until here even if the session ends before: the thread is busy either way.
        drop(permit);
        (result, took)
    });
    let panicked = |e: tokio::task::JoinError| {
        (Err(ExecError::failed(format!("the executor did not finish: {e}"))), 0)
    };
    run.await.unwrap_or_else(panicked)
}

/// Answers without tensors.
async fn answer(
    send: &mut SendStream,
    id: AttemptId,
    model_us: u64,
    verdict: Verdict,
) -> Result<()> {
    let header = OutcomeHeader { id, model_us, verdict, shared: None };
    write_answer(send, &header, &[], 0).await
}

async fn write_answer(
    send: &mut SendStream,
    header: &OutcomeHeader,
    outputs: &[NamedTensor],
    body_bytes: usize,
) -> Result<()> {
    let mut chunks = wire::chunks(Kind::Outcome, header, outputs, body_bytes)?;
    send.write_all_chunks(&mut chunks).await.map_err(wire::lost)?;
    send.finish().map_err(wire::lost)
}
