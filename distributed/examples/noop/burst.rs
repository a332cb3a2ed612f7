//! Many tasks at once: how fast they are accepted, and whether each one ends.

use crate::Result;
use crate::load::Percentiles;
use crate::options::Options;
use crate::workers::{Crew, cluster, spec};
use lgp_distributed::{Coordinator, CoordinatorConfig, Error, TaskId, TaskSpec, TaskState};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(crate) async fn run(options: &Options) -> Result<String> {
    let tasks = options.get("tasks", 10_000)?;
    let queue = options.get("queue", 10_000)?;
    let spec = spec(options.get("payload", 64)?)?;
    let beyond = 3 * queue;
    let config = CoordinatorConfig {
        queue_tasks_max: queue,
        // Each record is read after all tasks have been submitted.
        retained_tasks_max: tasks.max(beyond),
        ..Default::default()
    };
    let (coordinator, _, _workers) = cluster(config, Crew::ONE).await?;
    submit(&coordinator, &spec, queue.min(1000)).await?;
    let within = submit(&coordinator, &spec, tasks.min(queue)).await?;
    let beyond = submit(&coordinator, &spec, beyond).await?;
    coordinator.stop().await;
    Ok(json!({"queue_tasks_max": queue, "within": within, "beyond": beyond}).to_string())
}

/// Submits tasks without waiting for any; a refused submission is retried at the given time.
async fn submit(coordinator: &Coordinator, spec: &TaskSpec, tasks: usize) -> Result<Value> {
    let mut ids: Vec<TaskId> = Vec::with_capacity(tasks);
    let (mut refusals, mut told) = (0u64, Duration::ZERO);
    let began = Instant::now();
    while ids.len() < tasks {
        match coordinator.submit(spec.clone()) {
            Ok(id) => ids.push(id),
            Err(Error::Overloaded { retry_after, .. }) => {
                refusals += 1;
                told = told.max(retry_after);
                tokio::time::sleep(retry_after).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
    let accepted_s = began.elapsed().as_secs_f64();
    let mut latencies = Vec::with_capacity(tasks);
    for &id in &ids {
        let record = coordinator.wait(id).await?;
        if record.state == TaskState::Succeeded {
            let rest = record.model_ms.unwrap_or_default() + record.overhead_ms.unwrap_or_default();
            latencies.push(record.queued_ms + rest);
        }
    }
    let drained_s = began.elapsed().as_secs_f64();
    Ok(json!({
        "tasks": tasks,
        "accepted_s": accepted_s,
        "accept_us_per_task": accepted_s * 1e6 / tasks as f64,
        "drained_s": drained_s,
        "tasks_per_s": tasks as f64 / drained_s,
        "refusals": refusals,
        "retry_after_ms_max": told.as_secs_f64() * 1e3,
        "lost": tasks - latencies.len(),
        "latency_us": Percentiles::of_ms(latencies),
    }))
}
