//! Points of a queue: values of its timeline semaphore.

use super::progress::Progress;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::event::Event;
use ash::vk;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest single wait, after which the device's life is looked at.
const STEP: Duration = Duration::from_secs(1);

/// Something that a submission needs until it is done.
pub(super) type Keep = Arc<dyn Any + Send + Sync>;

/// The timeline of a queue: the number of the last submission that is done.
pub(super) struct Timeline {
    pub(super) shared: Arc<Shared>,
    pub(super) semaphore: vk::Semaphore,
    /// What each submission in flight needs.
    kept: Mutex<VecDeque<(u64, Vec<Keep>)>>,
}

impl Timeline {
    /// A timeline at 0.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Arc<Self>> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: the device has timeline semaphores; the structures live through the call.
        let semaphore = unsafe { shared.device.create_semaphore(&info, None) }
            .map_err(shared.failed("vkCreateSemaphore"))?;
        let own = Self { shared: Arc::clone(shared), semaphore, kept: Mutex::default() };
        let own = Arc::new(own);
        shared.timelines.add(Arc::downgrade(&own) as _);
        Ok(own)
    }

    /// Waits for a submission. A device that finishes none of any queue for long is lost.
    pub(super) fn wait(&self, value: u64) -> Result<()> {
        let (semaphores, values) = ([self.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        let (mut seen, mut since) = (self.shared.timelines.progress()?, Instant::now());
        let step = STEP.min(self.shared.patience);
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        loop {
            self.shared.life.check()?;
            // SAFETY: the semaphore is a timeline of the device; the structures live through the
            // call.
            match unsafe { self.shared.device.wait_semaphores(&info, step) } {
                Ok(()) => break,
                Err(vk::Result::TIMEOUT) => {}
                Err(error) => return Err(self.shared.failed("vkWaitSemaphores")(error)),
            }
            // The submission may be behind those of other queues.
            let progress = self.shared.timelines.progress()?;
            if progress != seen {
                (seen, since) = (progress, Instant::now());
            } else if since.elapsed() > self.shared.patience {
                return Err(self.shared.hung("vkWaitSemaphores"));
            }
        }
        self.release(value);
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(u64, Vec<Keep>)>> {
        // A panic leaves the list whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what submission `value` needs.
    pub(super) fn keep(&self, value: u64, needs: Vec<Keep>) {
        self.kept().push_back((value, needs));
    }

    /// Drops what the submissions up to `value` needed.
    pub(super) fn release(&self, value: u64) {
        let mut kept = self.kept();
        let count = kept.iter().take_while(|(of, _)| *of <= value).count();
        let done: Vec<_> = kept.drain(..count).collect();
        drop(kept);
        // Dropping memory takes other locks.
        drop(done);
    }
}

impl Progress for Timeline {
    /// The number of the last submission that is done.
    fn done(&self) -> Result<u64> {
        // SAFETY: the semaphore is a timeline of the device.
        unsafe { self.shared.device.get_semaphore_counter_value(self.semaphore) }
            .map_err(self.shared.failed("vkGetSemaphoreCounterValue"))
    }
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline").field("semaphore", &self.semaphore).finish_non_exhaustive()
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        if self.shared.may_free() {
            // SAFETY: the queue waited for its last submission, and submissions that wait for this
            // semaphore keep it.
            unsafe { self.shared.device.destroy_semaphore(self.semaphore, None) };
        }
    }
}

/// The device's time at an event of a timed queue.
#[derive(Debug)]
pub(super) struct Stamp {
    shared: Arc<Shared>,
    pub(super) pool: vk::QueryPool,
}

impl Stamp {
    /// A stamp without a time.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self> {
        Ok(Self { shared: Arc::clone(shared), pool: stamps(shared, 1)? })
    }

    /// The device's clock in its own units, once the event is done.
    fn ticks(&self) -> Result<u64> {
        let mut ticks = [0u64];
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: the pool has one query, whose result has 64 bits.
        unsafe { self.shared.device.get_query_pool_results(self.pool, 0, &mut ticks, flags) }
            .map_err(self.shared.failed("vkGetQueryPoolResults"))?;
        Ok(ticks[0])
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        if self.shared.may_free() {
            // SAFETY: the submission that writes the stamp keeps it until it is done.
            unsafe { self.shared.device.destroy_query_pool(self.pool, None) };
        }
    }
}

/// Makes a pool of time stamps.
pub(super) fn stamps(shared: &Shared, count: u32) -> Result<vk::QueryPool> {
    let info =
        vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(count);
    // SAFETY: the structure lives through the call.
    unsafe { shared.device.create_query_pool(&info, None) }
        .map_err(shared.failed("vkCreateQueryPool"))
}

/// The time between two stamps; 0 if the second is the earlier.
pub(super) fn between(shared: &Shared, from: u64, to: u64) -> Duration {
    elapsed(from, to, shared.facts.stamp_bits, shared.facts.stamp_ns)
}

/// The time between two values of a clock of so many bits, which wraps around.
fn elapsed(from: u64, to: u64, bits: u32, unit_ns: f32) -> Duration {
    let mask = 1u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
    let ticks = to.wrapping_sub(from) & mask;
    if ticks > mask / 2 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(ticks as f64 * f64::from(unit_ns) * 1e-9).unwrap_or_default()
}

/// A point of a queue.
#[derive(Debug)]
pub(super) struct VkEvent {
    pub(super) timeline: Arc<Timeline>,
    pub(super) value: u64,
    pub(super) stamp: Option<Arc<Stamp>>,
}

impl VkEvent {
    /// The Vulkan event behind `event`, if it is of this opened device.
    pub(super) fn of<'a>(event: &'a dyn Event, shared: &Arc<Shared>) -> Result<&'a Self> {
        event
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.timeline.shared, shared))
            .ok_or(Error::Foreign { what: "event", device: shared.id })
    }

    fn ticks(&self) -> Result<Option<u64>> {
        self.wait()?;
        self.stamp.as_ref().map(|stamp| stamp.ticks()).transpose()
    }
}

impl Event for VkEvent {
    fn is_done(&self) -> Result<bool> {
        self.timeline.shared.life.check()?;
        let done = self.timeline.done()?;
        self.timeline.release(done);
        Ok(done >= self.value)
    }

    fn wait(&self) -> Result<()> {
        self.timeline.shared.life.check()?;
        self.timeline.wait(self.value)
    }

    fn since(&self, earlier: &dyn Event) -> Result<Option<Duration>> {
        let shared = &self.timeline.shared;
        let start = Self::of(earlier, shared)?.ticks()?;
        let end = self.ticks()?;
        Ok(start.zip(end).map(|(start, end)| between(shared, start, end)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_wrap_around_and_never_run_backwards() {
        for (from, to, bits, unit, ns) in [
            (100, 350, 64, 1.0, 250),
            (100, 350, 36, 40.0, 10_000),
            (350, 100, 64, 1.0, 0),
            ((1 << 36) - 10, 15, 36, 1.0, 25),
            // Bits above the valid ones mean nothing.
            ((7 << 40) | 5, (3 << 40) | 6, 36, 1.0, 1),
            (u64::MAX - 4, 5, 64, 1.0, 10),
        ] {
            assert_eq!(elapsed(from, to, bits, unit), Duration::from_nanos(ns), "{from} {to}");
        }
    }
}
