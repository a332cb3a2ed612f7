//! `bench cluster`: a cluster of this machine alone, with one worker and with more.

use super::Common;
use super::frame::{Prepared, Run};
use super::sample::Better;
use crate::cluster::{Cluster, digits, temporary};
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use indicatif::ProgressBar;
use lgp_measure::stats::percentile;
use lgp_sdk::cluster::{TaskRecord, TaskSpec, TaskState};
use lgp_sdk::tensor::NamedTensor;
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long workers may take to come or go.
const SETTLE: Duration = Duration::from_secs(60);

/// Flags of `bench cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster bench cluster --workers 4 --json\n\n\
    A coordinator and worker processes of this machine classify images of digits over QUIC, with 1, 2, 4\n\
    … workers up to those that are asked for. Latency is that of tasks while so many are in flight;\n\
    overhead is what of it was neither waiting nor the model. Scaling compares with as many times the\n\
    speed of one worker: workers share the cores, so a machine of few cores cannot reach it.")]
pub(super) struct Args {
    /// Worker processes at most
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Tasks in flight
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: u16,
    /// The device of each worker: auto, cpu, vulkan:0 …
    #[arg(long, default_value = "auto")]
    device: String,
    #[command(flatten)]
    common: Common,
}

/// How much is done.
struct Effort {
    rounds: usize,
    tasks: usize,
}

/// The speed of a number of workers.
#[derive(Debug, Serialize)]
struct Scaled {
    workers: usize,
    tasks_per_s: f64,
    /// The speed as a share of `workers` times one worker's speed.
    efficiency: f64,
}

/// Measures a cluster.
pub(super) fn run(args: &Args, out: Output) -> Result<()> {
    let effort = match args.common.quick {
        true => Effort { rounds: 4, tasks: 40 },
        false => Effort { rounds: 10, tasks: 1_000 },
    };
    let prepared = Prepared::of("cluster", &args.common)?;
    let folder = temporary::Folder::new()?;
    temporary::block_on(async |signals| {
        let id = device::id(device::resolve(&args.device)?.as_ref());
        let counts = counts(usize::from(args.workers));
        let config = json!({
            "workers": counts,
            "in_flight": args.in_flight,
            "tasks": effort.tasks,
            "device": id.to_string(),
        });
        let mut measured = prepared.begin(config)?;
        let bar = out.progress((counts.len() * effort.rounds) as u64, "rounds");
        temporary::with((folder.path(), id, 1), signals, async |cluster, signals| {
            let all = async {
                for &workers in &counts {
                    scale(cluster, workers).await?;
                    let in_flight = usize::from(args.in_flight);
                    rounds(cluster, (workers, in_flight), &effort, &mut measured, &bar).await?;
                }
                Ok(())
            };
            signals.until(all).await
        })
        .await?;
        bar.finish_and_clear();
        let rate = |workers: &usize| measured.median(&format!("{workers} throughput"));
        let one = rate(&1);
        let scaled: Vec<Scaled> = counts
            .iter()
            .map(|count| {
                let tasks_per_s = rate(count);
                let efficiency = tasks_per_s / (one * *count as f64).max(f64::MIN_POSITIVE);
                Scaled { workers: *count, tasks_per_s, efficiency }
            })
            .collect();
        let text = text(&scaled, &measured);
        measured.finish(json!({ "scaling": scaled }), || text, out)
    })
}

/// 1, 2, 4 … and the most.
fn counts(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |count| Some(count * 2));
    powers.take_while(|count| *count < most).chain([most]).collect()
}

