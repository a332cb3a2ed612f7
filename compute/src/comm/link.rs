//! One direction between two devices: a thread that reads chunks from one into pinned host memory
//! and writes them to the other, the next chunk read while the last is written. Within one device
//! the device copies by itself.

use super::arrival::{Arrival, Slot};
use super::schedule::{Chunk, Next, Schedule, Ticket};
use super::transfers::Place;
use crate::error::{Error, Result};
use crate::stop::Stopped;
use lgp_hal::{Device, Event, Pinned, Queue, Transfer};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What one direction between two devices has done, and what waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Number of the device that the bytes come from.
    pub from: usize,
    /// Number of the device that they go to.
    pub to: usize,
    /// Transfers whose bytes have all arrived.
    pub arrived: u64,
    /// Transfers that a device's failure ended.
    pub failed: u64,
    /// Transfers that were taken back.
    pub cancelled: u64,
    /// Bytes that have arrived, those of unfinished transfers too.
    pub bytes: u64,
    /// Chunks in which they came.
    pub chunks: u64,
    /// Time in which a chunk was on its way.
    pub busy: Duration,
    /// Transfers that have not ended.
    pub queued: usize,
    /// Bytes of them that have not been sent.
    pub queued_bytes: usize,
}

impl LinkStats {
    /// Bytes in a second of the time in which any were on their way; 0 before the first.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        let seconds = self.busy.as_secs_f64();
        if seconds > 0. { self.bytes as f64 / seconds } else { 0. }
    }
}

/// A transfer that has not ended.
#[derive(Debug)]
struct Job {
    from: Place,
    to: Place,
    missing: usize,
    /// Chunks that are on their way.
    flying: usize,
    /// Why it ends once those have landed.
    end: Option<Error>,
    slot: Arc<Slot>,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    jobs: HashMap<Ticket, Job>,
    closed: bool,
    stats: LinkStats,
}

/// What the link's thread shares with those who send.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

