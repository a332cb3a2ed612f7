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
use crate::proto::placement::{Hot, SeatId};
use crate::proto::scheduler::service::{Service, nanos};
use std::time::Duration;

/// A seat that may take a model's tasks when it has a free slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Capable {
    pub(crate) seat: SeatId,
    pub(crate) service: Service,
    /// Whether the model is loaded there.
    pub(crate) resident: bool,
    /// How well the device fits the model's needs, 0 to 1.
    pub(crate) fit: f64,
    /// Free slots of the model's own; `None` where it shares those of the device.
    pub(crate) own_free: Option<u32>,
}

/// A capable seat with a free slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate<'a> {
    pub(crate) capable: &'a Capable,
    pub(crate) hot: &'a Hot,
}

impl Candidate<'_> {
    pub(crate) fn seat(&self) -> SeatId {
        self.capable.seat
    }

    /// Milliseconds until a task that is sent there now would be done: the expected service time
    /// for each task before it in its slot, and for itself. `None` where nothing was measured.
    pub(crate) fn completion_ms(&self, now: Duration, load_ms: f64) -> Option<f64> {
        let service = self.capable.service.expected_ms(now)?;
        let loading = if self.capable.resident { 0.0 } else { load_ms };
        Some(service * self.hot.turns + loading)
    }
}

/// What a strategy sees of the cluster.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub(crate) capable: &'a [Capable],
    pub(crate) hot: &'a [Hot],
    /// A worker that was last heard before this time, in nanoseconds, is suspect and takes nothing;
    /// at least 1.
    heard_since_ns: u64,
}

impl<'a> View<'a> {
    /// A view in which workers that were last heard before `heard_since` take nothing.
    pub(crate) fn new(capable: &'a [Capable], hot: &'a [Hot], heard_since: Duration) -> Self {
        Self { capable, hot, heard_since_ns: nanos(heard_since).max(1) }
    }

    /// A capable seat as a candidate, if it has a free slot.
    pub(crate) fn candidate(&self, capable: &'a Capable) -> Option<Candidate<'a>> {
        let hot = self.hot.get(capable.seat)?;
        let free = capable.own_free.unwrap_or(hot.shared_free);
        (hot.heard_ns >= self.heard_since_ns && free > 0).then_some(Candidate { capable, hot })
    }

    /// Every candidate.
    pub(crate) fn all(&self) -> impl Iterator<Item = Candidate<'a>> + use<'a, '_> {
        self.capable.iter().filter_map(|capable| self.candidate(capable))
    }

    /// Every candidate, or [`WEIGHED_MAX`] of them from a random place on: equal numbers give equal
    /// candidates.
    pub(crate) fn some(&self, random: u64) -> impl Iterator<Item = Candidate<'a>> + use<'a, '_> {
        let count = u64::try_from(self.capable.len()).unwrap_or(u64::MAX);
        let few = self.capable.len() <= WEIGHED_MAX;
        let from = if few { 0 } else { usize::try_from(random % count).unwrap_or_default() };
        let (before, after) = self.capable.split_at_checked(from).unwrap_or_default();
        let around = after.iter().chain(before);
        around.filter_map(|capable| self.candidate(capable)).take(WEIGHED_MAX)
    }
}

/// Most candidates that are weighed for one choice, so that a choice costs the same however many
/// there are. In 99 choices of 100, the best of these is one of the best hundredth of all, if the
/// order in which workers joined says nothing of their devices. Strategies that look for what few
/// devices have, such as a model in memory or a backend, weigh all.
const WEIGHED_MAX: usize = 512;

/// The candidate with the least score; among equals the one whose turn is longest ago.
fn least<'a>(
    candidates: impl Iterator<Item = Candidate<'a>>,
    score: impl Fn(&Candidate<'_>) -> f64,
) -> Option<(Candidate<'a>, f64)> {
    let mut least = Least::default();
    candidates.for_each(|candidate| least.offer(candidate, score(&candidate)));
    least.found()
}

/// Finds the least score; among equals the one whose turn is longest ago.
struct Least<'a> {
    found: Option<Candidate<'a>>,
    score: f64,
    last_dispatch: u64,
}

impl Default for Least<'_> {
    fn default() -> Self {
        Self { found: None, score: f64::INFINITY, last_dispatch: u64::MAX }
    }
}

impl<'a> Least<'a> {
    fn offer(&mut self, candidate: Candidate<'a>, score: f64) {
        let last_dispatch = candidate.hot.last_dispatch;
        // Most candidates are no better, and the first comparison rejects them.
        if score <= self.score && (score < self.score || last_dispatch < self.last_dispatch) {
            *self = Self { found: Some(candidate), score, last_dispatch };
        }
    }

    fn found(&self) -> Option<(Candidate<'a>, f64)> {
        self.found.map(|candidate| (candidate, self.score))
    }
}

/// What a strategy sees of a task.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request {
    /// Device memory that its model takes, in MiB, where it is known.
    pub(crate) needs_mib: f64,
    /// Milliseconds to load its model where it is not resident.
    pub(crate) load_ms: f64,
    /// Milliseconds of completion time that a joule is worth; 0 looks at time alone.
    pub(crate) thrift: f64,
    /// The strategy's only source of randomness.
    pub(crate) random: u64,
}

/// A strategy's choice, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub(crate) seat: SeatId,
    /// The figure that decided.
    pub(crate) score: f64,
    /// What the score means.
    pub(crate) reason: &'static str,
}

impl Choice {
    fn of(best: Option<(Candidate<'_>, f64)>, reason: &'static str) -> Option<Self> {
        best.map(|(candidate, score)| Self { seat: candidate.seat(), score, reason })
    }
}

/// Chooses a seat for a request; pure, so that a simulation repeats exactly.
pub trait Balance: Sync {
    /// The name in settings.
    fn name(&self) -> &'static str;

    /// Whether scores for a model and for a variant of it can be compared, the lower one being the
    /// better.
    fn compares_variants(&self) -> bool {
        false
    }

    /// One of the view's candidates; `None` only where there is none.
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
pub fn by_name(name: &str) -> Result<&'static dyn Balance, Error> {
    STRATEGIES.iter().copied().find(|s| s.name() == name).ok_or_else(|| Error::UnknownBalancing {
        given: name.chars().take(64).collect(),
        known: balancing_strategies(),
    })
}

/// The load of a device, 0 idle to 1 full:
/// 0.4 · taken slots + 0.3 · utilisation + 0.2 · memory in use + 0.1 · queue/20, each at most 1.
pub(crate) fn load(taken: f64, utilisation: f64, memory: f64, queued: u32) -> f64 {
    0.4 * taken.clamp(0.0, 1.0)
        + 0.3 * utilisation.clamp(0.0, 1.0)
        + 0.2 * memory.clamp(0.0, 1.0)
        + 0.1 * (f64::from(queued) / 20.0).min(1.0)
}
