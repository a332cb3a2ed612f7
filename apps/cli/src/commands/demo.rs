//! `demo`: a coordinator and two worker processes classify images; one worker is killed halfway,
//! and no image is lost.

use crate::cluster::digits::{self, Example};
use crate::cluster::{self, Cluster, Signals, temporary};
use crate::device::{self, NotUsed};
use crate::failure::{Failure, Result};
use crate::folder;
use crate::measure::Percentiles;
use crate::output::{self, Output};
use indicatif::ProgressBar;
use lgp_distributed::WorkerState;
use lgp_sdk::cluster::{TaskRecord, TaskSpec, TaskState};
use lgp_sdk::device::DeviceId;
use lgp_sdk::tensor::NamedTensor;
use lgp_server::ServerConfig;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Worker processes: one to lose and one to carry on.
pub(super) const WORKERS: usize = 2;
/// The number of tasks in flight: enough that both workers are busy and the lost one loses work.
const IN_FLIGHT: usize = 16;

/// Flags of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster demo --json")]
pub(crate) struct Args {
    /// Go on serving until ctrl-C
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    images: usize,
    correct: usize,
    pub(super) accuracy: f64,
    workers: usize,
    pub(super) workers_killed: usize,
    pub(super) lost: usize,
    pub(super) redone: usize,
    pub(super) tasks_per_s: f64,
    pub(super) latency_ms: Percentiles,
    queued_ms: Percentiles,
    pub(super) model_ms: Percentiles,
    pub(super) overhead_ms: Percentiles,
    device: String,
    devices_not_used: Vec<NotUsed>,
    #[serde(flatten)]
    serves: Option<Serves>,
}

/// The addresses of a demo that keeps serving.
#[derive(Debug, Serialize)]
struct Serves {
    http: String,
    grpc: String,
    /// The file with the key for all but inference.
    key_file: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let folder = temporary::Folder::new()?;
    temporary::block_on(async |signals| {
        let found = tokio::task::spawn_blocking(find_devices);
        let (device, not_used) = tokio::select! {
            found = found => found.map_err(Failure::internal)??,
            () = signals.next() => return Err(Failure::interrupted()),
        };
        out.note(format!("device    {device}"));
        for NotUsed { id, reason } in &not_used {
            out.note(format!("not used  {id}: {reason}"));
        }
        temporary::with((folder.path(), device, WORKERS), signals, async |cluster, signals| {
            out.note(format!("started   {WORKERS} worker processes over QUIC with mutual TLS"));
            show(cluster, folder.path(), args.keep, not_used, signals, out).await
        })
        .await
    })
}

/// The best device that runs models, and why the others are not used.
fn find_devices() -> Result<(DeviceId, Vec<NotUsed>)> {
    let device = device::id(device::resolve("auto")?.as_ref());
    Ok((device, device::not_used(device)))
}

/// The demo between the cluster's start and end.
async fn show(
    cluster: &Cluster,
    data: &Path,
    keep: bool,
    not_used: Vec<NotUsed>,
    signals: &mut Signals,
    out: Output,
) -> Result<()> {
    let images = digits::test_images()?;
    let bar = out.progress(images.len() as u64, "images");
    let measured = signals.until(classify(cluster, &images, &bar)).await;
    bar.finish_and_clear();
    let mut report = measured?.report(&images, cluster, not_used);
    let lost = report.lost;
    if keep {
        let access = cluster::access(&cluster.pki, data)?;
        let listeners = cluster::Listeners::local().await?;
        let service = cluster::serve(cluster, access, listeners, ServerConfig::default())?;
        let [http, grpc] = [service.url(), service.grpc_url()].map(str::to_owned);
        let key_file = folder::local_key(data);
        report.serves = Some(Serves { http, grpc, key_file });
        out.emit(&report, text)?;
        out.note("serving until ctrl-C");
        tokio::select! {
            () = signals.next() => {}
            () = cluster.driver.stop_requested() => {}
        }
        service.finish().await;
    } else {
        out.emit(&report, text)?;
    }
    match lost {
        0 => Ok(()),
        lost => {
            let lost = output::counted(lost, "task");
            Err(Failure::new("tasks_lost", format!("{lost} lost, expected none")))
        }
    }
}

/// The results.
pub(super) struct Measured {
    /// In the order in which tasks finished, each with the index of its image.
    records: Vec<(usize, TaskRecord)>,
    elapsed: Duration,
    killed: usize,
}