/// Scales the cluster, and waits until that many workers have the model.
async fn scale(cluster: &Cluster, workers: usize) -> Result<()> {
    cluster.driver.resize(workers);
    let begin = Instant::now();
    while cluster.coordinator.workers_with(&cluster.digits).len() != workers {
        if begin.elapsed() > SETTLE {
            let wanted = output::counted(workers, "worker");
            let message = format!("{wanted} were not ready within {} s", SETTLE.as_secs());
            return Err(Failure::new("worker_start_failed", message));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Runs the rounds for a number of workers; the first one warms up.
async fn rounds(
    cluster: &Cluster,
    (workers, in_flight): (usize, usize),
    effort: &Effort,
    measured: &mut Run<'_>,
    bar: &ProgressBar,
) -> Result<()> {
    for round in 0..=effort.rounds {
        let begin = Instant::now();
        let records = classify(cluster, effort.tasks, in_flight).await?;
        let seconds = begin.elapsed().as_secs_f64();
        if round == 0 {
            continue;
        }
        bar.inc(1);
        let rate = records.len() as f64 / seconds;
        measured.add(format!("{workers} throughput"), "1/s", Better::Higher, [rate]);
        let of = |time: fn(&TaskRecord) -> f64| {
            let mut times: Vec<f64> = records.iter().map(time).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let model = |r: &TaskRecord| r.model_ms.unwrap_or(0.);
        let overhead = |r: &TaskRecord| r.overhead_ms.unwrap_or(0.);
        for (what, times) in [
            (
                "latency",
                of(|r| r.queued_ms + r.model_ms.unwrap_or(0.) + r.overhead_ms.unwrap_or(0.)),
            ),
            ("model", of(model)),
            ("overhead", of(overhead)),
        ] {
            for percent in [50, 95, 99] {
                let name = format!("{workers} {what} p{percent}");
                measured.add(name, "ms", Better::Lower, [percentile(&times, percent)]);
            }
        }
    }
    Ok(())
}

/// Submits the images in a cycle until `tasks` tasks are done.
async fn classify(cluster: &Cluster, tasks: usize, in_flight: usize) -> Result<Vec<TaskRecord>> {
    let images = digits::test_images()?;
    let mut rest = images.iter().cycle().take(tasks);
    let mut running = JoinSet::new();
    let mut records = Vec::with_capacity(tasks);
    loop {
        while running.len() < in_flight
            && let Some(example) = rest.next()
        {
            let input = NamedTensor::new(digits::INPUT, example.image.clone());
            let task = TaskSpec::new(cluster.digits.clone(), vec![input]);
            let coordinator = cluster.coordinator.clone();
            running.spawn(async move { coordinator.run(task).await });
        }
        let Some(finished) = running.join_next().await else { return Ok(records) };
        let record = finished.map_err(Failure::internal)??;
        if record.state != TaskState::Succeeded {
            let why = record.error.map_or("it says no reason".to_owned(), |error| error.message);
            return Err(Failure::new("task_failed", format!("a task failed: {why}")));
        }
        records.push(record);
    }
}

fn text(scaled: &[Scaled], measured: &Run<'_>) -> String {
    let rows = scaled.iter().map(|Scaled { workers, tasks_per_s, efficiency }| {
        let cell = |what: &str| format!("{:.2}", measured.median(&format!("{workers} {what}")));
        let percent = format!("{:.0} %", 100. * efficiency);
        let [p50, p95, p99] = ["latency p50", "latency p95", "latency p99"].map(cell);
        let [model, overhead] = ["model p50", "overhead p50"].map(cell);
        let rate = format!("{tasks_per_s:.0}");
        [workers.to_string(), rate, percent, p50, p95, p99, model, overhead]
    });
    let headings =
        ["workers", "tasks/s", "of ideal", "p50 ms", "p95 ms", "p99 ms", "model ms", "overhead ms"];
    format!(
        "medians of rounds; model and overhead are their p50\n{}",
        output::table(headings, rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_double_until_there_are_enough() {
        for (most, expected) in
            [(1, vec![1]), (2, vec![1, 2]), (6, vec![1, 2, 4, 6]), (8, vec![1, 2, 4, 8])]
        {
            assert_eq!(counts(most), expected);
        }
    }
}