/// A link and its thread; dropped, it refuses what is left and waits for the thread.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Starts the thread of the link between two devices of these numbers.
    ///
    /// # Errors
    /// A device that gives no queue; a system that gives no thread.
    pub(super) fn new(
        (from, source): (usize, &Arc<dyn Device>),
        (to, target): (usize, &Arc<dyn Device>),
        chunk_bytes: usize,
        schedule: Schedule,
    ) -> Result<Self> {
        let stats = LinkStats { from, to, ..LinkStats::default() };
        let state = State { schedule, jobs: HashMap::new(), closed: false, stats };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new() });
        let way = match from == to {
            true => Way::Direct(source.queue()?),
            false => Way::Staged(Staged {
                device: Arc::clone(source),
                source: source.queue()?,
                target: target.queue()?,
                chunk_bytes,
                blocks: Vec::new(),
            }),
        };
        let worker = Worker {
            shared: Arc::clone(&shared),
            way,
            flights: VecDeque::new(),
            busy: Duration::ZERO,
        };
        let thread = std::thread::Builder::new()
            .name(format!("transfers {from} to {to}"))
            .spawn(move || worker.run())
            .map_err(|error| Error::invalid(format!("no thread: {error}")).of("Transfers"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Queues a transfer of `bytes` bytes that lie in both buffers.
    pub(super) fn send(&self, from: Place, to: Place, bytes: usize, priority: u8) -> Arrival {
        let mut state = self.shared.lock();
        let ticket = state.schedule.push(bytes, priority);
        let slot = Arc::new(Slot::default());
        let job = Job { from, to, missing: bytes, flying: 0, end: None, slot: Arc::clone(&slot) };
        state.jobs.insert(ticket, job);
        match state.closed {
            true => state.end(ticket, Stopped::Cancelled.into()),
            false => state.settle(ticket),
        }
        drop(state);
        self.shared.work.notify_one();
        Arrival::new(Arc::clone(&self.shared), ticket, slot)
    }

    pub(super) fn stats(&self) -> LinkStats {
        let state = self.shared.lock();
        let (queued, queued_bytes) = (state.jobs.len(), state.schedule.waiting_bytes());
        LinkStats { queued, queued_bytes, ..state.stats }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.end_all(|_| Stopped::Cancelled.into());
        drop(state);
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}

impl State {
    /// Ends a transfer, as soon as none of its chunks is on its way.
    fn end(&mut self, ticket: Ticket, why: Error) {
        self.schedule.cancel(ticket);
        if let Some(job) = self.jobs.get_mut(&ticket) {
            job.end.get_or_insert(why);
        }
        self.settle(ticket);
    }

    fn end_all(&mut self, why: impl Fn(&Job) -> Error) {
        let jobs: Vec<(Ticket, Error)> = self.jobs.iter().map(|(t, job)| (*t, why(job))).collect();
        for (ticket, why) in jobs {
            self.end(ticket, why);
        }
    }

    /// Tells the outcome of a transfer that has one, and forgets it.
    fn settle(&mut self, ticket: Ticket) {
        let is_over = |job: &Job| job.flying == 0 && (job.missing == 0 || job.end.is_some());
        if !self.jobs.get(&ticket).is_some_and(is_over) {
            return;
        }
        let Some(job) = self.jobs.remove(&ticket) else { return };
        let outcome = match job.end {
            Some(why) if job.missing > 0 => Err(why),
            _ => Ok(()),
        };
        match &outcome {
            Ok(()) => self.stats.arrived += 1,
            Err(Error::Stopped(_)) => self.stats.cancelled += 1,
            Err(_) => self.stats.failed += 1,
        }
        job.slot.set(outcome);
    }
}

/// What the thread does next.
enum Step {
    Start(Chunk, Place, Place),
    Land,
    End,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Consistent between any two statements that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back what a transfer has not sent.
    pub(super) fn cancel(&self, ticket: Ticket) {
        self.lock().end(ticket, Stopped::Cancelled.into());
    }

    /// Waits for something to do. What is on its way lands before anything is waited for.
    fn step(&self, flying: bool) -> Step {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let next = state.schedule.next(now);
            if let Next::Send(chunk) = next {
                let Some(job) = state.jobs.get_mut(&chunk.ticket) else { continue };
                job.flying += 1;
                return Step::Start(chunk, job.from.clone(), job.to.clone());
            }
            if flying {
                return Step::Land;
            }
            if state.closed {
                return Step::End;
            }
            state = match next {
                Next::Wait(moment) => {
                    let waited = self.work.wait_timeout(state, moment - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Notes how the way of a chunk ended, and the time since the last one was noted. A lost
    /// device ends all that wait for this link.
    fn landed(&self, chunk: Chunk, outcome: lgp_hal::Result<()>, busy: Duration) {
        let mut state = self.lock();
        state.stats.busy += busy;
        let Some(job) = state.jobs.get_mut(&chunk.ticket) else { return };
        job.flying -= 1;
        match outcome {
            Ok(()) => {
                job.missing -= chunk.bytes;
                state.stats.bytes += chunk.bytes as u64;
                state.stats.chunks += 1;
                state.settle(chunk.ticket);
            }
            Err(source) => {
                let why = job.failure(&source);
                state.end(chunk.ticket, why);
                if matches!(source, lgp_hal::Error::DeviceLost { .. }) {
                    state.end_all(|job| job.failure(&source));
                }
            }
        }
    }
}

impl Job {
    fn failure(&self, source: &lgp_hal::Error) -> Error {
        let (from, to) = (self.from.device, self.to.device);
        Error::Transfer { from, to, missing_bytes: self.missing, source: Box::new(source.clone()) }
    }
}

/// How bytes get from one device to the other.
enum Way {
    Direct(Box<dyn Queue>),
    Staged(Staged),
}

struct Staged {
    device: Arc<dyn Device>,
    source: Box<dyn Queue>,
    target: Box<dyn Queue>,
    chunk_bytes: usize,
    /// Blocks that nothing uses now.
    blocks: Vec<Pinned>,
}

/// What is waited for until a chunk has landed.
enum Flight {
    Copy(Arc<dyn Event>),
    Write(Transfer),
}

impl Staged {
    /// Reads the chunk, and starts writing it.
    fn start(&mut self, chunk: &Chunk, from: &Place, to: &Place) -> lgp_hal::Result<Flight> {
        let block = match self.blocks.pop() {
            Some(block) => block,
            None => self.device.pinned(self.chunk_bytes)?,
        };
        let offset = from.offset + chunk.offset;
        let read = self.source.read_async(&*from.buffer, offset, block, chunk.bytes)?;
        let block = read.wait()?;
        let offset = to.offset + chunk.offset;
        let write = self.target.write_async(&*to.buffer, offset, block, chunk.bytes)?;
        Ok(Flight::Write(write))
    }
}

impl Way {
    fn start(&mut self, chunk: &Chunk, from: &Place, to: &Place) -> lgp_hal::Result<Flight> {
        let (source, target) = match self {
            Self::Direct(queue) => (queue, None),
            Self::Staged(staged) => (&mut staged.source, Some(&mut staged.target)),
        };
        if chunk.offset == 0 {
            from.ready.as_deref().map_or(Ok(()), |event| source.wait_for(event))?;
            to.ready.as_deref().map_or(Ok(()), |event| target.unwrap_or(source).wait_for(event))?;
        }
        match self {
            Self::Direct(queue) => {
                let (start, end) = (from.offset + chunk.offset, to.offset + chunk.offset);
                queue.copy(&*from.buffer, start, &*to.buffer, end, chunk.bytes)?;
                Ok(Flight::Copy(queue.record()?))
            }
            Self::Staged(staged) => staged.start(chunk, from, to),
        }
    }

    fn land(&mut self, flight: Flight) -> lgp_hal::Result<()> {
        match (self, flight) {
            (Self::Staged(staged), Flight::Write(write)) => staged.blocks.push(write.wait()?),
            (_, Flight::Write(write)) => drop(write.wait()?),
            (_, Flight::Copy(event)) => event.wait()?,
        }
        Ok(())
    }
}

/// The link's thread.
struct Worker {
    shared: Arc<Shared>,
    way: Way,
    flights: VecDeque<(Chunk, Flight)>,
    /// Time of work that no chunk has been charged with.
    busy: Duration,
}

impl Worker {
    fn run(mut self) {
        loop {
            let step = self.shared.step(!self.flights.is_empty());
            let begin = Instant::now();
            match step {
                Step::Start(chunk, from, to) => match self.way.start(&chunk, &from, &to) {
                    Ok(flight) => {
                        self.busy += begin.elapsed();
                        self.flights.push_back((chunk, flight));
                        // One is written while the next is read.
                        self.land(1);
                    }
                    Err(error) => self.shared.landed(chunk, Err(error), begin.elapsed()),
                },
                Step::Land => self.land(0),
                Step::End => return,
            }
        }
    }

    /// Waits for the oldest chunks, until `left` are on their way.
    fn land(&mut self, left: usize) {
        while self.flights.len() > left
            && let Some((chunk, flight)) = self.flights.pop_front()
        {
            let begin = Instant::now();
            let outcome = self.way.land(flight);
            let busy = std::mem::take(&mut self.busy) + begin.elapsed();
            self.shared.landed(chunk, outcome, busy);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // What panics leaves nobody waiting.
        self.flights.clear();
        let mut state = self.shared.lock();
        state.closed = true;
        state.jobs.values_mut().for_each(|job| job.flying = 0);
        state.end_all(|_| Stopped::Cancelled.into());
    }
}
