//! The kill matrix: three coordinators that share an engine, and every fault of any part, one after another. Every
//! acknowledged task must end once, and work must go on.

mod callers;
mod client;
mod engine;
mod faults;
mod history;
mod judge;
mod net;
mod report;
mod rounds;
mod settle;
mod stage;

use crate::bench::Run;
use crate::cluster::{Profile, binary};
use crate::{apt, cmd};
use anyhow::{Context, Result, ensure};
pub(crate) use client::{Answer, Client};
pub(crate) use engine::Engine;
use history::History;
use rounds::Round;
use settle::Past;
pub(crate) use stage::{COORDINATORS, Stage};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the cluster is set up anew before a run is given up.
const STAGES_MAX: u64 = 40;

/// Flags of `kill`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What keeps the lead and the log.
    #[arg(long, value_enum, default_value = "postgres")]
    engine: Engine,
    /// How many rounds. One takes about ten seconds.
    #[arg(long, default_value_t = 30)]
    rounds: u64,
    /// What the faults, their moments and the load are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The round to begin with; with `--rounds 1`, one to repeat.
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// After so many minutes no further round begins.
    #[arg(long, value_name = "M")]
    minutes: Option<u64>,
    /// The program to run, instead of a debug build of this tree.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where to write the run, instead of docs/bench-runs.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs some rounds of faults, and writes the results.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { engine, seed, .. } = *options;
    let page = Run::begin(&format!("kill-matrix-{}", engine.name()))?;
    let binary = match &options.binary {
        Some(file) => file.canonicalize().with_context(|| format!("no {}", file.display()))?,
        None => binary(Profile::Dev)?,
    };
    let most = options.minutes.map_or(Duration::MAX, |minutes| Duration::from_secs(60 * minutes));
    let numbers = options.from..options.from + options.rounds;
    let plan = Plan { engine, seed, numbers, most };
    let (rounds, stages) = all(&plan, &binary)?;
    ensure!(!rounds.is_empty(), "no round was run");
    let tables = report::tables(&rounds, stages, seed);
    print!("{tables}");
    let date = page.file_name().chars().take(10).collect::<String>();
    let name = format!("{date}-kill-matrix-{}.md", engine.name());
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| cmd::root().join("docs/bench-runs").join(name));
    std::fs::write(&out, page.page(&tables))?;
    let lines: Vec<_> = rounds.iter().map(report::line).collect();
    std::fs::write(out.with_extension("txt"), lines.join("\n") + "\n")?;
    println!("written to {}", out.display());
    let failed = rounds.iter().filter(|round| !round.broken.is_empty()).count();
    ensure!(failed == 0, "{failed} of {} rounds failed", rounds.len());
    Ok(())
}

/// The rounds of a run.
struct Plan {
    engine: Engine,
    seed: u64,
    numbers: std::ops::Range<u64>,
    /// The time after which no further round begins.
    most: Duration,
}

/// Runs every round; also answers how often the cluster was set up.
fn all(plan: &Plan, binary: &Path) -> Result<(Vec<Round>, u64)> {
    let Plan { engine, seed, .. } = *plan;
    match engine {
        Engine::Postgres => apt::postgresql()?,
        Engine::Etcd => apt::etcd_and_nats()?,
    }
    let root = cmd::root().join("target/xtask").join(format!("kill-{}", engine.name()));
    let (began, mut rounds, mut stages) = (Instant::now(), Vec::new(), 0);
    let (mut stage, mut past) = (None, Past::default());
    for number in plan.numbers.clone() {
        if began.elapsed() > plan.most {
            break;
        }
        let mut on = match stage.take() {
            Some(stage) => stage,
            None => {
                ensure!(stages < STAGES_MAX, "the cluster was set up {stages} times");
                stages += 1;
                past = Past::default();
                Stage::apart(engine, binary, &root.join("stage"))?
            }
        };
        let again = format!(
            "cargo xtask kill --engine {} --seed {seed} --from {number} --rounds 1",
            engine.name()
        );
        let kept = root.join(format!("failed-{seed}-{number}"));
        let (history, fault) = (History::new(), faults::of_round(engine, seed, number));
        let round = rounds::run(&mut on, fault, (seed, number), &mut past, &history);
        let passed = round.as_ref().is_ok_and(|round| round.broken.is_empty());
        history.write(&root.join("history.jsonl"))?;
        if !passed {
            on.keep_logs(&kept)?;
            history.write(&kept.join("history.jsonl"))?;
        }
        let round = match round {
            Ok(round) => {
                stage = Some(on);
                round
            }
            Err(error) => Round::broken(number, fault.name(), format!("{error:#}")),
        };
        eprintln!("{}", report::line(&round));
        if !passed {
            eprintln!("kept in {}; again: {again}", kept.display());
        }
        rounds.push(round);
    }
    Ok((rounds, stages))
}
