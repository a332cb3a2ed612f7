//! One direction between two devices: a thread that reads chunks from one into pinned host memory
//! and writes them to the other, the next chunk read while the last is written. Within one device
//! the device copies by itself.

use super::arrival::Arrival;
use super::jobs::{Shared, Step};
use super::place::Place;
use super::schedule::{Chunk, Schedule};
use super::stats::LinkStats;
use crate::error::{Error, Result};
use lgp_hal::{Device, Event, Pinned, Queue, Transfer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A link and its thread. Dropping it cancels the transfers that are left and waits for the thread.
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
        let shared = Arc::new(Shared::new(schedule, stats));
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
        let (ticket, slot) = self.shared.send(from, to, bytes, priority);
        Arrival::new(Arc::clone(&self.shared), ticket, slot)
    }

    pub(super) fn stats(&self) -> LinkStats {
        self.shared.stats()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
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

/// The last command of a chunk, which has landed when that is done.
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
    /// Time of work that is not yet counted for a chunk.
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
                        // One chunk is written while the next is read.
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
        // After a panic, too, every waiting caller gets an outcome.
        self.flights.clear();
        self.shared.abandon();
    }
}
