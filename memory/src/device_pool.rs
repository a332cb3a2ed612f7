//! Device memory, handed out in blocks of a few large buffers.

mod block;
#[cfg(test)]
mod tests;

pub use block::{DeviceBlock, PinnedBlock, RelocatableBlock};

use crate::error::Result;
use crate::log::{MemoryEvent, MemoryLog};
use crate::pool::Pool;
use crate::segments::{
    Defragmented, Holder, RangeId, SegmentLimits, SegmentSource, SegmentStats, Segments, Shortage,
};
use block::{Lease, Movable};
use lgp_hal::{Buffer, Caps, Device, Queue};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use std::time::Instant;

/// Memory of one device. Clones share it, and threads may use them at once.
///
/// Segments are buffers of the device. A block is a slice of one, and returns to it when it is
/// dropped. Blocks may outlive the pool.
///
/// **Order.** A dropped block may be handed out again at once, while commands that use it are still
/// queued. That is correct as long as its next user queues to the same queue, which is in order. A
/// user of several queues must finish the old one first.
///
/// ```
/// use lgp_memory::{DevicePool, SegmentLimits};
/// let device = lgp_hal::open(lgp_hal::DeviceId::CPU)?;
/// let limits = SegmentLimits::of_device(device.caps(), 64 << 20);
/// let pool = DevicePool::new(device.clone(), limits)?;
/// let block = pool.allocate(1000, "activations")?;
/// device.queue()?.write(block.buffer(), 0, &[1; 1000])?;
/// drop(block);
/// assert_eq!(pool.stats().in_use_bytes, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DevicePool(Arc<Shared>);

#[derive(Debug)]
struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    segments: Segments<DeviceSource>,
    relocatable: HashMap<RangeId, Weak<RwLock<Movable>>>,
    log: Option<(Instant, MemoryLog)>,
}

/// A device as a source of segments.
#[derive(Debug)]
struct DeviceSource(Arc<dyn Device>);

impl SegmentSource for DeviceSource {
    type Segment = Arc<dyn Buffer>;

    fn segment(&mut self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        Ok(self.0.allocate(bytes)?)
    }
}

impl SegmentLimits {
    /// Limits for a device: its largest allocation, and its alignment, at least 256 bytes.
    #[must_use]
    pub fn of_device(caps: &Caps, budget_bytes: usize) -> Self {
        let limit = caps.allocation_bytes_max.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let alignment = usize::try_from(caps.alignment_bytes).unwrap_or(usize::MAX);
        let alignment_bytes = alignment.max(256).checked_next_power_of_two().unwrap_or(usize::MAX);
        Self { alignment_bytes, ..Self::new(budget_bytes, limit) }
    }
}

impl DevicePool {
    /// A pool of `device`. It takes no memory yet.
    ///
    /// # Errors
    /// [`crate::Error::SegmentLimit`] for limits that contradict themselves.
    pub fn new(device: Arc<dyn Device>, limits: SegmentLimits) -> Result<Self> {
        let segments = Segments::new(limits, DeviceSource(device))?;
        let state = State { segments, relocatable: HashMap::new(), log: None };
        Ok(Self(Arc::new(Shared(Mutex::new(state)))))
    }

    /// A block of `bytes` bytes of undefined content. `owner` is a short label of the holder, such
    /// as `weights`.
    ///
    /// # Errors
    /// [`crate::Error::RangeTooLarge`] if no buffer of the device can hold it,
    /// [`crate::Error::Shortage`] with a list of holders if there is no room now,
    /// [`crate::Error::Device`] if the device is lost or refuses a slice. The pool stays usable after an
    /// error.
    pub fn allocate(&self, bytes: usize, owner: &str) -> Result<DeviceBlock> {
        let lease = self.lease(bytes, owner)?;
        DeviceBlock::new(lease)
    }

    fn lease(&self, bytes: usize, owner: &str) -> Result<Lease> {
        let mut state = self.0.lock();
        let outcome = state.segments.allocate(bytes, owner);
        if state.log.is_some() {
            let owner = owner.into();
            state.note(match &outcome {
                Ok(id) => MemoryEvent::Taken { range: id.serial(), bytes, owner },
                Err(_) => MemoryEvent::Failed { bytes, owner },
            });
        }
        outcome.map(|id| Lease { pool: Arc::clone(&self.0), id, bytes })
    }

