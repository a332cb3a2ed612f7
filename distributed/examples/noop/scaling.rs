//! Workers that sleep instead of computing: which share of their capacity the cluster uses.

use crate::Result;
use crate::load::{drive, measure};
use crate::options::Options;
use crate::workers::{Crew, cluster, spec};
use lgp_distributed::CoordinatorConfig;
use serde_json::json;

pub(crate) async fn run(options: &Options) -> Result<String> {
    let sleep_ms: u64 = options.get("sleep-ms", 15)?;
    let each: usize = options.get("tasks", 200)?;
    let spec = spec(options.get("payload", 64)?)?;
    let mut rows = Vec::new();
    for workers in options.list("workers", &[1, 5, 10, 20, 50])? {
        let crew = Crew { workers, slots: 1, sleep_ms };
        let (coordinator, _, _process) = cluster(CoordinatorConfig::default(), crew).await?;
        // One task waits for each running one, so that no worker waits for a caller.
        let in_flight = 2 * workers;
        drive(&coordinator, &spec, 5 * workers, in_flight, false).await?;
        let run = measure(&coordinator, &spec, each * workers, in_flight).await?;
        coordinator.stop().await;
        let ideal = workers as f64 * 1e3 / sleep_ms as f64;
        // The measured sleep, because its error is the worker's and not the cluster's.
        let slept = workers as f64 * 1e6 / run.model_us.p50;
        rows.push(json!({
            "workers": workers,
            "tasks_per_s": run.tasks_per_s,
            "efficiency": run.tasks_per_s / ideal,
            "efficiency_of_time_slept": run.tasks_per_s / slept,
            "model_us": run.model_us,
            "overhead_us": run.overhead_us,
        }));
    }
    Ok(json!({"sleep_ms": sleep_ms, "tasks_each": each, "rows": rows}).to_string())
}
