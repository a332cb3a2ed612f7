//! Runs benchmarks several times, and keeps every raw value, the machine and the commit.

mod cluster;
mod comm;
mod control;
mod engine;
mod measure;
mod memory;
mod program;
mod run;
mod serving;
// The only implementation of intervals. A dependency on its crate would compile all layers below first.
#[allow(dead_code, unreachable_pub, reason = "another crate's module, of which a part is needed")]
#[path = "../../apps/measure/src/stats.rs"]
mod stats;
mod table;

use crate::cmd;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
pub(crate) use run::{Better, Run};
use std::path::PathBuf;

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// The cluster, beside Ray, Dask and Celery and alone; whole, or one PART of it.
    Cluster,
    /// The demo, from its start to its end.
    Demo,
    /// Resident memory of a running coordinator.
    Rss,
    /// Size of the release binary.
    Size,
    /// Building the demo with nothing built before.
    Build,
    /// The kernels, and a scheduling decision, by criterion.
    Micro,
    /// The allocator of device memory over a simulated device.
    Memory,
    /// Transfers and collectives between devices.
    Comm,
    /// This engine beside ONNX Runtime, OpenVINO, rten and tract.
    Engine,
    /// Serving over HTTP and gRPC, beside MLServer, Ray Serve and BentoML.
    Serving,
    /// Durable tasks by what keeps them, beside the engines themselves, Celery and Dramatiq.
    Control,
}

/// How it is measured.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cluster only: the one part to measure.
    #[arg(value_enum)]
    part: Option<cluster::Part>,
    /// Cluster only: tasks of the run that shows whether memory and speed stay the same.
    #[arg(long, value_name = "N")]
    tasks: Option<usize>,
    /// An earlier run; a value that got worse than it fails.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Where to write the run, instead of docs/bench-runs.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Engines, serving and control: the cases or parts whose name contains this, such as resnet50-f32-t1 or load,
    /// written below target.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Engines, cluster, serving and control: a few short rounds, which show that all works, written below target.
    #[arg(long)]
    quick: bool,
}

/// Measures `what`, writes the run, and compares it with `baseline`.
pub(crate) fn run(what: What, options: Options) -> Result<()> {
    let Options { part, tasks, baseline, out, only, quick } = options;
    if !matches!(what, What::Engine | What::Serving | What::Control) && !only.is_empty() {
        bail!("--only is for the benchmarks of engines, of serving and of the control plane");
    }
    let has_quick = [What::Engine, What::Cluster, What::Serving, What::Control].contains(&what);
    if quick && !has_quick {
        bail!("--quick is for the benchmarks of engines, cluster, serving and control plane");
    }
    if !matches!(what, What::Cluster) && (part.is_some() || tasks.is_some()) {
        bail!("a part and --tasks are for the benchmark of the cluster");
    }
    let name = match what {
        What::Cluster => "cluster",
        What::Demo => "demo",
        What::Rss => "rss",
        What::Size => "size",
        What::Build => "build",
        What::Micro => "micro",
        What::Memory => "memory",
        What::Comm => "comm",
        What::Engine => "engine",
        What::Serving => "serving",
        What::Control => "control",
    };
    // Read first: the run may be written over it.
    let baseline = baseline.as_deref().map(Run::read).transpose()?;
    let name = part.map_or_else(|| name.to_owned(), cluster::Part::bench);
    let mut run = Run::begin(&name)?;
    let mut table = None;
    match what {
        What::Cluster => table = Some(cluster::run(&mut run, part, tasks, quick)?),
        What::Demo => measure::demo(&mut run)?,
        What::Rss => measure::rss(&mut run)?,
        What::Size => measure::size(&mut run)?,
        What::Build => measure::build(&mut run)?,
        What::Micro => measure::micro(&mut run)?,
        What::Memory => table = Some(memory::run(&mut run)?),
        What::Comm => table = Some(comm::run(&mut run)?),
        What::Engine => {
            let effort = if quick { engine::Effort::QUICK } else { engine::Effort::FULL };
            table = Some(engine::run(&mut run, &only, &effort)?);
        }
        What::Serving => table = Some(serving::run(&mut run, &only, quick)?),
        What::Control => table = Some(control::run(&mut run, &only, quick)?),
    }
    print!("{}", table.as_deref().map_or_else(|| run.summary(), str::to_owned));
    // A run of some cases must not replace the day's whole run.
    let partial = quick || !only.is_empty();
    let folder = if partial { "target/xtask" } else { "docs/bench-runs" };
    let out = out.unwrap_or_else(|| cmd::root().join(folder).join(run.file_name()));
    run.write(&out).with_context(|| format!("cannot write {}", out.display()))?;
    println!("written to {}", out.display());
    if let Some(table) = table {
        let page = out.with_extension("md");
        std::fs::write(&page, run.page(&table))?;
        println!("written to {}", page.display());
    }
    if !run.failed().is_empty() {
        bail!("not measured: {}", run.failed().join(", "));
    }
    if let Some(baseline) = baseline {
        let worse = run.regressions(&baseline, &only)?;
        for line in &worse {
            println!("regression: {line}");
        }
        if !worse.is_empty() {
            bail!("{} of the values got worse", worse.len());
        }
    }
    Ok(())
}