    /// The limits, after rounding.
    #[must_use]
    pub fn limits(&self) -> SegmentLimits {
        self.0.lock().segments.limits()
    }

    /// Counts since the pool was made.
    #[must_use]
    pub fn stats(&self) -> SegmentStats {
        self.0.lock().segments.stats()
    }

    /// All holders with their memory, the largest first.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        self.0.lock().segments.holders()
    }

    /// The report for an owner whose `bytes` bytes failed although the pool had them: some drivers
    /// find out only at the first use that promised memory does not exist.
    #[must_use]
    pub fn shortage(&self, bytes: usize, owner: &str) -> Shortage {
        self.0.lock().segments.shortage(bytes, owner)
    }

    /// Returns every segment without live blocks to the device.
    pub fn release_idle(&self) {
        self.0.lock().segments.release_idle();
    }

    /// Starts a log of the last `capacity` events, and replaces a running one.
    pub fn start_log(&self, capacity: usize) {
        let mut state = self.0.lock();
        let mut log = MemoryLog::new(state.segments.limits(), capacity);
        for (id, place, owner) in state.segments.taken() {
            let (range, owner) = (id.serial(), Arc::clone(owner));
            log.fold(MemoryEvent::Taken { range, bytes: place.bytes, owner });
        }
        state.log = Some((Instant::now(), log));
    }

    /// Logs the start of a phase, such as loading or a run.
    pub fn phase(&self, name: &str) {
        self.0.lock().note(MemoryEvent::Phase { name: name.into() });
    }

    /// Logs how much of the host's RAM `pool` holds, and the whole process if the system reports
    /// that. Without a log it does nothing.
    pub fn note_host(&self, pool: &Pool) {
        if self.0.lock().log.is_none() {
            return;
        }
        let stats = pool.stats();
        let bytes = stats.in_use_bytes + stats.idle_bytes;
        let process = resident_bytes();
        let mut state = self.0.lock();
        state.note(MemoryEvent::Host { owner: "host pool".into(), bytes });
        if let Some(bytes) = process {
            state.note(MemoryEvent::Host { owner: "process".into(), bytes });
        }
    }

    /// A copy of the present log, if one was started.
    #[must_use]
    pub fn log(&self) -> Option<MemoryLog> {
        self.0.lock().log.as_ref().map(|(_, log)| log.clone())
    }

    /// Moves relocatable blocks that are not pinned, so that fewer free bytes lie in holes, and
    /// waits until that is done. Call it at a safe point: commands in other queues that use
    /// relocatable blocks must have finished.
    ///
    /// # Errors
    /// [`crate::Error::Device`] when a copy fails. Completed moves stay, and no content is lost.
    pub fn defragment(&self, queue: &mut dyn Queue) -> Result<Defragmented> {
        // A block that is dropped takes the lock, which is held here. So all blocks are kept alive
        // until the lock is released.
        let blocks: Vec<(RangeId, Arc<RwLock<Movable>>)> = {
            let state = self.0.lock();
            let alive = state.relocatable.iter();
            alive.filter_map(|(&id, block)| Some((id, block.upgrade()?))).collect()
        };
        let mut free = HashMap::new();
        for (id, block) in &blocks {
            match block.try_write() {
                Ok(block) => free.insert(*id, block),
                Err(TryLockError::Poisoned(poisoned)) => free.insert(*id, poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
        }
        let mut state = self.0.lock();
        let outcome = state.segments.defragment(
            |id| free.contains_key(&id),
            |copy| {
                let (from, to) = (&**copy.from, &**copy.to);
                Ok(queue.copy(from, copy.from_offset, to, copy.to_offset, copy.bytes)?)
            },
        );
        for block in free.values_mut() {
            block.forget_place();
        }
        // Other users, with other queues, may now take the freed places.
        let finished = queue.finish();
        drop(state);
        let done = outcome?;
        finished?;
        Ok(done)
    }
}

/// Resident memory of this process, as Linux tells it.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: usize = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self, event: MemoryEvent) {
        if let Some((begin, log)) = &mut self.log {
            log.push(begin.elapsed(), event);
        }
    }
}
