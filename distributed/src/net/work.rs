//! One task at the worker: read, wait for a thread of its device, answer.

use crate::error::Result;
use crate::executor::{ExecError, Executor};
use crate::net::blob::Fetcher;
use crate::net::lane::Berth;
use crate::net::large::{Fetched, Larder};
use crate::net::line::{Job, Line, Lines, Ran, Stage};
use crate::net::wire::{self, Start};
use crate::proto::frame;
use crate::proto::message::{
    AttemptId, InputBlob, Kind, OutcomeHeader, TaskHeader, TensorMeta, Verdict,
};
use crate::proto::tensors::{describe, plan};
use lgp_memory::NamedTensor;
use quinn::{RecvStream, SendStream};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// Recalls that are kept for attempts that have not come yet.
const EARLY_MAX: usize = 1_024;

/// Attempts that were asked back and were not here, the last ones last. Most of them had ended.
#[derive(Default)]
struct Early(VecDeque<AttemptId>);

impl Early {
    fn add(&mut self, id: AttemptId) {
        if self.0.len() >= EARLY_MAX {
            self.0.pop_front();
        }
        self.0.push_back(id);
    }
}

/// What the tasks of one connection share.
pub(super) struct Desk {
    pub(super) executor: Arc<dyn Executor>,
    pub(super) fetcher: Fetcher,
    lines: Lines,
    /// Where memory is shared with the coordinator.
    pub(super) berth: Arc<Berth>,
    pub(super) larder: Arc<Larder>,
    reports: mpsc::UnboundedSender<Vec<u8>>,
    held: Mutex<BTreeMap<AttemptId, Arc<Stage>>>,
    early: Mutex<Early>,
    leaving: AtomicBool,
    emptied: Notify,
}

