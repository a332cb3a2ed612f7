//! The commands of a queue before and after their submission.

use super::event::{Keep, Timeline};
use super::hazards::{Access, Hazards, touches};
use super::memory::Block;
use super::pace::Pace;
use super::pool::Home;
use super::ring::Ring;
use super::shared::Shared;
use super::slot::Slot;
use crate::error::{Error, Result};
use ash::vk;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that the transfers of one submission move at most.
const BYTES_MAX: u64 = 256 << 20;
/// Submissions of a queue in flight; with more the host waits for the oldest.
const FLIGHTS_MAX: usize = 16;
/// A queue's staging memory, in which the host writes what the device copies.
const STAGING_BYTES: usize = 8 << 20;
/// The largest part of a transfer through staging memory: a transfer of several parts keeps host
/// and device at work at once.
pub(super) const PART_BYTES: usize = 2 << 20;

/// Commands that are not submitted.
struct Recording {
    slot: Slot,
    hazards: Hazards,
    keep: Vec<Keep>,
    commands: u32,
    bytes: u64,
}

/// A submission that may not be done.
struct Flight {
    value: u64,
    slot: Slot,
    accesses: Vec<Access>,
    /// Whether it waits for another queue, which any access may have to wait for then.
    waits: bool,
    commands: u32,
}

/// Records and submits commands in order.
pub(super) struct Recorder {
    pub(super) shared: Arc<Shared>,
    pub(super) timeline: Arc<Timeline>,
    lane: usize,
    /// The number of the last submission.
    submitted: u64,
    recording: Option<Recording>,
    /// What the next submission waits for.
    waits: Vec<(Arc<Timeline>, u64)>,
    flights: VecDeque<Flight>,
    idle: Vec<Slot>,
    pace: Pace,
    staging: Option<(Arc<Block>, Ring)>,
    /// The error of a submission whose commands the driver refused, and which are missing since.
    failed: Option<Error>,
}

