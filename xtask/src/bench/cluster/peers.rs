//! Empty tasks, beside Ray, Dask and Celery: how many a second, and the time of one.

use super::Noop;
use crate::bench::run::{Better, Run};
use crate::bench::table::{Column, spread};
use crate::{apt, cmd, python};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub(in crate::bench) const REDIS_PORT: &str = "16379";
const SYSTEMS: [&str; 4] = ["ray", "ray-actor", "dask", "celery"];
/// The lower bounds for a task, and whether a second thread makes the answer: a worker needs one, because a model may
/// block.
const FLOORS: [(&str, &str); 2] = [
    ("a bare QUIC stream a request", "false"),
    ("a bare QUIC stream a request, answered by a thread", "true"),
];

/// The shown figures of a system, by name.
const THROUGHPUT: [Column; 3] = [
    Column::higher("1 in flight", "1/s", "per_s_1"),
    Column::higher("64 in flight", "1/s", "per_s_64"),
    Column::higher("256 in flight, peers: all at once", "1/s", "per_s_many"),
];
const LATENCY: [Column; 4] = [
    Column::lower("a caller waits, p50", "us", "alone_p50_us"),
    Column::lower("p99", "us", "alone_p99_us"),
    Column::lower("of it added by the coordinator, p50", "us", "overhead_p50_us"),
    Column::lower("p99", "us", "overhead_p99_us"),
];

/// A system's figures in one round, by name.
type Figures = BTreeMap<String, f64>;

/// Measures all systems in turn, and answers the tables that are wanted.
pub(super) fn run(run: &mut Run, noop: &Noop, throughput: bool, latency: bool) -> Result<String> {
    let peers = python::peers();
    if let Err(error) = &peers {
        run.note("peers", &format!("{error:#}"));
    }
    let redis = Redis::start(&["--save", ""]);
    if let Err(error) = &redis {
        run.note("celery", &format!("{error:#}"));
    }
    let mut all: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
    for _ in 0..noop.rounds(3) {
        for (system, durable) in [("this cluster", false), ("this cluster, durable", true)] {
            all.entry(system).or_default().push(ours(noop, durable)?);
        }
        for (system, asks_thread) in FLOORS {
            all.entry(system).or_default().push(floor(noop, asks_thread)?);
        }
        let Ok(python) = &peers else { continue };
        for system in SYSTEMS {
            if system == "celery" && redis.is_err() {
                continue;
            }
            match peer(noop, python, system) {
                Ok(figures) => all.entry(system).or_default().push(figures),
                // A peer that does not run here must not stop the others.
                Err(error) => run.note(system, &format!("{error:#}")),
            }
        }
    }
    let mut text = String::new();
    if throughput {
        text += &table(run, &all, &THROUGHPUT);
    }
    if latency {
        text += "\nOne task of 64 bytes at a time. Goals of what the coordinator adds: p50 100 us, \
                 p99 1 ms.\n\n";
        text += &table(run, &all, &LATENCY);
    }
    Ok(text)
}

fn ours(noop: &Noop, durable: bool) -> Result<Figures> {
    let tasks = noop.tasks(if durable { 50_000 } else { 100_000 });
    let mut arguments = vec!["run", "--tasks", &tasks, "--in-flight", "64,256,1"];
    let folder = noop.folder("journal")?;
    if durable {
        arguments.extend(["--durable", &folder]);
    }
    let answer = noop.json(&arguments)?;
    read(
        &answer,
        &[
            ("per_s_64", "/runs/0/tasks_per_s"),
            ("per_s_many", "/runs/1/tasks_per_s"),
            ("per_s_1", "/runs/2/tasks_per_s"),
            ("alone_p50_us", "/runs/2/latency_us/p50"),
            ("alone_p99_us", "/runs/2/latency_us/p99"),
            ("overhead_p50_us", "/runs/2/overhead_us/p50"),
            ("overhead_p99_us", "/runs/2/overhead_us/p99"),
        ],
    )
}

fn floor(noop: &Noop, asks_thread: &str) -> Result<Figures> {
    let tasks = noop.tasks(20_000);
    let answer = noop.json(&["floor", "--tasks", &tasks, "--asks-thread", asks_thread])?;
    read(
        &answer,
        &[
            ("per_s_1", "/per_s"),
            ("alone_p50_us", "/latency_us/p50"),
            ("alone_p99_us", "/latency_us/p99"),
        ],
    )
}

fn peer(noop: &Noop, python: &Path, system: &str) -> Result<Figures> {
    let mut command = cmd::command(python);
    command.arg("xtask/src/bench/cluster/peers.py").arg(system);
    command.args([noop.tasks(1_000), noop.tasks(5_000)]).arg(REDIS_PORT);
    let answer = super::json(&mut command)?;
    read(
        &answer,
        &[
            ("per_s_1", "/alone_per_s"),
            ("per_s_many", "/together_per_s"),
            ("alone_p50_us", "/alone_p50_us"),
            ("alone_p99_us", "/alone_p99_us"),
        ],
    )
}

fn read(answer: &Value, figures: &[(&str, &str)]) -> Result<Figures> {
    let read = |(name, at): &(&str, &str)| {
        let value = answer.pointer(at).and_then(Value::as_f64);
        Ok(((*name).to_owned(), value.with_context(|| format!("no number at {at} in {answer}"))?))
    };
    figures.iter().map(read).collect()
}

fn table(run: &mut Run, all: &BTreeMap<&str, Vec<Figures>>, columns: &[Column]) -> String {
    let mut text = Column::head("system", columns);
    for (system, rounds) in all {
        text += &format!("| {system} |");
        for column in columns {
            let raw: Vec<f64> = rounds.iter().filter_map(|r| r.get(column.at).copied()).collect();
            text += &format!(" {} |", spread(&raw, column.digits));
            if !raw.is_empty() {
                let ours = system.starts_with("this");
                let better = if ours { column.better } else { Better::Neither };
                run.value(&format!("{system}: {}", column.at), column.unit, better, raw);
            }
        }
        text += "\n";
    }
    text
}

/// A redis of our own, ended with this.
pub(in crate::bench) struct Redis(Child);

impl Redis {
    /// Starts it with settings besides its address.
    pub(in crate::bench) fn start(settings: &[&str]) -> Result<Self> {
        apt::redis()?;
        let child = cmd::command("redis-server")
            .args(["--port", REDIS_PORT, "--bind", "127.0.0.1", "--daemonize", "no"])
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server does not start")?;
        let redis = Self(child);
        let until = Instant::now() + Duration::from_secs(10);
        while std::net::TcpStream::connect(format!("127.0.0.1:{REDIS_PORT}")).is_err() {
            ensure!(Instant::now() < until, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
