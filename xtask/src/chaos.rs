//! The cluster's guarantee, proved from outside on real processes: what was acknowledged ends once,
//! whatever is killed, stopped, cut off or full.

mod clock;
mod disk;
mod fault;
mod ledger;
mod load;
mod partition;
mod picture;
mod process;
mod record;
mod rest;
mod rounds;
mod stage;

use crate::bench::Run;
use crate::cluster::{Profile, binary};
use crate::cmd;
use crate::report::Outcome;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use rounds::{Plan, Results};
use std::path::PathBuf;

/// What the short run draws from.
const SAMPLE_SEED: u64 = 1;

/// What is done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Processes are killed and stopped, round after round, and the network is bad at times.
    Rounds,
    /// Links between network namespaces are cut; takes root.
    Partitions,
    /// The clock jumps.
    Clock,
    /// The disk fills up; takes root.
    Disk,
}

/// Flags of `chaos`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What is done.
    #[arg(value_enum, default_value = "rounds")]
    what: What,
    /// How many rounds; something is killed in three of four.
    #[arg(long, default_value_t = 280)]
    rounds: u64,
    /// What the faults, their moments and the load are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write the run, instead of docs/bench-runs.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Does damage for some rounds, and writes what came of it.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.what != What::Rounds {
        let outcome = other(options.what)?;
        for skip in &outcome.skipped {
            println!("skipped: {}: {}", skip.need, skip.reason);
        }
        println!("{} passed, {} failed", outcome.passed, outcome.failed.len());
        ensure!(outcome.failed.is_empty(), "the guarantee was broken: {:?}", outcome.failed);
        return Ok(());
    }
    let mut run = Run::begin("chaos")?;
    let results = rounds(&Plan::Dealt(options.rounds), options.seed)?;
    let table = record::table(&results, options.seed);
    record::values(&results, &mut run);
    print!("{table}");
    let file = run.file_name();
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| cmd::root().join("docs/bench-runs").join(file));
    run.write(&out).with_context(|| format!("cannot write {}", out.display()))?;
    std::fs::write(out.with_extension("md"), run.page(&table))?;
    println!("written to {}", out.display());
    if !results.violations.is_empty() {
        bail!("the guarantee was broken {} times", results.violations.len());
    }
    Ok(())
}

/// A few rounds, each a test, and everything else.
pub(crate) fn suite() -> Result<Outcome> {
    let results = rounds(&Plan::Sample, SAMPLE_SEED)?;
    let passed = results.rounds.values().map(Vec::len).sum();
    let mut outcome = Outcome { passed, failed: results.violations, ..Outcome::default() };
    for what in [What::Partitions, What::Clock, What::Disk] {
        outcome.and(other(what)?);
    }
    Ok(outcome)
}

fn other(what: What) -> Result<Outcome> {
    let binary = binary(Profile::Dev)?;
    let folder = |name: &str| cmd::root().join("target/xtask").join(name);
    match what {
        What::Partitions => partition::run(&binary, &folder("chaos-partitions")),
        What::Clock => clock::run(&binary, &folder("chaos-clock")),
        What::Disk => disk::run(&binary, &folder("chaos-disk")),
        What::Rounds => bail!("rounds are run by themselves"),
    }
}

fn rounds(plan: &Plan, seed: u64) -> Result<Results> {
    let binary = binary(Profile::Dev)?;
    let folder = cmd::root().join("target/xtask/chaos");
    rounds::run(&binary, &folder, plan, seed)
}
