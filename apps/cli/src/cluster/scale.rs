//! More local workers when tasks wait, fewer when they are idle.

use crate::cluster::launch::Cluster;
use crate::settings::Settings;
use lgp_sdk::{Event, ScaleConfig, ScaleSample, Scaler, WorkerState};
use std::time::{Duration, Instant};

/// How often is measured.
const INTERVAL: Duration = Duration::from_secs(1);

/// Brings the number of workers to what the load asks for, as long as this is polled; does nothing
/// where the settings allow no other number.
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
