//! Benchmarks of the control plane: a cluster with its state in its folder, in PostgreSQL, and in etcd and NATS; each
//! engine by itself; queues on Redis; and coordinators with very many workers.

mod cluster;
mod crowd;
mod durable;
mod engines;
mod processes;
mod queues;
mod tables;

use super::program::{example, example_with};
use super::run::Run;
use crate::cluster::{Profile, binary};
use crate::cmd;
use crate::kill::Engine;
use anyhow::Result;
use durable::Load;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A thing that is measured once a round, by its name.
type Step = (&'static str, fn(&Bench) -> Result<Value>);

const STEPS: [Step; 7] = [
    ("embedded", cluster::alone),
    ("postgres", |bench| cluster::several(bench, Engine::Postgres)),
    ("etcd", |bench| cluster::several(bench, Engine::Etcd)),
    ("celery", |bench| queues::measure(bench, "celery")),
    ("dramatiq", |bench| queues::measure(bench, "dramatiq")),
    ("crowd-postgres", |bench| crowd::measure(bench, Engine::Postgres)),
    ("crowd-etcd", |bench| crowd::measure(bench, Engine::Etcd)),
];

/// The programs, and the size of the measurements.
struct Bench {
    binary: PathBuf,
    /// Measures a log.
    log: PathBuf,
    /// The program that measures an engine through its bare client.
    engine: PathBuf,
    /// Many workers.
    crowd: PathBuf,
    load: Load,
    /// How long a turn of a log or an engine is.
    seconds: f64,
    workers: u64,
    /// The idle time of coordinators with many workers.
    idle_s: u64,
}

impl Bench {
    fn build(quick: bool) -> Result<Self> {
        let sizes = match quick {
            true => (Load { callers: 64, tasks: 400, alone: 40 }, 0.5, 60, 5),
            false => (Load { callers: 64, tasks: 5_000, alone: 400 }, 2.0, 1_000, 60),
        };
        let (load, seconds, workers, idle_s) = sizes;
        Ok(Self {
            binary: binary(Profile::Release)?,
            log: example("lgp-distributed-sim", "log")?,
            engine: example_with("lgp-distributed", &["scale"], "engine")?,
            crowd: example_with("lgp-distributed", &["scale"], "workers")?,
            load,
            seconds,
            workers,
            idle_s,
        })
    }

    /// An empty folder on the disk that the checkout is on: a log in memory would prove nothing.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = cmd::root().join("target/xtask/control").join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Runs the measurements with `only` in their names, and answers the tables. A failed measurement is noted and fails
/// the run after the others are written.
pub(super) fn run(run: &mut Run, only: &str, quick: bool) -> Result<String> {
    let bench = Bench::build(quick)?;
    let mut rounds = Vec::new();
    for number in 0..if quick { 1 } else { 3 } {
        let mut round = Map::new();
        for (name, measure) in STEPS.iter().filter(|(name, _)| name.contains(only)) {
            eprintln!("round {number}: {name}");
            match measure(&bench) {
                Ok(found) => drop(round.insert((*name).to_owned(), found)),
                Err(error) => run.fail(&format!("control-{name}"), &format!("{error:#}")),
            }
        }
        rounds.push(Value::Object(round));
    }
    tables::write(run, &bench, &rounds)
}
