//! A log over time: phases with their peaks, and sudden growth with its owners.

mod spikes;
#[cfg(test)]
mod tests;
mod text;

pub use spikes::{Spike, SpikeRule};

use crate::log::{MemoryEvent, MemoryLog};
use crate::segments::Holder;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The location of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// On the device, where the owners' bytes add up.
    Device,
    /// In the host's RAM, where one owner may contain another, as a process contains its pool.
    Host,
}

/// A change of an owner's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryStep {
    /// The time since the log began.
    pub time: Duration,
    /// The phase, as an index into [`MemoryProfile::phases`].
    pub phase: usize,
    /// Which memory.
    pub kind: MemoryKind,
    /// The owner.
    pub owner: Arc<str>,
    /// Bytes that the owner holds after the change.
    pub owner_bytes: usize,
    /// Bytes that all owners hold on the device after the change.
    pub device_bytes: usize,
}

/// A part of the log, from one phase event to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPhase {
    /// The name; empty for the part before the first phase event.
    pub name: Arc<str>,
    /// The start, since the log began.
    pub begin: Duration,
    /// When it ended.
    pub end: Duration,
    /// The most that was held on the device at once.
    pub peak_bytes: usize,
    /// The time of the peak.
    pub peak_time: Duration,
    /// The holders at the peak, the largest first.
    pub holders: Vec<Holder>,
    /// Each owner's most bytes of the host's RAM.
    pub host_peaks: BTreeMap<Arc<str>, usize>,
    /// Requests that failed.
    pub failures: u64,
}

/// A log over time. It covers the events that the log kept. Bytes are the requested ones, before
/// rounding up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryProfile {
    /// The phases in order; there is always one.
    pub phases: Vec<MemoryPhase>,
    /// Each change of an owner's memory, in order.
    pub steps: Vec<MemoryStep>,
    /// Sudden growth, in order.
    pub spikes: Vec<Spike>,
}

impl MemoryProfile {
    /// The profile of a log, with spikes by `rule`.
    #[must_use]
    pub fn new(log: &MemoryLog, rule: SpikeRule) -> Self {
        let mut fold = Fold::new();
        for (range, bytes, owner) in log.held() {
            fold.take(Duration::ZERO, range, bytes, owner);
        }
        let held = fold.steps.len();
        for (time, event) in log.events() {
            fold.event(time, event);
        }
        let Fold { mut phases, steps, .. } = fold;
        let last = log.events().last().map_or(Duration::ZERO, |(time, _)| time);
        if let Some(phase) = phases.last_mut() {
            phase.end = last;
        }
        let spikes = spikes::find(&steps, held, rule);
        Self { phases, steps, spikes }
    }
}

/// The state between two events.
struct Fold {
    phases: Vec<MemoryPhase>,
    steps: Vec<MemoryStep>,
    /// Owner and bytes of each range.
    ranges: BTreeMap<u64, (Arc<str>, usize)>,
    /// Ranges and bytes of each owner on the device.
    owners: BTreeMap<Arc<str>, (usize, usize)>,
    device_bytes: usize,
    host: BTreeMap<Arc<str>, usize>,
}

impl Fold {
    fn new() -> Self {
        let mut fold = Self {
            phases: Vec::new(),
            steps: Vec::new(),
            ranges: BTreeMap::new(),
            owners: BTreeMap::new(),
            device_bytes: 0,
            host: BTreeMap::new(),
        };
        fold.begin_phase(Duration::ZERO, &"".into());
        fold
    }

    fn event(&mut self, time: Duration, event: &MemoryEvent) {
        match event {
            MemoryEvent::Taken { range, bytes, owner } => self.take(time, *range, *bytes, owner),
            MemoryEvent::Freed { range } => self.free(time, *range),
            MemoryEvent::Failed { .. } => {
                if let Some(phase) = self.phases.last_mut() {
                    phase.failures += 1;
                }
            }
            MemoryEvent::Phase { name } => self.begin_phase(time, name),
            MemoryEvent::Host { owner, bytes } => {
                self.host.insert(Arc::clone(owner), *bytes);
                if let Some(phase) = self.phases.last_mut() {
                    let peak = phase.host_peaks.entry(Arc::clone(owner)).or_default();
                    *peak = (*peak).max(*bytes);
                }
                self.step(time, MemoryKind::Host, owner, *bytes);
            }
        }
    }

    fn begin_phase(&mut self, time: Duration, name: &Arc<str>) {
        if let Some(phase) = self.phases.last_mut() {
            phase.end = time;
        }
        self.phases.push(MemoryPhase {
            name: Arc::clone(name),
            begin: time,
            end: time,
            peak_bytes: self.device_bytes,
            peak_time: time,
            holders: self.holders(),
            host_peaks: self.host.clone(),
            failures: 0,
        });
    }

    fn take(&mut self, time: Duration, range: u64, bytes: usize, owner: &Arc<str>) {
        self.ranges.insert(range, (Arc::clone(owner), bytes));
        let held = self.owners.entry(Arc::clone(owner)).or_default();
        // A log from a file may contain any numbers.
        *held = (held.0.saturating_add(1), held.1.saturating_add(bytes));
        let owner_bytes = held.1;
        self.device_bytes = self.device_bytes.saturating_add(bytes);
        self.step(time, MemoryKind::Device, owner, owner_bytes);
        if self.phases.last().is_some_and(|phase| phase.peak_bytes < self.device_bytes) {
            let holders = self.holders();
            if let Some(phase) = self.phases.last_mut() {
                (phase.peak_bytes, phase.peak_time) = (self.device_bytes, time);
                phase.holders = holders;
            }
        }
    }

    fn free(&mut self, time: Duration, range: u64) {
        let Some((owner, bytes)) = self.ranges.remove(&range) else { return };
        self.device_bytes = self.device_bytes.saturating_sub(bytes);
        let mut left = 0;
        if let Some(held) = self.owners.get_mut(&owner) {
            *held = (held.0.saturating_sub(1), held.1.saturating_sub(bytes));
            left = held.1;
            if held.0 == 0 {
                self.owners.remove(&owner);
            }
        }
        self.step(time, MemoryKind::Device, &owner, left);
    }

    fn step(&mut self, time: Duration, kind: MemoryKind, owner: &Arc<str>, owner_bytes: usize) {
        let (phase, owner) = (self.phases.len().saturating_sub(1), Arc::clone(owner));
        let device_bytes = self.device_bytes;
        self.steps.push(MemoryStep { time, phase, kind, owner, owner_bytes, device_bytes });
    }

    fn holders(&self) -> Vec<Holder> {
        let holder = |(owner, &(ranges, bytes)): (&Arc<str>, &(usize, usize))| Holder {
            owner: Arc::clone(owner),
            ranges,
            bytes,
        };
        let mut holders: Vec<Holder> = self.owners.iter().map(holder).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        holders
    }
}