impl Recorder {
    /// A recorder without commands.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self> {
        Ok(Self {
            shared: Arc::clone(shared),
            timeline: Arc::new(Timeline::new(shared)?),
            lane: shared.next_lane(),
            submitted: 0,
            recording: None,
            waits: Vec::new(),
            flights: VecDeque::new(),
            idle: Vec::new(),
            pace: Pace::new(),
            staging: None,
            failed: None,
        })
    }

    /// Fails if the device is lost, or commands of this queue are missing.
    pub(super) fn check(&self) -> Result<()> {
        self.shared.life.check()?;
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The number of the last submission.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// The recording of the next command. A full one is submitted first.
    fn recording(&mut self) -> Result<&mut Recording> {
        let most = self.pace.commands_max();
        if self.recording.as_ref().is_some_and(|it| it.commands >= most || it.bytes >= BYTES_MAX) {
            self.flush()?;
        }
        let recording = self.take_recording()?;
        Ok(self.recording.insert(recording))
    }

    /// Takes the present recording, or an empty one.
    fn take_recording(&mut self) -> Result<Recording> {
        if let Some(recording) = self.recording.take() {
            return Ok(recording);
        }
        let mut slot = self.idle.pop().map_or_else(|| Slot::new(&self.shared), Ok)?;
        slot.begin()?;
        let (hazards, keep) = (Hazards::default(), Vec::new());
        Ok(Recording { slot, hazards, keep, commands: 0, bytes: 0 })
    }

    /// The slot of the next command, for what the command takes from pools.
    pub(super) fn slot(&mut self) -> Result<&mut Slot> {
        Ok(&mut self.recording()?.slot)
    }

    /// Prepares one command with these accesses in the slot of [`Self::slot`]. The submission keeps
    /// what the command needs.
    pub(super) fn admit(
        &mut self,
        accesses: &[Access],
        bytes: u64,
        keep: impl IntoIterator<Item = Keep>,
    ) -> Result<vk::CommandBuffer> {
        // Only the first call for a command may submit, which would take the command's slot away.
        let recording = match &mut self.recording {
            Some(recording) => recording,
            None => self.recording()?,
        };
        if recording.hazards.admit(accesses) {
            recording.slot.barrier(vk::PipelineStageFlags::empty(), vk::AccessFlags::empty());
        }
        recording.keep.extend(keep);
        recording.commands += 1;
        recording.bytes += bytes;
        Ok(recording.slot.commands)
    }

    /// [`Self::admit`] for a further command of the launch that was admitted last. The commands of one
    /// launch may overlap, so that no barrier comes between them.
    pub(super) fn admit_further(
        &mut self,
        accesses: &[Access],
        keep: impl IntoIterator<Item = Keep>,
    ) -> Result<vk::CommandBuffer> {
        match &mut self.recording {
            Some(recording) if recording.commands > 0 => {
                recording.commands += 1;
                Ok(recording.slot.commands)
            }
            // The former commands were submitted.
            _ => self.admit(accesses, 0, keep),
        }
    }

    /// Records a copy between two blocks.
    pub(super) fn copy(
        &mut self,
        (from, from_offset): (&Arc<Block>, usize),
        (to, to_offset): (&Arc<Block>, usize),
        bytes: usize,
    ) -> Result<()> {
        let accesses = [from.access(from_offset, bytes, false), to.access(to_offset, bytes, true)];
        let keep = [Arc::clone(from) as Keep, Arc::clone(to) as Keep];
        self.slot()?;
        let commands = self.admit(&accesses, bytes as u64, keep)?;
        let region = [vk::BufferCopy::default()
            .src_offset(from.place(from_offset))
            .dst_offset(to.place(to_offset))
            .size(bytes as u64)];
        let (from, to) = (from.buffer(), to.buffer());
        // SAFETY: both ranges lie in their blocks and do not overlap; the submission keeps the
        // blocks.
        unsafe { self.shared.device.cmd_copy_buffer(commands, from, to, &region) };
        Ok(())
    }

    /// A part of the staging memory for at most [`PART_BYTES`] bytes: the block, and the part's
    /// offset in it. The part is the caller's until the next submission is done.
    pub(super) fn stage(&mut self, bytes: usize) -> Result<(Arc<Block>, usize)> {
        if self.staging.is_none() {
            let block = Block::new(&self.shared, Home::Host, STAGING_BYTES)?;
            self.staging = Some((block, Ring::new(STAGING_BYTES as u64)));
        }
        loop {
            let Some((block, ring)) = &mut self.staging else {
                unreachable!("it was just made");
            };
            if let Some(at) = ring.take(bytes as u64).and_then(|at| usize::try_from(at).ok()) {
                return Ok((Arc::clone(block), at));
            }
            self.flush()?;
            // Everything in the ring is of a submission now, and a part always fits an empty ring.
            let oldest = self.flights.front().map_or(self.submitted, |flight| flight.value);
            self.wait(oldest)?;
        }
    }

    /// Makes the next submission wait for a value of another queue's timeline.
    pub(super) fn wait_for(&mut self, timeline: &Arc<Timeline>, value: u64) -> Result<()> {
        // A queue is in order with itself.
        if Arc::ptr_eq(timeline, &self.timeline) {
            return Ok(());
        }
        self.flush()?;
        self.waits.push((Arc::clone(timeline), value));
        Ok(())
    }

    /// Submits what is recorded.
    pub(super) fn flush(&mut self) -> Result<()> {
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
        if let Some((_, ring)) = &mut self.staging {
            ring.mark(value);
        }
        let accesses = hazards.all().to_vec();
        self.flights.push_back(Flight { value, slot, accesses, waits: waited, commands });
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
    pub(super) fn wait(&mut self, value: u64) -> Result<()> {
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
            self.idle.push(flight.slot);
        }
        if let Some((_, ring)) = &mut self.staging {
            ring.release(done);
        }
        self.timeline.release(done);
    }

    /// Whether a command that is not done conflicts with an access by the host.
    pub(super) fn is_pending(&mut self, access: &Access) -> Result<bool> {
        let done = self.timeline.done()?;
        self.reap(done);
        let recorded = self.recording.as_ref().map_or(&[][..], |it| it.hazards.all());
        let in_flight = |it: &Flight| it.waits || touches(&it.accesses, access);
        Ok(!self.waits.is_empty()
            || touches(recorded, access)
            || self.flights.iter().any(in_flight))
    }

    /// Submits, and waits for, every command that conflicts with an access by the host.
    pub(super) fn settle(&mut self, access: &Access) -> Result<()> {
        if !self.is_pending(access)? {
            return Ok(());
        }
        self.flush()?;
        let conflicting = |it: &&Flight| it.waits || touches(&it.accesses, access);
        match self.flights.iter().rev().find(conflicting).map(|flight| flight.value) {
            Some(value) => self.wait(value),
            None => Ok(()),
        }
    }

    /// Submits, and waits for everything.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.flush()?;
        self.wait(self.submitted)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Commands may still need the slots. After a failure the device is lost, and then either
        // nothing runs any more or nothing is destroyed.
        if self.check().is_ok() {
            let _ = self.finish();
        } else if self.shared.life.check().is_ok() {
            let _ = self.wait(self.submitted);
        }
    }
}
