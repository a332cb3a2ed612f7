//! Sudden growth: how much, in what time, and by which owners.

use super::{MemoryKind, MemoryStep};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The definition of sudden growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpikeRule {
    /// At least this much more ...
    pub bytes: usize,
    /// ... than at any time this long before.
    pub within: Duration,
}

/// A sudden growth, from the minimum before it to its maximum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spike {
    /// The time of the minimum.
    pub begin: Duration,
    /// The time of the maximum.
    pub end: Duration,
    /// Which memory.
    pub kind: MemoryKind,
    /// The growth.
    pub bytes: usize,
    /// Each growing owner's growth, the largest first.
    pub owners: Vec<(Arc<str>, usize)>,
}

/// A series of bytes over time: the whole device's, or one owner's of the host.
struct Series<'a> {
    kind: MemoryKind,
    steps: Vec<&'a MemoryStep>,
    /// Time and bytes before and after each step: between steps the bytes stay constant.
    points: Vec<(Duration, usize)>,
}

/// The spikes of all series, sorted by start. The first `held` steps are the ranges held before the
/// log.
pub(super) fn find(steps: &[MemoryStep], held: usize, rule: SpikeRule) -> Vec<Spike> {
    let host: BTreeSet<&Arc<str>> =
        steps.iter().filter(|s| s.kind == MemoryKind::Host).map(|s| &s.owner).collect();
    let device = Series::new(MemoryKind::Device, steps, held, |_| true, |s| s.device_bytes);
    let mut spikes = device.spikes(rule);
    for owner in host {
        let own = |step: &MemoryStep| step.owner == *owner;
        // Before its first measurement, the owner is assumed to have held as much.
        let series = Series::new(MemoryKind::Host, steps, 1, own, |s| s.owner_bytes);
        spikes.extend(series.spikes(rule));
    }
    spikes.sort_by_key(|spike| (spike.begin, spike.kind));
    spikes
}

impl<'a> Series<'a> {
    fn new(
        kind: MemoryKind,
        steps: &'a [MemoryStep],
        held: usize,
        own: impl Fn(&MemoryStep) -> bool,
        bytes: impl Fn(&MemoryStep) -> usize,
    ) -> Self {
        let steps: Vec<_> = steps.iter().filter(|s| s.kind == kind && own(s)).collect();
        let begin = held.checked_sub(1).and_then(|last| steps.get(last));
        let mut level = begin.map_or(0, |step| bytes(step));
        let mut points = Vec::with_capacity(2 * steps.len());
        for (at, step) in steps.iter().enumerate() {
            points.push((step.time, level));
            if at >= held {
                level = bytes(step);
            }
            points.push((step.time, level));
        }
        Self { kind, steps, points }
    }

    fn spikes(&self, rule: SpikeRule) -> Vec<Spike> {
        let points = &self.points;
        let mut spikes = Vec::new();
        // Points lower than all later ones: the first is the minimum of the window.
        let mut lows: VecDeque<usize> = VecDeque::new();
        let mut at = 0;
        while let Some(&(time, bytes)) = points.get(at) {
            while lows.back().is_some_and(|&low| points[low].1 >= bytes) {
                lows.pop_back();
            }
            lows.push_back(at);
            while lows.front().is_some_and(|&low| time.saturating_sub(points[low].0) > rule.within)
            {
                lows.pop_front();
            }
            let low = lows.front().copied().unwrap_or(at);
            if low < at && bytes - points[low].1 >= rule.bytes {
                at = self.top(at, rule);
                spikes.push(self.spike(low, at));
                lows = VecDeque::from([at]);
            }
            at += 1;
        }
        spikes
    }

    /// The maximum of the spike at `at`. The spike ends when no higher point follows within the
    /// rule's time, or when the bytes fall by as much as a spike grows.
    fn top(&self, at: usize, rule: SpikeRule) -> usize {
        let mut top = at;
        for (next, &(time, bytes)) in self.points.iter().enumerate().skip(at) {
            let (top_time, top_bytes) = self.points[top];
            let late = time.saturating_sub(top_time) > rule.within;
            if late || top_bytes.saturating_sub(bytes) >= rule.bytes.max(1) {
                break;
            }
            if bytes > top_bytes {
                top = next;
            }
        }
        top
    }

    fn spike(&self, low: usize, top: usize) -> Spike {
        // Each step has two points: these are the steps between both points.
        let (first, end) = (low.div_ceil(2), top.div_ceil(2));
        let held = |steps: &[&'a MemoryStep]| -> BTreeMap<&'a Arc<str>, usize> {
            steps.iter().map(|step| (&step.owner, step.owner_bytes)).collect()
        };
        let (before, after) = (held(&self.steps[..first]), held(&self.steps[first..end]));
        let growth = |(owner, bytes): (&'a Arc<str>, usize)| {
            let grown = bytes.saturating_sub(before.get(owner).copied().unwrap_or(0));
            (grown > 0).then(|| (Arc::clone(owner), grown))
        };
        let mut owners: Vec<_> = after.into_iter().filter_map(growth).collect();
        owners.sort_by_key(|(_, grown)| std::cmp::Reverse(*grown));
        Spike {
            begin: self.points[low].0,
            end: self.points[top].0,
            kind: self.kind,
            bytes: self.points[top].1 - self.points[low].1,
            owners,
        }
    }
}
