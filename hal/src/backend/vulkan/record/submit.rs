//! The submissions of a queue: how they start, and what waits for their end.

use super::{Flight, Recorder, Recording};
use crate::backend::vulkan::event::{Keep, Timeline};
use crate::backend::vulkan::hazards::{Access, touches};
use crate::backend::vulkan::progress::Progress;
use crate::backend::vulkan::slot::Slot;
use crate::error::Result;
use ash::vk;
use std::sync::Arc;

/// Submissions of a queue in flight; with more the host waits for the oldest.
const FLIGHTS_MAX: usize = 16;

impl Recorder {
    /// Makes the next submission wait for a value of another queue's timeline.
    pub(in crate::backend::vulkan) fn wait_for(
        &mut self,
        timeline: &Arc<Timeline>,
        value: u64,
    ) -> Result<()> {
        // A queue is in order with itself.
        if Arc::ptr_eq(timeline, &self.timeline) {
            return Ok(());
        }
        self.flush()?;
        self.waits.push((Arc::clone(timeline), value));
        Ok(())
    }

    /// Submits what is recorded.
    pub(in crate::backend::vulkan) fn flush(&mut self) -> Result<()> {
        if self.recording.is_none() && self.waits.is_empty() {
            return Ok(());
        }
        let mut recording = self.take_recording()?;
        let waits = std::mem::take(&mut self.waits);
        let sent = recording.slot.end().and_then(|()| self.send(&recording.slot, &waits));
        if let Err(error) = sent {
            self.failed = Some(error.clone());
            return Err(error);
        }
        self.submitted += 1;
        let (value, waited) = (self.submitted, !waits.is_empty());
        let Recording { slot, hazards, mut keep, commands, .. } = recording;
        keep.extend(waits.into_iter().map(|(timeline, _)| timeline as Keep));
        self.timeline.keep(value, keep);
        if let Some(staging) = &mut self.staging {
            staging.ring.mark(value);
        }
        self.flights.push_back(Flight { value, slot, hazards, waits: waited, commands });
        if self.flights.len() > FLIGHTS_MAX {
            let oldest = self.flights.front().map_or(value, |flight| flight.value);
            self.wait(oldest)?;
        }
        Ok(())
    }

    /// Gives a recording to the driver.
    fn send(&self, slot: &Slot, waits: &[(Arc<Timeline>, u64)]) -> Result<()> {
        let (semaphores, values): (Vec<_>, Vec<_>) =
            waits.iter().map(|(timeline, value)| (timeline.semaphore, *value)).unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let (signals, value) = ([self.timeline.semaphore], [self.submitted + 1]);
        let commands = [slot.commands];
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&value);
        let info = [vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(&commands)
            .signal_semaphores(&signals)
            .push_next(&mut values)];
        let lane = self.shared.lane(self.lane);
        // SAFETY: the queue is locked, the structures live through the call, and what the commands
        // need is kept until they are done.
        unsafe { self.shared.device.queue_submit(*lane, &info, vk::Fence::null()) }
            .map_err(self.shared.failed("vkQueueSubmit"))
    }

    /// Waits for a submission.
    pub(in crate::backend::vulkan) fn wait(&mut self, value: u64) -> Result<()> {
        self.timeline.wait(value)?;
        self.reap(value);
        Ok(())
    }

    /// Takes back what the submissions up to `done` used.
    fn reap(&mut self, done: u64) {
        while let Some(flight) = self.flights.pop_front_if(|flight| flight.value <= done) {
            if let Some(took) = flight.slot.took() {
                self.pace.observe(flight.commands, took);
            }
            self.idle.push((flight.slot, flight.hazards));
        }
        if let Some(staging) = &mut self.staging {
            staging.ring.release(done);
        }
        self.timeline.release(done);
    }

    /// Whether a command that is not done conflicts with an access by the host.
    pub(in crate::backend::vulkan) fn is_pending(&mut self, access: &Access) -> Result<bool> {
        let done = self.timeline.done()?;
        self.reap(done);
        let recorded = self.recording.as_ref().map_or(&[][..], |it| it.hazards.all());
        let in_flight = |it: &Flight| it.waits || touches(it.hazards.all(), access);
        Ok(!self.waits.is_empty()
            || touches(recorded, access)
            || self.flights.iter().any(in_flight))
    }

    /// Submits, and waits for, every command that conflicts with an access by the host.
    pub(in crate::backend::vulkan) fn settle(&mut self, access: &Access) -> Result<()> {
        if !self.is_pending(access)? {
            return Ok(());
        }
        self.flush()?;
        let conflicting = |it: &&Flight| it.waits || touches(it.hazards.all(), access);
        match self.flights.iter().rev().find(conflicting).map(|flight| flight.value) {
            Some(value) => self.wait(value),
            None => Ok(()),
        }
    }

    /// Submits, and waits for everything. Where the driver refuses the last commands the earlier ones
    /// still run, so it waits for them all the same.
    pub(in crate::backend::vulkan) fn finish(&mut self) -> Result<()> {
        let flushed = self.flush();
        self.shared.life.check()?;
        let waited = self.wait(self.submitted);
        flushed.and(waited)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Commands may still need the slots. Where waiting fails the device is lost, and then either
        // nothing runs any more or nothing is destroyed.
        if self.check().is_ok() {
            let _ = self.finish();
        } else if self.shared.life.check().is_ok() {
            let _ = self.wait(self.submitted);
        }
        if self.shared.life.check().is_err() {
            // Nobody waits for these submissions again, and timelines of queues that waited for each
            // other keep each other.
            self.timeline.release(u64::MAX);
        }
    }
}
