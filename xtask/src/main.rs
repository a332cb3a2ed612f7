//! Builds, tests and benches: composes cargo and hides nothing. Every command prints what it runs.

#![forbid(unsafe_code)]

mod alone;
mod apt;
mod bench;
mod book;
mod cards;
mod chaos;
mod clients;
mod cluster;
mod cmd;
mod conformance;
mod damage;
mod digits;
mod dist;
mod fuzz;
mod kept;
mod kernels;
mod kill;
mod kubernetes;
mod nehalem;
mod nvrtc;
mod oclgrind;
mod packages;
mod polaris;
mod promtool;
mod python;
mod readme;
#[path = "../../distributed/tests/cluster/relay.rs"]
mod relay;
mod report;
mod step;
mod test;
mod tidy;
mod wheel;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Builds, tests and benches the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything that must hold before a change is taken.
    Test {
        /// What must not be skipped: opencl, vulkan, cuda or python. May be given several times.
        #[arg(long, value_name = "NAME")]
        require: Vec<String>,
        /// Only the suites whose name contains this.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// The rules of the house that a program can check.
    Tidy,
    /// The book of docs/book as HTML below target/book. Installs mdBook there where it is missing.
    Book {
        /// Make the pages anew that show each command's help, instead.
        #[arg(long)]
        write: bool,
    },
    /// Each crate compiled alone, the first and the last under each backend's feature; of which the
    /// tests try a sample.
    Alone,
    /// Builds the radeon-cluster binary in release mode.
    Build {
        /// Build for one backend alone, by its cargo feature: vulkan, rocm, cuda or cpu; all of them
        /// without this.
        #[arg(long, value_name = "FEATURE")]
        backend: Option<String>,
    },
    /// Builds what is given to users: archives, a package for Debian, lists of what is in them, sums.
    Dist(dist::Options),
    /// Measures, and writes the raw run to docs/bench-runs.
    Bench {
        /// What to measure.
        #[arg(value_enum)]
        what: bench::What,
        #[command(flatten)]
        options: bench::Options,
    },
    /// The laws that every implementation obeys, run against each one found here.
    Conformance {
        /// Which laws.
        #[arg(value_enum)]
        suite: conformance::Suite,
        /// A device that must not be skipped, such as opencl. May be given several times.
        #[arg(long, value_name = "NAME")]
        require: Vec<String>,
        /// Make the documents anew that tell the results: docs/onnx-operators.md.
        #[arg(long)]
        write: bool,
    },
    /// Every kernel as Mesa's compiler makes it for an RX 580, through OpenCL and Vulkan: what it takes, the rules that
    /// it breaks, and an estimate of networks. Makes docs/kernels.md anew. Unpacks Debian's Mesa below target; takes
    /// root.
    Cards {
        /// Make the table of docs/cards.md anew instead, of what owners of cards have measured.
        #[arg(long)]
        measured: bool,
    },
    /// Trains the digits model again and compares it with the bundled one.
    TrainDigits {
        /// Replace the bundled model.
        #[arg(long)]
        write: bool,
    },
    /// Damaged files given to the readers of files from elsewhere, with libFuzzer.
    Fuzz {
        /// Which readers.
        #[arg(value_enum)]
        target: fuzz::Target,
        #[command(flatten)]
        options: fuzz::Options,
    },
    /// The cluster's core, its network code, or several coordinators, under simulated time and failures.
    Sim {
        /// How many seeds to run.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// The first of them; alone, a seed to repeat.
        #[arg(long)]
        seed: Option<u64>,
        /// Plant known faults in the core instead, one after another: each must be noticed within
        /// so many seeds.
        #[arg(long, value_name = "SEEDS", conflicts_with_all = ["seeds", "seed"])]
        mutants: Option<u64>,
        /// Simulate the network code: a coordinator, workers and clients in one process, on a
        /// simulated network and clock. `--mutants` then plants faults there.
        #[arg(long)]
        glue: bool,
        /// Simulate several coordinators that share a lead and a log, with partitions between all of
        /// them. `--mutants` then plants faults there.
        #[arg(long, conflicts_with = "glue")]
        among: bool,
    },
    /// Journals of durable tasks, damaged in every bit that is read and cut at every length: each
    /// must be refused or read as it was. Takes some minutes. Writes the run to docs/bench-runs.
    JournalDamage {
        /// Where to write the run, instead of docs/bench-runs.
        #[arg(long, value_name = "FILE")]
        out: Option<std::path::PathBuf>,
    },
    /// A cluster of real processes under load, with processes killed and stopped and its network
    /// cut: what was acknowledged must end once. Writes the run to docs/bench-runs.
    Chaos(chaos::Options),
    /// Three coordinators that share PostgreSQL, or etcd and NATS: each of them, each server and each
    /// link is killed, stopped, cut or full in turn. Takes root. Writes the run to docs/bench-runs.
    Kill(kill::Options),
    /// Random programs of the kernels' language on a device: each must give what it means in C.
    RandomPrograms {
        /// The device, such as vulkan:0.
        device: String,
        /// How many.
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        /// The first of them.
        #[arg(long, default_value_t = 0)]
        first: u64,
    },
    /// What every kernel takes from AMD's processors, as clang says. A kernel that spills, or leaves a
    /// processor too few waves, fails.
    Polaris {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// What every kernel takes from NVIDIA's processors, as NVRTC says. A kernel that spills fails.
    Nvrtc,
    /// Builds the wheel of the Python package, and tests it in an environment that has only that.
    Python,
    /// Sets up the Python environment that the agreement tests use, and prints its interpreter.
    PythonEnv,
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<()> {
    match command {
        Command::Test { require, only } => test::run(&require, only.as_deref()),
        Command::Tidy => tidy::run(),
        Command::Book { write } => book::run(write),
        Command::Alone => alone::run(),
        Command::Build { backend } => {
            let mut cargo = cmd::cargo();
            cargo.args(["build", "--release", "--bin", "radeon-cluster"]);
            if let Some(backend) = backend {
                let all = cmd::backends(&cmd::metadata()?);
                ensure!(all.contains(&backend), "no backend {backend:?}, only {}", all.join(", "));
                cargo.args(["--no-default-features", "--features", backend.as_str()]);
            }
            cmd::run(&mut cargo)
        }
        Command::Dist(options) => packages::run(&dist::run(&options)?),
        Command::Bench { what, options } => bench::run(what, options),
        Command::Conformance { suite, require, write } => conformance::run(suite, &require, write),
        Command::Cards { measured: false } => cards::run(),
        Command::Cards { measured: true } => cards::measured::run(),
        Command::TrainDigits { write } => digits::train(write),
        Command::Fuzz { target, options } => fuzz::run(target, &options),
        Command::Sim { seeds, seed, mutants, glue, among } => {
            let part = match (glue, among) {
                (true, _) => Some("glue"),
                (false, true) => Some("among"),
                (false, false) => None,
            };
            cmd::run(&mut sim(seeds, seed, mutants, part))
        }
        Command::Chaos(options) => chaos::run(&options),
        Command::Kill(options) => kill::run(&options),
        Command::JournalDamage { out } => {
            damage::run(example(SIMULATION, "journal").arg("damage"), out)
        }
        Command::RandomPrograms { device, count, first } => {
            let mut programs = example("lgp-hal-conformance", "random_programs");
            cmd::run(programs.args([device, count.to_string(), first.to_string()]))
        }
        Command::Polaris { json } => polaris::run(json),
        Command::Nvrtc => nvrtc::run(),
        Command::Python => wheel::run(),
        Command::PythonEnv => {
            println!("{}", python::interpreter()?.display());
            Ok(())
        }
    }
}

/// The command that simulates clusters over `seeds` seeds: a named part, or the core.
fn sim(
    seeds: u64,
    seed: Option<u64>,
    mutants: Option<u64>,
    part: Option<&str>,
) -> std::process::Command {
    let mut command = example(SIMULATION, "sim");
    command.args(part);
    match (mutants, seed) {
        (Some(seeds), _) => command.arg("--mutants").arg(seeds.to_string()),
        (None, Some(seed)) => command.arg("--seed").arg(seed.to_string()),
        (None, None) => command.arg("--seeds").arg(seeds.to_string()),
    };
    command
}

const SIMULATION: &str = "lgp-distributed-sim";

/// An example of a package, built with optimisations.
fn example(package: &str, name: &str) -> std::process::Command {
    let mut cargo = cmd::cargo();
    cargo.args(["run", "--release", "-p", package, "--example", name, "--"]);
    cargo
}
