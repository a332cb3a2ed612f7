//! The cost of a task besides its own work: bytes on the wire, and processor time.

use crate::Result;
use crate::load::drive;
use crate::options::Options;
use crate::workers::{Crew, cluster, cpu_seconds, spec};
use lgp_distributed::{Coordinator, CoordinatorConfig, TaskSpec};
use serde_json::{Value, json};
use std::time::Instant;

/// Tasks of a batch, and the number of single submissions compared with it.
const BATCH: usize = 1000;

pub(crate) async fn run(options: &Options) -> Result<String> {
    let tasks = options.get("tasks", 50_000)?;
    let payload = options.get("payload", 64)?;
    let spec = spec(payload)?;
    let (coordinator, _, _workers) = cluster(CoordinatorConfig::default(), Crew::ONE).await?;
    drive(&coordinator, &spec, tasks / 10, 64, false).await?;
    let mut wire = Vec::new();
    for (in_flight, tasks) in [(1, tasks / 10), (64, tasks)] {
        wire.push(travel(&coordinator, &spec, tasks, in_flight).await?);
    }
    let answer = json!({
        "payload_bytes": payload,
        "wire": wire,
        "submit": submit(&coordinator, &spec).await?,
    });
    coordinator.stop().await;
    Ok(answer.to_string())
}

/// Bytes of UDP payload, datagrams and processor time of the coordinator for each task, heartbeats
/// and acknowledgements included.
async fn travel(
    coordinator: &Coordinator,
    spec: &TaskSpec,
    tasks: usize,
    in_flight: usize,
) -> Result<Value> {
    let (before, cpu, began) = (coordinator.traffic(), cpu_seconds()?, Instant::now());
    drive(coordinator, spec, tasks, in_flight, false).await?;
    let (after, cpu) = (coordinator.traffic(), cpu_seconds()? - cpu);
    let each = |after: u64, before: u64| (after - before) as f64 / tasks as f64;
    Ok(json!({
        "in_flight": in_flight,
        "tasks": tasks,
        "sent_bytes": each(after.sent_bytes, before.sent_bytes),
        "received_bytes": each(after.received_bytes, before.received_bytes),
        "sent_datagrams": each(after.sent_datagrams, before.sent_datagrams),
        "received_datagrams": each(after.received_datagrams, before.received_datagrams),
        "coordinator_cpu_us": cpu * 1e6 / tasks as f64,
        "wall_us": began.elapsed().as_secs_f64() * 1e6 / tasks as f64,
    }))
}

/// Microseconds to submit a task, alone and in a batch, and until the whole batch has ended.
async fn submit(coordinator: &Coordinator, spec: &TaskSpec) -> Result<Value> {
    let (mut alone, mut batch) = ([f64::INFINITY; 2], [f64::INFINITY; 2]);
    let us = |began: Instant| began.elapsed().as_secs_f64() * 1e6 / BATCH as f64;
    for _ in 0..10 {
        let began = Instant::now();
        let mut ids = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            ids.push(coordinator.submit(spec.clone())?);
        }
        alone[0] = alone[0].min(us(began));
        for id in ids {
            coordinator.wait(id).await?;
        }
        alone[1] = alone[1].min(us(began));
        let began = Instant::now();
        let tasks = (0..BATCH).map(|_| (spec.clone(), Vec::new())).collect();
        let ids = coordinator.submit_all(tasks).await?;
        batch[0] = batch[0].min(us(began));
        for id in ids {
            coordinator.wait(id).await?;
        }
        batch[1] = batch[1].min(us(began));
    }
    Ok(json!({
        "tasks": BATCH,
        "single_us": alone[0],
        "single_until_ended_us": alone[1],
        "batch_us": batch[0],
        "batch_until_ended_us": batch[1],
    }))
}
