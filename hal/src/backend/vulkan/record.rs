//! The commands of a queue before and after their submission.

mod staging;
mod submit;

use super::event::{Keep, Timeline};
use super::hazards::{Access, Hazards};
use super::memory::Block;
use super::pace::Pace;
use super::shared::Shared;
use super::slot::Slot;
use crate::error::{Error, Result};
use ash::vk;
pub(super) use staging::PART_BYTES;
use staging::Staging;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that the transfers of one submission move at most.
const BYTES_MAX: u64 = 256 << 20;
/// Room for what a recording keeps, before it grows: that of some tens of launches.
const KEEP: usize = 256;

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
    hazards: Hazards,
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
    /// What recordings used that are done.
    idle: Vec<(Slot, Hazards)>,
    pace: Pace,
    staging: Option<Staging>,
    /// The error of a submission whose commands the driver refused, and which are missing since.
    failed: Option<Error>,
}

impl Recorder {
    /// A recorder without commands.
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self> {
        Ok(Self {
            shared: Arc::clone(shared),
            timeline: Timeline::new(shared)?,
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
        let fresh = || Ok((Slot::new(&self.shared)?, Hazards::default()));
        let (mut slot, mut hazards) = self.idle.pop().map_or_else(fresh, Ok)?;
        slot.begin()?;
        hazards.clear();
        let keep = Vec::with_capacity(KEEP);
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
}
