//! The cluster beside Ray, Dask and Celery: tasks that do nothing, in turn, on one machine.

use super::run::{Better, Run};
use crate::{apt, cmd, python};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Rounds, in each of which every system has its turn.
const ROUNDS: usize = 3;
/// Tasks one at a time, and at once, for a peer.
const PEER_TASKS: [&str; 2] = ["1000", "5000"];
const REDIS_PORT: &str = "16379";

/// What is measured of every system, its unit, and how its name reads.
const FIGURES: [(&str, &str, Better, &str); 4] = [
    ("alone_p50_us", "us", Better::Lower, "one at a time, p50"),
    ("alone_p99_us", "us", Better::Lower, "one at a time, p99"),
    ("alone_per_s", "1/s", Better::Higher, "one at a time"),
    ("together_per_s", "1/s", Better::Higher, "many in flight"),
];

/// A system's figures by name, of one round.
type Figures = BTreeMap<String, f64>;

/// Measures, and answers the table.
pub(super) fn run(run: &mut Run) -> Result<String> {
    let noop = noop()?;
    let disk = journal_folder()?;
    let python = python::peers();
    if let Err(error) = &python {
        run.note("peers", &format!("{error:#}"));
    }
    let redis = Redis::start();
    if let Err(error) = &redis {
        run.note("celery", &format!("{error:#}"));
    }
    let mut all: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
    let mut own: Vec<Figures> = Vec::new();
    for _ in 0..ROUNDS {
        let memory = ours(&noop, &["--tasks", "100000", "--in-flight", "64"])?;
        own.push(overheads(&memory)?);
        all.entry("this cluster").or_default().push(figures(&memory)?);
        let folder = disk.display().to_string();
        let durable = ["--tasks", "50000", "--in-flight", "256", "--durable", &folder];
        let durable = figures(&ours(&noop, &durable)?)?;
        all.entry("this cluster, durable").or_default().push(durable);
        if let Ok(python) = &python {
            for system in ["ray", "ray-actor", "dask"] {
                all.entry(system).or_default().push(peer(python, system)?);
            }
            if redis.is_ok() {
                all.entry("celery").or_default().push(peer(python, "celery")?);
            }
        }
    }
    for (system, rounds) in &all {
        for (figure, unit, better, _) in FIGURES {
            let raw = rounds.iter().filter_map(|round| round.get(figure).copied()).collect();
            let better = if system.starts_with("this") { better } else { Better::Neither };
            run.value(&format!("{system}: {figure}"), unit, better, raw);
        }
    }
    for name in ["overhead_p50_us", "overhead_p99_us", "rss_mb"] {
        let raw = own.iter().filter_map(|round| round.get(name).copied()).collect();
        let unit = if name == "rss_mb" { "MB" } else { "us" };
        run.value(&format!("this cluster: {name}"), unit, Better::Lower, raw);
    }
    Ok(table(&all, &own))
}

/// Builds the load generator and answers its path.
fn noop() -> Result<PathBuf> {
    let mut cargo = cmd::cargo();
    cargo.args(["build", "--release", "--quiet", "-p", "lgp-distributed", "--example", "noop"]);
    cmd::run(&mut cargo)?;
    Ok(cmd::root().join("target/release/examples/noop"))
}

/// On the disk that the checkout is on: a journal in memory would prove nothing.
fn journal_folder() -> Result<PathBuf> {
    let folder = cmd::root().join("target/xtask/noop-journal");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn ours(noop: &PathBuf, arguments: &[&str]) -> Result<Value> {
    json(cmd::command(noop).args(arguments).arg("--json"))
}

fn peer(python: &PathBuf, system: &str) -> Result<Figures> {
    let mut command = cmd::command(python);
    command.arg("xtask/src/bench/cluster/peers.py").arg(system).args(PEER_TASKS).arg(REDIS_PORT);
    let answer = json(&mut command)?;
    let read = |(name, ..): &(&str, &str, Better, &str)| {
        let value = answer[*name].as_f64().with_context(|| format!("{system} has no {name}"))?;
        Ok(((*name).to_owned(), value))
    };
    FIGURES.iter().map(read).collect()
}

fn json(command: &mut Command) -> Result<Value> {
    let line = cmd::line(command);
    let finished = cmd::stdout(command)?;
    ensure!(finished.ok, "`{line}` ended with a failure");
    // Some systems greet on stdout first.
    let last = finished.output.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("`{line}` printed no JSON"))
}

/// The same figures as a peer's: latency is what a caller sees, model time included.
fn figures(answer: &Value) -> Result<Figures> {
    let at = |path: &str| answer.pointer(path).and_then(Value::as_f64).context(path.to_owned());
    Ok(BTreeMap::from([
        ("alone_p50_us".to_owned(), at("/runs/1/latency_us/p50")?),
        ("alone_p99_us".to_owned(), at("/runs/1/latency_us/p99")?),
        ("alone_per_s".to_owned(), at("/runs/1/tasks_per_s")?),
        ("together_per_s".to_owned(), at("/runs/0/tasks_per_s")?),
    ]))
}

fn overheads(answer: &Value) -> Result<Figures> {
    let at = |path: &str| answer.pointer(path).and_then(Value::as_f64).context(path.to_owned());
    Ok(BTreeMap::from([
        ("overhead_p50_us".to_owned(), at("/runs/1/overhead_us/p50")?),
        ("overhead_p99_us".to_owned(), at("/runs/1/overhead_us/p99")?),
        ("rss_mb".to_owned(), at("/rss_bytes")? / 1e6),
    ]))
}

fn table(all: &BTreeMap<&str, Vec<Figures>>, own: &[Figures]) -> String {
    let mut text = String::from("Each cell: median of the rounds (least to most).\n\n| system |");
    for (_, unit, _, name) in FIGURES {
        text += &format!(" {name}, {unit} |");
    }
    text += "\n|---|---|---|---|---|\n";
    let cell = |rounds: &[Figures], figure: &str| {
        let mut raw: Vec<f64> = rounds.iter().filter_map(|r| r.get(figure).copied()).collect();
        raw.sort_by(f64::total_cmp);
        match (raw.first(), raw.get(raw.len() / 2), raw.last()) {
            (Some(least), Some(middle), Some(most)) => {
                format!("{middle:.0} ({least:.0}–{most:.0})")
            }
            _ => "–".to_owned(),
        }
    };
    for (system, rounds) in all {
        let cells = FIGURES.map(|(figure, ..)| cell(rounds, figure)).join(" | ");
        text += &format!("| {system} | {cells} |\n");
    }
    let [p50, p99] = ["overhead_p50_us", "overhead_p99_us"].map(|figure| cell(own, figure));
    let rss = cell(own, "rss_mb");
    text + &format!(
        "\nAdded by the coordinator to a task of 64 bytes, one at a time: p50 {p50} us, p99 {p99} us. \
         Resident after the runs, load generator included: {rss} MB.\n"
    )
}

/// A redis of our own, ended with this.
struct Redis(Child);

impl Redis {
    fn start() -> Result<Self> {
        apt::redis()?;
        let child = cmd::command("redis-server")
            .args(["--port", REDIS_PORT, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
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
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
