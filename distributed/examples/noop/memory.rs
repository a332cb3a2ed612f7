//! Resident memory of the coordinator's process, and whether memory and time per task stay
//! constant.

use crate::Result;
use crate::load::drive;
use crate::options::Options;
use crate::workers::{Crew, cluster, rss_bytes, spec};
use lgp_distributed::CoordinatorConfig;
use serde_json::json;
use std::time::Instant;

pub(crate) async fn run(options: &Options) -> Result<String> {
    let tasks: usize = options.get("tasks", 1_000_000)?;
    let steps = options.get("steps", 10)?.max(1);
    let workers = options.get("workers", 1)?;
    let in_flight = options.get("in-flight", 64)?;
    let slots = options.get("slots", 4)?;
    let spec = spec(options.get("payload", 64)?)?;
    let alone = rss_bytes()?;
    let crew = Crew { workers, slots, sleep_ms: 0 };
    // All workers are in one other process.
    let (coordinator, _, _workers) = cluster(CoordinatorConfig::default(), crew).await?;
    let ready = rss_bytes()?;
    let mut rows = Vec::with_capacity(steps);
    for _ in 0..steps {
        let tasks = (tasks / steps).max(1);
        let began = Instant::now();
        drive(&coordinator, &spec, tasks, in_flight, false).await?;
        let us = began.elapsed().as_secs_f64() * 1e6 / tasks as f64;
        rows.push(json!({"tasks": tasks, "us_per_task": us, "rss_bytes": rss_bytes()?}));
    }
    let stats = coordinator.stats();
    coordinator.stop().await;
    Ok(json!({
        "workers": workers,
        "in_flight": in_flight,
        "rss_bytes_without_cluster": alone,
        "rss_bytes_ready": ready,
        "steps": rows,
        "succeeded": stats.tasks.succeeded,
    })
    .to_string())
}
