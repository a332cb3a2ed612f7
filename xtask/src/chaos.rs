//! Proves the cluster's guarantee from outside on real processes: every acknowledged task ends
//! once, whatever is killed, stopped, cut off or full.

mod check;
mod clock;
mod disk;
mod faults;
mod job;
mod ledger;
mod load;
pub(crate) mod models;
mod onnx;
mod outputs;
mod partition;
mod picture;
pub(crate) mod process;
mod record;
mod rest;
mod rounds;
mod stage;
mod submission;
pub(crate) mod world;

use crate::bench::Run;
use crate::cluster::{Profile, binary};
use crate::cmd;
use crate::report::Outcome;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use rounds::{Plan, Results};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The seed of the short run.
const SAMPLE_SEED: u64 = 1;

/// What is done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Processes are killed and stopped, the network is bad or cut, the disk full and the clock
    /// wrong, round after round.
    Rounds,
    /// Links between network namespaces are cut, and that is noticed in time; takes root.
    Partitions,
    /// The clock jumps by hours and weeks.
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
    /// How many rounds; something is killed in three of five. A round takes about four seconds.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// What the faults, their moments and the load are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// After so many minutes no further round begins.
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// The round to begin with: goes on with the seed where an earlier run has ended.
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
    /// The program to run, instead of a debug build of this tree.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where to write the run, instead of docs/bench-runs.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs some rounds of faults, and writes the results.
pub(crate) fn run(options: &Options) -> Result<()> {
    let given = options.binary.as_deref();
    if options.what != What::Rounds {
        let outcome = other(options.what, given)?;
        for skip in &outcome.skipped {
            println!("skipped: {}: {}", skip.need, skip.reason);
        }
        println!("{} passed, {} failed", outcome.passed, outcome.failed.len());
        ensure!(outcome.failed.is_empty(), "the guarantee was broken: {:?}", outcome.failed);
        return Ok(());
    }
    let mut run = Run::begin("chaos")?;
    let most = options.minutes.map_or(Duration::MAX, |minutes| Duration::from_secs(60 * minutes));
    let plan = Plan::Dealt { from: options.from.max(1), to: options.rounds, most };
    let results = rounds(plan, options.seed, given)?;
    let build = if given.is_some() { "a build of its own" } else { "a debug build" };
    let table = record::table(&results, options.seed, build);
    record::values(&results, &mut run);
    print!("{table}");
    let file = run.file_name();
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| cmd::root().join("docs/bench-runs").join(file));
    run.write(&out).with_context(|| format!("cannot write {}", out.display()))?;
    std::fs::write(out.with_extension("md"), run.page(&table))?;
    println!("written to {}", out.display());
    for skip in &results.skipped {
        println!("skipped: {}: {}", skip.need, skip.reason);
    }
    if let Some(next) = results.next {
        println!("time was over; go on with --seed {} --from {next}", options.seed);
    }
    if !results.violations.is_empty() {
        bail!("the guarantee was broken {} times", results.violations.len());
    }
    Ok(())
}

/// Runs a few rounds, each a test, and the other checks.
pub(crate) fn suite() -> Result<Outcome> {
    let results = rounds(Plan::Sample, SAMPLE_SEED, None)?;
    let passed = results.rounds.values().map(Vec::len).sum();
    let failed = results.violations.into_iter().map(|violation| violation.what).collect();
    let mut outcome = Outcome { passed, failed, ..Outcome::default() };
    for what in [What::Partitions, What::Clock, What::Disk] {
        outcome.and(other(what, None)?);
    }
    Ok(outcome)
}

/// The given program, or one built now.
fn program(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(file) => Ok(file.canonicalize().with_context(|| format!("no {}", file.display()))?),
        None => binary(Profile::Dev),
    }
}

fn other(what: What, given: Option<&Path>) -> Result<Outcome> {
    let binary = program(given)?;
    let folder = |name: &str| cmd::root().join("target/xtask").join(name);
    match what {
        What::Partitions => partition::run(&binary, &folder("chaos-partitions")),
        What::Clock => clock::run(&binary, &folder("chaos-clock")),
        What::Disk => disk::run(&binary, &folder("chaos-disk")),
        What::Rounds => bail!("rounds are run by themselves"),
    }
}

fn rounds(plan: Plan, seed: u64, given: Option<&Path>) -> Result<Results> {
    let binary = program(given)?;
    rounds::run(&binary, &cmd::root().join("target/xtask/chaos"), plan, seed)
}
