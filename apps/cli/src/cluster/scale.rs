//! Starts local workers while tasks wait, and ends idle ones.

use crate::cluster::launch::Cluster;
use crate::settings::Settings;
use lgp_distributed::{Event, ScaleConfig, ScaleSample, Scaler, WorkerState};
use std::time::{Duration, Instant};

/// The interval between looks at the load.
const INTERVAL: Duration = Duration::from_secs(1);

/// Adapts the number of workers to the load while it is polled; does nothing where the settings fix
/// the number.
pub(crate) async fn keep_scaled(cluster: &Cluster, settings: &Settings) {
    let least = settings.workers.max(1);
    if settings.workers_max <= least {
        return std::future::pending().await;
    }
    let config = ScaleConfig {
        workers_min: least,
        workers_max: settings.workers_max,
        ..ScaleConfig::default()
    };
    let mut scaler = Scaler::new(config);
    let started = Instant::now();
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Some(decision) = scaler.observe(started.elapsed(), sample(cluster)) {
            let before = cluster.driver.resize(decision.workers);
            let (workers, why) = (decision.workers, decision.why);
            tracing::info!(before, workers, why, "the number of local workers changes");
            let reason = why.to_owned();
            let event = Event::Scaled { from: before, to: workers, reason };
            cluster.coordinator.announce(event);
        }
    }
}

fn sample(cluster: &Cluster) -> ScaleSample {
    let ready = cluster.coordinator.workers();
    let ready = ready.iter().filter(|worker| worker.state == WorkerState::Ready);
    let (mut slots, mut taken) = (0u32, 0u32);
    for worker in ready {
        slots = slots.saturating_add(worker.slots);
        taken = taken.saturating_add(worker.running);
    }
    let queued = cluster.coordinator.stats().runnable;
    ScaleSample { workers: cluster.driver.places(), slots, taken, queued }
}
