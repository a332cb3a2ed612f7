//! Tasks one after another from many callers: how many a second, and how long each takes.

use crate::Result;
use crate::options::Options;
use crate::workers::{Crew, cluster, rss_bytes, spec};
use lgp_distributed::{Coordinator, CoordinatorConfig, TaskSpec, TaskState};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// One worker, and one run for each number of tasks in flight.
pub(crate) async fn run(options: &Options) -> Result<String> {
    let slots = options.get("slots", Crew::ONE.slots)?;
    let tasks = options.get("tasks", 100_000)?;
    let journal = options.durable().map(|folder| folder.join("noop.journal"));
    let mut spec = spec(options.get("payload", 64)?)?;
    spec.durable = journal.is_some();
    let config = CoordinatorConfig { journal, ..Default::default() };
    let (coordinator, _, _workers) = cluster(config, Crew { slots, ..Crew::ONE }).await?;
    let rss_bytes_before = rss_bytes()?;
    let mut runs = Vec::new();
    let lists = options.list("in-flight", &[64, 1])?;
    if let Some(&first) = lists.first() {
        measure(&coordinator, &spec, tasks / 10, first).await?;
    }
    for in_flight in lists {
        // A single task takes some ten times as long as one of many.
        let tasks = if in_flight == 1 { tasks.div_ceil(10) } else { tasks };
        runs.push(measure(&coordinator, &spec, tasks, in_flight).await?);
    }
    let report = Report { runs, slots, rss_bytes_before, rss_bytes: rss_bytes()? };
    coordinator.drain().await;
    coordinator.stop().await;
    Ok(serde_json::to_string(&report)?)
}

#[derive(Serialize)]
struct Report {
    runs: Vec<Run>,
    slots: u32,
    /// The memory of the coordinator's process, which is also the load generator.
    rss_bytes_before: u64,
    rss_bytes: u64,
}

/// The result for one number of tasks in flight.
#[derive(Serialize)]
pub(crate) struct Run {
    pub(crate) in_flight: usize,
    pub(crate) tasks: usize,
    pub(crate) seconds: f64,
    pub(crate) tasks_per_s: f64,
    pub(crate) latency_us: Percentiles,
    pub(crate) queued_us: Percentiles,
    pub(crate) model_us: Percentiles,
    pub(crate) overhead_us: Percentiles,
}

#[derive(Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Percentiles {
    /// Converts samples in milliseconds to percentiles in microseconds.
    pub(crate) fn of_ms(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        // Nearest rank, as in the coordinator's own statistics.
        let at = |per_mille: usize| {
            samples.get((samples.len() * per_mille).div_ceil(1000).saturating_sub(1)).copied()
        };
        let us = |per_mille| at(per_mille).unwrap_or_default() * 1e3;
        Self { p50: us(500), p95: us(950), p99: us(990), max: us(1000) }
    }
}

/// Milliseconds of one task: waiting, in the executor, and the rest.
type Parts = (f64, f64, f64);

/// Lets `in_flight` callers run tasks one after another until `tasks` have run.
pub(crate) async fn measure(
    coordinator: &Coordinator,
    spec: &TaskSpec,
    tasks: usize,
    in_flight: usize,
) -> Result<Run> {
    let began = Instant::now();
    let parts = drive(coordinator, spec, tasks, in_flight, true).await?;
    let seconds = began.elapsed().as_secs_f64();
    let of = |part: fn(&Parts) -> f64| Percentiles::of_ms(parts.iter().map(part).collect());
    Ok(Run {
        in_flight,
        tasks,
        seconds,
        tasks_per_s: tasks as f64 / seconds,
        latency_us: of(|r| r.0 + r.1 + r.2),
        queued_us: of(|r| r.0),
        model_us: of(|r| r.1),
        overhead_us: of(|r| r.2),
    })
}

/// Runs tasks; returns the parts of each one if they are kept.
pub(crate) async fn drive(
    coordinator: &Coordinator,
    spec: &TaskSpec,
    tasks: usize,
    in_flight: usize,
    keep: bool,
) -> Result<Vec<Parts>> {
    let left = Arc::new(AtomicUsize::new(tasks));
    let callers: Vec<_> = (0..in_flight)
        .map(|_| {
            let (coordinator, left) = (coordinator.clone(), Arc::clone(&left));
            let spec = spec.clone();
            tokio::spawn(async move {
                let mut parts = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let record = coordinator.run(spec.clone()).await?;
                    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
                    if keep {
                        let ms = |part: Option<f64>| part.unwrap_or_default();
                        parts.push((record.queued_ms, ms(record.model_ms), ms(record.overhead_ms)));
                    }
                }
                Ok::<_, lgp_distributed::Error>(parts)
            })
        })
        .collect();
    let mut parts = Vec::with_capacity(if keep { tasks } else { 0 });
    for caller in callers {
        parts.extend(caller.await??);
    }
    Ok(parts)
}