impl Desk {
    pub(super) fn new(
        executor: Arc<dyn Executor>,
        fetcher: Fetcher,
        lines: Lines,
        larder: Arc<Larder>,
        reports: mpsc::UnboundedSender<Vec<u8>>,
    ) -> Self {
        Self {
            executor,
            fetcher,
            lines,
            berth: Arc::default(),
            larder,
            reports,
            held: Mutex::default(),
            early: Mutex::default(),
            leaving: AtomicBool::new(false),
            emptied: Notify::new(),
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<AttemptId, Arc<Stage>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attempts held, each with whether a thread has taken it.
    pub(super) fn holdings(&self) -> Vec<(AttemptId, bool)> {
        self.held().iter().map(|(id, stage)| (*id, stage.has_begun())).collect()
    }

    /// How many devices there are.
    pub(super) fn devices(&self) -> usize {
        self.lines.len()
    }

    /// An attempt is asked back: it is refused if no thread has taken it yet.
    pub(super) fn recall(&self, id: AttemptId) {
        let held = self.held();
        if let Some(stage) = held.get(&id) {
            return stage.recalled.notify_one();
        }
        // One that is unknown has ended, or comes later than its recall: streams overtake each
        // other. What comes looks here after it is held, which this cannot fall between.
        self.early().add(id);
    }

    fn early(&self) -> MutexGuard<'_, Early> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an attempt was asked back before it came.
    fn was_recalled(&self, id: AttemptId) -> bool {
        self.early().0.contains(&id)
    }

    /// From now on tasks are refused, also those that wait: other workers begin them sooner.
    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.held().values().for_each(|stage| stage.recalled.notify_one());
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
    stage: Arc<Stage>,
}

impl Hold {
    fn new(desk: &Arc<Desk>, id: AttemptId) -> Self {
        let stage = Arc::new(Stage::default());
        desk.held().insert(id, Arc::clone(&stage));
        Self { desk: Arc::clone(desk), id, stage }
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
    match perform(&hold, start, header, metas, &mut send, &mut recv).await {
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
    hold: &Hold,
    start: Start,
    header: TaskHeader,
    metas: Vec<TensorMeta>,
    send: &mut SendStream,
    recv: &mut RecvStream,
) -> Result<()> {
    let (desk, id) = (&hold.desk, hold.id);
    if desk.leaving.load(Ordering::SeqCst) || desk.was_recalled(id) {
        return refuse(send, id).await;
    }
    let TaskHeader { device, priority, model, shared, blob, .. } = header;
    let (inputs, room) = match blob {
        None => (start.tensors_from(&desk.berth, recv, id, metas, shared).await?, None),
        Some(blob) => {
            // Nothing may follow besides.
            start.tensors(recv, Vec::new()).await?;
            match unless_unwanted(hold, send, large_inputs(desk, blob, metas)).await? {
                Some(Ok(Fetched { inputs, room })) => (inputs, Some(room)),
                Some(Err(error)) => return failed(send, id, error).await,
                None => return refuse(send, id).await,
            }
        }
    };
    match unless_unwanted(hold, send, async { Ok(desk.fetcher.ensure(&model).await) }).await? {
        Some(Ok(())) => {}
        Some(Err(error)) => return failed(send, id, error).await,
        None => return refuse(send, id).await,
    }
    let line = usize::try_from(device).ok().and_then(|at| desk.lines.get(at));
    let Some(line) = line else {
        let count = desk.lines.len();
        return Err(wire::lost(format!("a task for device {device} of {count}")));
    };
    let job = Job { priority, model, inputs, stage: Arc::clone(&hold.stage), room };
    let Some(ran) = wait(line, job, send).await? else { return refuse(send, id).await };
    let described = ran.result.and_then(|outputs| {
        let described = describe(&outputs);
        let (metas, bytes) =
            described.map_err(|e| ExecError::failed(format!("outputs do not fit a frame: {e}")))?;
        Ok((outputs, metas, bytes))
    });
    let (verdict, outputs, bytes) = match described {
        Ok((outputs, metas, bytes)) => (Verdict::Done(metas), outputs, bytes),
        Err(error) => (Verdict::Error(error.shortened()), Vec::new(), 0),
    };
    let shared = desk.berth.lend(id, &outputs, bytes).await;
    let model_us = u64::try_from(ran.took.as_micros()).unwrap_or(u64::MAX);
    let batch = ran.batch;
    let header = OutcomeHeader { model_us, batch, shared, ..OutcomeHeader::of(id, verdict) };
    match shared {
        None => answer(send, header, &outputs, bytes).await,
        Some(_) => answer(send, header, &[], 0).await,
    }
}

async fn failed(send: &mut SendStream, id: AttemptId, error: ExecError) -> Result<()> {
    let verdict = Verdict::Error(error.shortened());
    answer(send, OutcomeHeader::of(id, verdict), &[], 0).await
}

async fn refuse(send: &mut SendStream, id: AttemptId) -> Result<()> {
    answer(send, OutcomeHeader::of(id, Verdict::Refused), &[], 0).await
}

/// Prepares an attempt, which may take long; `None` when it is asked back meanwhile, or its worker
/// leaves. What was fetched by then is gone on with by the next attempt.
async fn unless_unwanted<T>(
    hold: &Hold,
    send: &SendStream,
    preparing: impl Future<Output = Result<T>>,
) -> Result<Option<T>> {
    tokio::select! {
        // What is there already needs no decision.
        biased;
        ready = preparing => ready.map(Some),
        _ = send.stopped() => Err(wire::lost("cancelled")),
        () = hold.stage.recalled.notified() => Ok(None),
    }
}

/// Fetches inputs that are too long for a frame.
async fn large_inputs(
    desk: &Desk,
    blob: InputBlob,
    metas: Vec<TensorMeta>,
) -> Result<Result<Fetched, ExecError>> {
    let planned = plan(metas, usize::try_from(blob.bytes).map_err(wire::lost)?)?;
    let fetched = desk.larder.fetch(desk.fetcher.connection(), blob, planned).await;
    // Another worker, or another time, may have more luck.
    Ok(fetched.map_err(|error| ExecError::unavailable(error.to_string())))
}

/// Waits in the line until the task was run; `None` when it was asked back before that began.
async fn wait(line: &Arc<Line>, job: Job, send: &SendStream) -> Result<Option<Ran>> {
    let stage = Arc::clone(&job.stage);
    let mut ticket = line.enter(job);
    let mut wanted = true;
    loop {
        tokio::select! {
            ran = &mut ticket.ran => {
                return ran.map(Some).map_err(|_| wire::lost("the thread that ran it ended"));
            }
            () = stage.recalled.notified() => {
                if line.leave(&ticket) {
                    return Ok(None);
                }
            }
            _ = send.stopped(), if wanted => {
                if line.leave(&ticket) {
                    return Err(wire::lost("cancelled"));
                }
                // The model cannot be interrupted: the place is not given away while it runs.
                wanted = false;
            }
        }
    }
}

async fn answer(
    send: &mut SendStream,
    header: OutcomeHeader,
    outputs: &[NamedTensor],
    body_bytes: usize,
) -> Result<()> {
    let mut chunks = wire::chunks(Kind::Outcome, &header, outputs, body_bytes)?;
    send.write_all_chunks(&mut chunks).await.map_err(wire::lost)?;
    send.finish().map_err(wire::lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_recalls_are_kept_up_to_a_number() {
        let mut early = Early::default();
        let id = |seq| AttemptId { epoch: 1, seq, attempt: 1 };
        (0..5_000).for_each(|seq| early.add(id(seq)));
        assert_eq!(early.0.len(), EARLY_MAX);
        assert!(early.0.contains(&id(4_999)) && !early.0.contains(&id(0)));
    }
}
