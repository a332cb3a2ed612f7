//! Benchmarks of the cluster: beside Ray, Dask and Celery, and alone in what only it can show.

mod parts;
mod peers;
mod selection;

pub(super) use peers::{REDIS_PORT, Redis};

use super::program::{example, json};
use super::run::Run;
use crate::cmd;
use anyhow::Result;
use clap::ValueEnum;
use serde_json::Value;
use std::path::PathBuf;

/// One of the things that are measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Tasks a second, beside peers.
    Throughput,
    /// What the coordinator adds to a task, beside peers and a bare stream.
    Latency,
    /// Many tasks at once, and more than the queue takes.
    Burst,
    /// Bytes and time around a task.
    Overhead,
    /// Resident memory by workers, and over many tasks.
    Memory,
    /// Workers that sleep, 1 to 50.
    Scaling,
    /// Choosing a worker of 50 and of 5,000.
    Selection,
    /// One event more among 50 to 5,000 workers and 1,000 to 1,000,000 tasks that wait.
    Crowd,
    /// A killed worker, a killed coordinator.
    Faults,
    /// Large inputs beside a bare stream.
    Transfer,
}

impl Part {
    /// The name of a run of this part alone.
    pub(super) fn bench(self) -> String {
        let value = self.to_possible_value();
        format!("cluster-{}", value.as_ref().map_or("part", |value| value.get_name()))
    }

    fn title(self) -> &'static str {
        match self {
            Self::Throughput => "Tasks a second, and latency, beside peers",
            Self::Latency => "Latency",
            Self::Burst => "Bursts",
            Self::Overhead => "Overhead of a task",
            Self::Memory => "Memory",
            Self::Scaling => "Scaling",
            Self::Selection => "Choosing a worker",
            Self::Crowd => "One event among many workers and tasks",
            Self::Faults => "Faults",
            Self::Transfer => "Large inputs",
        }
    }

    fn measure(self, run: &mut Run, noop: &Noop, tasks: usize, alone: bool) -> Result<String> {
        match self {
            // Both come of the same rounds.
            Self::Throughput => peers::run(run, noop, true, !alone),
            Self::Latency => peers::run(run, noop, false, true),
            Self::Burst => parts::burst(run, noop),
            Self::Overhead => parts::overhead(run, noop),
            Self::Memory => parts::memory(run, noop, tasks),
            Self::Scaling => parts::scaling(run, noop),
            Self::Selection => selection::run(run),
            Self::Crowd => parts::crowd(run, noop),
            Self::Faults => parts::faults(run, noop),
            Self::Transfer => parts::transfer(run, noop),
        }
    }
}

/// Measures one part, or all, and answers the tables. A failed part is noted and fails the run after the others are
/// written.
pub(super) fn run(
    run: &mut Run,
    part: Option<Part>,
    tasks: Option<usize>,
    quick: bool,
) -> Result<String> {
    let noop = Noop::build(quick)?;
    let tasks = tasks.unwrap_or(if quick { 20_000 } else { 1_000_000 });
    let parts: Vec<Part> = match part {
        Some(part) => vec![part],
        None => Part::value_variants().iter().copied().filter(|p| *p != Part::Latency).collect(),
    };
    let mut text = "Each cell: median of the rounds (least to most).\n".to_owned();
    for one in parts {
        text += &format!("\n## {}\n\n", one.title());
        match one.measure(run, &noop, tasks, part.is_some()) {
            Ok(table) => text += &table,
            Err(error) => {
                run.fail(&one.bench(), &format!("{error:#}"));
                text += &format!("Not measured: {error:#}\n");
            }
        }
    }
    Ok(text)
}

/// The load generator.
struct Noop {
    program: PathBuf,
    /// A few tasks once, to show that all works.
    quick: bool,
}

impl Noop {
    fn build(quick: bool) -> Result<Self> {
        Ok(Self { program: example("lgp-distributed", "noop")?, quick })
    }

    fn rounds(&self, rounds: usize) -> usize {
        if self.quick { 1 } else { rounds }
    }

    /// The number of tasks, or a fiftieth of it for a quick run.
    fn tasks(&self, tasks: usize) -> String {
        (if self.quick { tasks / 50 } else { tasks }).to_string()
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        json(cmd::command(&self.program).args(arguments))
    }

    /// The answers of several rounds.
    fn several(&self, rounds: usize, arguments: &[&str]) -> Result<Vec<Value>> {
        (0..self.rounds(rounds)).map(|_| self.json(arguments)).collect()
    }

    /// The answers of as many rounds of a program that measures the core without a cluster.
    fn beside(&self, name: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        let program = example("lgp-distributed-sim", name)?;
        let round = |_| json(cmd::command(&program).args(arguments));
        (0..self.rounds(3)).map(round).collect()
    }

    /// An empty folder on the disk that the checkout is on: a journal in memory would prove nothing.
    fn folder(&self, name: &str) -> Result<String> {
        let folder = cmd::root().join("target/xtask/noop").join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        Ok(folder.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_name_of_its_own() {
        let names: Vec<String> = Part::value_variants().iter().map(|p| p.bench()).collect();
        assert_eq!(names.len(), 10);
        assert_eq!(names[2], "cluster-burst");
        let mut sorted = names.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len());
    }
}
