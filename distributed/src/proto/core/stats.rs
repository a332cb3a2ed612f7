//! The totals that callers see.

use super::Core;
use crate::task::ModelRef;
use crate::worker_info::{Hits, Stats, WorkerCounts, WorkerState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most models whose waiting tasks are listed.
const MODELS_MAX: usize = 100;

impl Core {
    /// Totals.
    pub fn stats(&self, now: Duration) -> Stats {
        let (counters, affinity) = (&self.statistics.counters, self.scheduler.affinity());
        let queue = self.scheduler.queue();
        let mut workers = WorkerCounts::default();
        let mut breakers_open = 0;
        for worker in self.placement.fleet().workers() {
            breakers_open += worker.open_breakers().count();
            match worker.state() {
                WorkerState::Ready => workers.ready += 1,
                WorkerState::Draining => workers.draining += 1,
                WorkerState::Away => workers.away += 1,
                WorkerState::Lost => workers.lost += 1,
            }
        }
        let [latency_ms, queued_ms, model_ms, overhead_ms] = self.statistics.times.percentiles();
        Stats {
            uptime_s: now.saturating_sub(self.statistics.began()).as_secs_f64(),
            tasks: self.statistics.since_start(self.counts()),
            runnable: u64::try_from(queue.len()).unwrap_or(u64::MAX),
            queued_by_model: self.depths(),
            queued_by_priority: queue
                .by_priority()
                .map(|(priority, n)| (priority.name().into(), u64::try_from(n).unwrap_or(u64::MAX)))
                .collect(),
            tasks_per_s: self.statistics.rate(now),
            retries: counters.retries,
            retry_budget: self.scheduler.retries_left(),
            hedges: counters.hedges,
            yielded: counters.yielded,
            moved: counters.moved,
            batch_mean: self.statistics.batch_mean(),
            breakers_open: u64::try_from(breakers_open).unwrap_or(u64::MAX),
            breakers_opened: counters.breakers_opened,
            stale_completions: counters.stale,
            overloaded: counters.overloaded,
            overran: counters.overran,
            hangs: counters.hangs,
            capability_cache: self.placement.lookups(),
            affinity: Hits { hits: affinity.kept, of: affinity.asked },
            group_commit: self.ledger.group_commit(),
            // The coordinator, which lends them, adds these.
            shared_buffers: Hits::default(),
            workers,
            latency_ms,
            queued_ms,
            model_ms,
            overhead_ms,
            balancing: self.balancing().into(),
        }
    }

    /// The models with most tasks that wait for a free device, each with their number.
    fn depths(&self) -> BTreeMap<String, u64> {
        let depths = self.scheduler.queue().depths();
        let mut depths: Vec<(usize, &ModelRef)> = depths.map(|(model, n)| (n, model)).collect();
        // Names come from callers, so the list is bounded.
        depths.sort_unstable_by(|a, b| b.cmp(a));
        let mut by_model = BTreeMap::new();
        for (n, model) in depths.into_iter().take(MODELS_MAX) {
            *by_model.entry(model.to_string()).or_default() += u64::try_from(n).unwrap_or(u64::MAX);
        }
        by_model
    }
}