/// Submits every image as a task, and kills a worker when half of the results are back.
pub(super) async fn classify(
    cluster: &Cluster,
    images: &[Example],
    bar: &ProgressBar,
) -> Result<Measured> {
    let start = Instant::now();
    let mut in_flight = JoinSet::new();
    let mut records = Vec::with_capacity(images.len());
    let mut killed = 0;
    let mut rest = images.iter().enumerate();
    loop {
        while in_flight.len() < IN_FLIGHT
            && let Some((index, example)) = rest.next()
        {
            let input = NamedTensor::new(digits::INPUT, example.image.clone());
            let task = TaskSpec::new(cluster.digits.clone(), vec![input]);
            let coordinator = cluster.coordinator.clone();
            in_flight.spawn(async move { (index, coordinator.run(task).await) });
        }
        let Some(finished) = in_flight.join_next().await else { break };
        let (index, record) = finished.map_err(Failure::internal)?;
        records.push((index, record?));
        bar.inc(1);
        // Half of the images are still to come, so both workers have tasks in flight.
        if killed == 0 && records.len() * 2 >= images.len() && kill_a_worker(cluster) {
            killed += 1;
        }
    }
    Ok(Measured { records, elapsed: start.elapsed(), killed })
}

/// Kills the busiest worker, provided that it has work in flight.
fn kill_a_worker(cluster: &Cluster) -> bool {
    let workers = cluster.coordinator.workers();
    let busy = workers.iter().filter(|w| w.state == WorkerState::Ready && w.running > 0);
    busy.max_by_key(|w| w.running).is_some_and(|w| cluster.driver.kill(w.id.as_str()))
}

impl Measured {
    pub(super) fn report(
        &self,
        images: &[Example],
        cluster: &Cluster,
        not_used: Vec<NotUsed>,
    ) -> Report {
        let done = || self.records.iter().filter(|(_, r)| r.state == TaskState::Succeeded);
        let right = |(index, record): &&(usize, TaskRecord)| {
            let logits = record.outputs.as_ref().and_then(|outputs| outputs.first());
            logits.and_then(|logits| digits::answer(&logits.tensor)) == Some(images[*index].digit)
        };
        let of = |time: fn(&TaskRecord) -> f64| {
            Percentiles::of(done().map(|(_, record)| time(record)).collect())
        };
        let correct = done().filter(right).count();
        let device = cluster.coordinator.workers().into_iter().map(|worker| worker.device).next();
        Report {
            images: images.len(),
            correct,
            accuracy: correct as f64 / images.len().max(1) as f64,
            workers: WORKERS,
            workers_killed: self.killed,
            lost: images.len() - done().count(),
            redone: self.records.iter().filter(|(_, record)| record.attempts > 1).count(),
            tasks_per_s: self.records.len() as f64 / self.elapsed.as_secs_f64(),
            latency_ms: of(|r| {
                r.queued_ms + r.model_ms.unwrap_or(0.0) + r.overhead_ms.unwrap_or(0.0)
            }),
            queued_ms: of(|r| r.queued_ms),
            model_ms: of(|r| r.model_ms.unwrap_or(0.0)),
            overhead_ms: of(|r| r.overhead_ms.unwrap_or(0.0)),
            device: device.unwrap_or_default(),
            devices_not_used: not_used,
            serves: None,
        }
    }
}

fn text(report: &Report) -> String {
    let Report { images, correct, workers, workers_killed, lost, redone, tasks_per_s, .. } = report;
    let rows = [
        ("latency", report.latency_ms),
        (" queued", report.queued_ms),
        (" model", report.model_ms),
        (" overhead", report.overhead_ms),
    ]
    .map(|(name, Percentiles { p50, p95, p99 })| {
        [name.to_owned(), format!("{p50:.2}"), format!("{p95:.2}"), format!("{p99:.2}")]
    });
    let serves = match &report.serves {
        Some(Serves { http, grpc, key_file }) => {
            let key = key_file.display();
            format!("http      {http}\ngrpc      {grpc}\nkey       {key}\n")
        }
        None => String::new(),
    };
    let redone = output::counted(*redone, "task");
    format!(
        "accuracy  {:.1} % ({correct} of {images} images)\n\
         lost      {lost} of {images} tasks; {workers_killed} of {workers} workers killed, \
         {redone} redone\n\
         speed     {tasks_per_s:.0} tasks/s\n\n{}{serves}",
        report.accuracy * 100.0,
        output::table(["ms", "p50", "p95", "p99"], rows),
    )
}
