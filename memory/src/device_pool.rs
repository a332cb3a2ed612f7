//! Memory of a device, handed out in blocks of a few large buffers.

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
/// Segments are buffers of the device; a block is a slice of one, and goes back when it is
/// dropped. Blocks may outlive the pool.
///
/// **Order.** A block that is dropped may be handed out again at once, while commands that use it
/// are still queued. That is right as long as its next user queues to the same queue, which is in
/// order. Who uses several queues finishes the old one first.
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
    /// A pool of `device`. Nothing is taken of it yet.
    ///
    /// # Errors
    /// [`crate::Error::SegmentLimit`] for limits that contradict themselves.
    pub fn new(device: Arc<dyn Device>, limits: SegmentLimits) -> Result<Self> {
        let segments = Segments::new(limits, DeviceSource(device))?;
        let state = State { segments, relocatable: HashMap::new(), log: None };
        Ok(Self(Arc::new(Shared(Mutex::new(state)))))
    }

    /// A block of `bytes` bytes of undefined content. `owner` is a short label of who holds it,
    /// such as `weights`.
    ///
    /// # Errors
    /// [`crate::Error::RangeTooLarge`] where no buffer of the device can hold it, [`crate::Error::Shortage`]
    /// with who holds what where there is no room now, [`crate::Error::Device`] where the device refuses
    /// a slice. The pool is as usable after an error as before.
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

    /// The limits, rounded as they are kept.
    #[must_use]
    pub fn limits(&self) -> SegmentLimits {
        self.0.lock().segments.limits()
    }

    /// What the pool has done so far.
    #[must_use]
    pub fn stats(&self) -> SegmentStats {
        self.0.lock().segments.stats()
    }

    /// Who holds what, the most first.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        self.0.lock().segments.holders()
    }

    /// How things stand for who got no `bytes` bytes as `owner`, though the pool had them: drivers
    /// find out at the first use that memory which they promised is not there.
    #[must_use]
    pub fn shortage(&self, bytes: usize, owner: &str) -> Shortage {
        self.0.lock().segments.shortage(bytes, owner)
    }

    /// Gives every segment back to the device in which nothing is taken.
    pub fn release_idle(&self) {
        self.0.lock().segments.release_idle();
    }

    /// Starts a log of the last `capacity` events, in place of one that may be running.
    pub fn start_log(&self, capacity: usize) {
        let mut state = self.0.lock();
        let mut log = MemoryLog::new(state.segments.limits(), capacity);
        for (id, place, owner) in state.segments.taken() {
            let (range, owner) = (id.serial(), Arc::clone(owner));
            log.fold(MemoryEvent::Taken { range, bytes: place.bytes, owner });
        }
        state.log = Some((Instant::now(), log));
    }

    /// Notes in the log that a phase begins: loading, a run.
    pub fn phase(&self, name: &str) {
        self.0.lock().note(MemoryEvent::Phase { name: name.into() });
    }

    /// Notes in the log what `pool` has of the host's RAM, and what the whole process has where
    /// the system tells it. Without a log it does nothing.
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

    /// The log as it is now, if one was started.
    #[must_use]
    pub fn log(&self) -> Option<MemoryLog> {
        self.0.lock().log.as_ref().map(|(_, log)| log.clone())
    }

    /// Moves relocatable blocks that are not pinned so that less lies free in holes, and waits
    /// until that is done. To be called at a safe point: commands in other queues that use
    /// relocatable blocks must have finished.
    ///
    /// # Errors
    /// [`crate::Error::Device`] when a copy fails. What was moved before stays moved, and no content is
    /// lost.
    pub fn defragment(&self, queue: &mut dyn Queue) -> Result<Defragmented> {
        // Blocks that are dropped meanwhile must not take the lock while it is held here, so
        // they are kept until it is free again.
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
        // The places that are free now may be taken by others, which use other queues.
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
