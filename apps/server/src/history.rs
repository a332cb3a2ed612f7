//! The history of the totals, for charts.

use lgp_distributed::Stats;
use lgp_sdk::cluster::Coordinator;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The interval of samples.
const STEP: Duration = Duration::from_secs(2);
/// The most samples that are kept: half an hour.
const KEPT: usize = 900;

/// The totals of a coordinator every two seconds.
#[derive(Debug)]
pub(crate) struct History {
    samples: Arc<Mutex<VecDeque<Sample>>>,
    sampling: AbortHandle,
}

impl Drop for History {
    fn drop(&mut self) {
        self.sampling.abort();
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    at_s: f64,
    /// Ended tasks a second since the previous sample.
    ended_per_s: f64,
    queued: u64,
    running: u64,
    /// The 50th, 95th and 99th percentile of the latest tasks' latency, once there are tasks.
    latency_ms: Option<[f64; 3]>,
}

impl History {
    /// Starts sampling a coordinator. Must be called within a Tokio runtime.
    pub(crate) fn new(coordinator: &Coordinator) -> Self {
        let samples = Arc::<Mutex<VecDeque<Sample>>>::default();
        let sampling = tokio::spawn(sample(coordinator.clone(), Arc::clone(&samples)));
        Self { samples, sampling: sampling.abort_handle() }
    }

    /// Columns of equal length, oldest first.
    pub(crate) fn columns(&self) -> Value {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |value: fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<f64>>();
        let latency = |at: usize| -> Vec<Option<f64>> {
            samples.iter().map(|it| it.latency_ms.map(|all| all[at])).collect()
        };
        json!({
            "at_s": of(|it| it.at_s),
            "ended_per_s": of(|it| it.ended_per_s),
            "queued": samples.iter().map(|it| it.queued).collect::<Vec<u64>>(),
            "running": samples.iter().map(|it| it.running).collect::<Vec<u64>>(),
            "latency_ms": {
                "p50": latency(0),
                "p95": latency(1),
                "p99": latency(2),
            },
        })
    }
}

/// Tasks that have ended.
fn ended(stats: &Stats) -> u64 {
    let tasks = &stats.tasks;
    tasks.succeeded + tasks.failed + tasks.cancelled
}

async fn sample(coordinator: Coordinator, samples: Arc<Mutex<VecDeque<Sample>>>) {
    let mut step = interval(STEP);
    step.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = (Instant::now(), ended(&coordinator.stats()));
    loop {
        step.tick().await;
        let (now, stats) = (Instant::now(), coordinator.stats());
        let passed = now.duration_since(before.0).as_secs_f64();
        let count = ended(&stats);
        let latency = &stats.latency_ms;
        let sample = Sample {
            at_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            ended_per_s: if passed > 0.0 {
                count.saturating_sub(before.1) as f64 / passed
            } else {
                0.0
            },
            queued: stats.tasks.queued,
            running: stats.tasks.running,
            latency_ms: (latency.count > 0).then_some([latency.p50, latency.p95, latency.p99]),
        };
        before = (now, count);
        let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() >= KEPT {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}
