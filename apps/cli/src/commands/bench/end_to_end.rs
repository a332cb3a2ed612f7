//! `bench end-to-end`: the demo several times, from images to answers with a worker killed halfway.

use super::Common;
use super::frame::Prepared;
use super::sample::Better;
use crate::cluster::{digits, temporary};
use crate::commands::demo::{self, WORKERS};
use crate::device;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use indicatif::ProgressBar;
use serde_json::json;
use std::time::Instant;

/// Flags of `bench end-to-end`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster bench end-to-end --json\n\n\
    Each round starts a coordinator and two workers, classifies images of digits, kills a worker\n\
    halfway, and fails unless every image is answered. whole is the time of all of that.")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Measures the demo.
pub(super) fn run(args: &Args, out: Output) -> Result<()> {
    let (rounds, images) = if args.common.quick { (4, 60) } else { (10, usize::MAX) };
    let prepared = Prepared::of("end-to-end", &args.common)?;
    let mut images_of_all = digits::test_images()?;
    images_of_all.truncate(images);
    let images = images_of_all;
    let folder = temporary::Folder::new()?;
    temporary::block_on(async |signals| {
        let id = device::id(device::resolve("auto")?.as_ref());
        let config = json!({"images": images.len(), "workers": WORKERS, "device": id.to_string()});
        let mut measured = prepared.begin(config)?;
        let bar = out.progress(rounds, "rounds");
        let mut killed = 0;
        for round in 0..rounds {
            let data = folder.within(&round.to_string())?;
            let begin = Instant::now();
            let place = (data.as_path(), id, WORKERS);
            let report = temporary::with(place, signals, async |cluster, signals| {
                let bar = ProgressBar::hidden();
                let done = signals.until(demo::classify(cluster, &images, &bar)).await?;
                Ok(done.report(&images, cluster, Vec::new()))
            });
            let report = report.await?;
            measured.add("whole", "s", Better::Lower, [begin.elapsed().as_secs_f64()]);
            // The remains are removed with the folder of all rounds.
            let _ = std::fs::remove_dir_all(&data);
            bar.inc(1);
            if report.lost > 0 {
                let lost = output::counted(report.lost, "task");
                return Err(Failure::new("tasks_lost", format!("{lost} lost, expected none")));
            }
            killed += report.workers_killed;
            measured.add("throughput", "1/s", Better::Higher, [report.tasks_per_s]);
            measured.add("accuracy", "%", Better::Higher, [100. * report.accuracy]);
            measured.add("redone", "tasks", Better::Neither, [report.redone as f64]);
            for (what, times) in [
                ("latency", report.latency_ms),
                ("model", report.model_ms),
                ("overhead", report.overhead_ms),
            ] {
                for (name, ms) in [("p50", times.p50), ("p95", times.p95), ("p99", times.p99)] {
                    measured.add(format!("{what} {name}"), "ms", Better::Lower, [ms]);
                }
            }
        }
        bar.finish_and_clear();
        let text = measured.table();
        measured.finish(json!({ "workers_killed": killed, "lost": 0 }), || text, out)
    })
}
