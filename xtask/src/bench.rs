//! Measures: runs the thing several times, keeps every raw value, the machine and the commit.

mod measure;
mod run;

use crate::cmd;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use run::Run;
use std::path::{Path, PathBuf};

/// What can be measured.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum What {
    /// No-op tasks over QUIC between processes on this machine.
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
}

/// Measures `what`, writes the run, and compares it with `baseline`.
pub(crate) fn run(what: What, baseline: Option<&Path>, out: Option<PathBuf>) -> Result<()> {
    let name = match what {
        What::Cluster => "cluster",
        What::Demo => "demo",
        What::Rss => "rss",
        What::Size => "size",
        What::Build => "build",
        What::Micro => "micro",
    };
    // Read first: the run may be written over it.
    let baseline = baseline.map(Run::read).transpose()?;
    let mut run = Run::begin(name)?;
    match what {
        What::Cluster => measure::cluster(&mut run)?,
        What::Demo => measure::demo(&mut run)?,
        What::Rss => measure::rss(&mut run)?,
        What::Size => measure::size(&mut run)?,
        What::Build => measure::build(&mut run)?,
        What::Micro => measure::micro(&mut run)?,
    }
    print!("{}", run.summary());
    let out = out.unwrap_or_else(|| cmd::root().join("docs/bench-runs").join(run.file_name()));
    run.write(&out).with_context(|| format!("cannot write {}", out.display()))?;
    println!("written to {}", out.display());
    if let Some(baseline) = baseline {
        let worse = run.regressions(&baseline)?;
        for line in &worse {
            println!("regression: {line}");
        }
        if !worse.is_empty() {
            bail!("{} of the values got worse", worse.len());
        }
    }
    Ok(())
}
