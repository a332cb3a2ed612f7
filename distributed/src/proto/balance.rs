//! Balancing strategies: one trait, one table, a file each.

mod adaptive;
mod balanced;
mod gpu_match;
mod least_loaded;
mod memory_aware;
mod power_of_two;
mod round_robin;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::proto::fleet::{Hot, SeatId};
use crate::proto::service::Service;
use std::time::Duration;

/// A seat that may take a model's tasks when it has a free slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Capable {
    pub(crate) seat: SeatId,
    pub(crate) service: Service,
    /// Whether the model is loaded there.
    pub(crate) resident: bool,
    /// How well the device is what the model wants, 0 to 1.
    pub(crate) fit: f64,
}

/// A capable seat with a free slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) capable: Capable,
    pub(crate) hot: Hot,
}

impl Candidate {
    pub(crate) fn seat(&self) -> SeatId {
        self.capable.seat
    }

    /// Milliseconds until a task that is sent there now would be done: the expected service time
    /// for each task before it in its slot, and for itself. `None` where nothing was measured.
    pub(crate) fn completion_ms(&self, now: Duration, load_ms: f64) -> Option<f64> {
        let service = self.capable.service.expected_ms(now)?;
        let held = f64::from(self.hot.slots.saturating_sub(self.hot.free));
        let turns = held / f64::from(self.hot.slots.max(1)) + 1.0;
        let loading = if self.capable.resident { 0.0 } else { load_ms };
        Some(service.mul_add(turns, loading))
    }
}

/// What a strategy sees of the cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) capable: &'a [Capable],
    pub(crate) hot: &'a [Hot],
    /// Workers that were silent since then are suspect and take nothing.
    pub(crate) heard_since: Duration,
}

impl<'a> View<'a> {
    /// A capable seat as a candidate, if it has a free slot.
    pub(crate) fn candidate(&self, capable: &Capable) -> Option<Candidate> {
        let hot = *self.hot.get(capable.seat)?;
        let takes = hot.free > 0 && hot.last_seen >= self.heard_since;
        takes.then_some(Candidate { capable: *capable, hot })
    }

    /// Every candidate.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> + use<'a, '_> {
        self.capable.iter().filter_map(|capable| self.candidate(capable))
    }

    /// The candidate with the least score; among equals the one whose turn is longest ago.
    pub(crate) fn least(&self, score: impl Fn(&Candidate) -> f64) -> Option<(Candidate, f64)> {
        let mut best: Option<(Candidate, f64)> = None;
        for candidate in self.candidates() {
            let given = score(&candidate);
            let better = best.as_ref().is_none_or(|(other, least)| {
                given < *least
                    || (given <= *least && candidate.hot.last_dispatch < other.hot.last_dispatch)
            });
            if better {
                best = Some((candidate, given));
            }
        }
        best
    }
}

/// What a strategy sees of a task.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    /// Device memory that its model takes, in MiB, where it is known.
    pub(crate) needs_mib: f64,
    /// What loading its model costs where it is not resident.
    pub(crate) load_ms: f64,
    /// The share of a longer completion time that less energy is worth; 0 looks at time alone.
    pub(crate) thrift: f64,
    /// The strategy's only source of chance.
    pub(crate) random: u64,
}

/// A strategy's choice, and what it says for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    pub(crate) seat: SeatId,
    /// The figure that decided.
    pub(crate) score: f64,
    /// What the figure is.
    pub(crate) reason: &'static str,
}

impl Choice {
    fn of(best: Option<(Candidate, f64)>, reason: &'static str) -> Option<Self> {
        best.map(|(candidate, score)| Self { seat: candidate.seat(), score, reason })
    }
}

/// Chooses a seat for a request; pure, so that a simulation repeats exactly.
pub(crate) trait Balance: Sync {
    /// The name in settings.
    fn name(&self) -> &'static str;

    /// Whether the scores of its choices for a model and for a variant of it can be compared, the
    /// lower one being the better.
    fn compares_variants(&self) -> bool {
        false
    }

    /// One of the view's candidates; none only where there is none.
    fn pick(&self, now: Duration, view: &View<'_>, request: &Request) -> Option<Choice>;
}

/// Every strategy, the default first.
static STRATEGIES: &[&dyn Balance] = &[
    &least_loaded::LeastLoaded,
    &round_robin::RoundRobin,
    &power_of_two::PowerOfTwo,
    &memory_aware::MemoryAware,
    &balanced::Balanced,
    &gpu_match::GpuMatch,
    &adaptive::Adaptive,
];

/// Names of the balancing strategies, the default first.
#[must_use]
pub fn balancing_strategies() -> Vec<&'static str> {
    STRATEGIES.iter().map(|s| s.name()).collect()
}

/// The strategy of a name.
pub(crate) fn by_name(name: &str) -> Result<&'static dyn Balance, Error> {
    STRATEGIES.iter().copied().find(|s| s.name() == name).ok_or_else(|| Error::UnknownBalancing {
        given: name.chars().take(64).collect(),
        known: balancing_strategies(),
    })
}

/// The load of a device, 0 idle to 1 full:
/// 0.4 · tasks/slots + 0.3 · utilisation + 0.2 · memory in use + 0.1 · queue/20, each at most 1.
pub(crate) fn load(tasks: usize, slots: u32, utilisation: f64, memory: f64, queued: u32) -> f64 {
    let tasks = f64::from(u32::try_from(tasks).unwrap_or(u32::MAX));
    0.4 * (tasks / f64::from(slots.max(1))).min(1.0)
        + 0.3 * utilisation.clamp(0.0, 1.0)
        + 0.2 * memory.clamp(0.0, 1.0)
        + 0.1 * (f64::from(queued) / 20.0).min(1.0)
}
