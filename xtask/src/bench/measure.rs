//! The simple benchmarks.

use super::run::{Better, Run};
use crate::cluster::{Cluster, Profile, binary};
use crate::cmd;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// How often a benchmark is repeated after a first time that only warms up.
const REPEATS: usize = 5;

/// The demo with its killed worker, from start to exit.
pub(super) fn demo(run: &mut Run) -> Result<()> {
    let binary = binary(Profile::Release)?;
    let mut seconds = Vec::new();
    let runs = repeat(|| {
        let started = Instant::now();
        let answer = json(cmd::command(&binary).args(["demo", "--json"]))?;
        seconds.push(started.elapsed().as_secs_f64());
        ensure!(answer["lost"] == 0, "the demo lost tasks: {answer}");
        Ok(answer)
    })?;
    // The first time warmed up.
    run.value("whole", "s", Better::Lower, seconds.split_off(1));
    run.value("tasks_per_s", "1/s", Better::Higher, numbers(&runs, "/tasks_per_s")?);
    run.value("accuracy", "of 1", Better::Higher, numbers(&runs, "/accuracy")?);
    for kind in ["latency_ms", "queued_ms", "model_ms", "overhead_ms"] {
        for percentile in ["p50", "p95", "p99"] {
            let raw = numbers(&runs, &format!("/{kind}/{percentile}"))?;
            run.value(&format!("{kind}_{percentile}"), "ms", Better::Lower, raw);
        }
    }
    Ok(())
}

/// Resident memory of the coordinator process, ready with two workers.
pub(super) fn rss(run: &mut Run) -> Result<()> {
    let (mut now, mut most) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let cluster = Cluster::start(Profile::Release, "rss")?;
        let (current, peak) = resident(cluster.pid()?)?;
        cluster.stop()?;
        now.push(current);
        most.push(peak);
    }
    run.value("rss", "MB", Better::Lower, now);
    run.value("rss_peak", "MB", Better::Lower, most);
    Ok(())
}

/// Resident memory of a process in MB, now and at most.
pub(super) fn resident(pid: u64) -> Result<(f64, f64)> {
    Ok((status_mb(pid, "VmRSS:")?, status_mb(pid, "VmHWM:")?))
}

/// Resident memory of a process in MB that is no part of a file.
pub(super) fn anonymous(pid: u64) -> Result<f64> {
    status_mb(pid, "RssAnon:")
}

fn status_mb(pid: u64, key: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.context("resident memory is read from /proc, which is not here")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map(|kb| kb * 1024.0 / 1e6).with_context(|| format!("no {key} in the status"))
}

/// The size in bytes of the shipped binary.
pub(super) fn size(run: &mut Run) -> Result<()> {
    let bytes = std::fs::metadata(binary(Profile::Release)?)?.len();
    run.value("binary", "MB", Better::Lower, vec![bytes as f64 / 1e6]);
    Ok(())
}

/// The README's build in an empty target folder; dependencies are downloaded before.
pub(super) fn build(run: &mut Run) -> Result<()> {
    let target = cmd::root().join("target/xtask/cold");
    if target.exists() {
        std::fs::remove_dir_all(&target)?;
    }
    cmd::run(cmd::cargo().args(["fetch", "--locked"]))?;
    let started = Instant::now();
    let mut cargo = cmd::cargo();
    cargo.args(["build", "--release", "--bin", "radeon-cluster", "--target-dir"]);
    cmd::run(cargo.arg(&target))?;
    run.value("cold_build", "s", Better::Lower, vec![started.elapsed().as_secs_f64()]);
    Ok(std::fs::remove_dir_all(target)?)
}

/// Criterion's estimate of the time of each kernel, and of a scheduling decision.
pub(super) fn micro(run: &mut Run) -> Result<()> {
    cmd::run(cmd::cargo().args(["bench", "-p", "lgp-compute", "-p", "lgp-distributed-sim"]))?;
    let mut found = Vec::new();
    estimates(&cmd::root().join("target/criterion"), "", &mut found)?;
    if found.is_empty() {
        bail!("criterion left no estimates");
    }
    for (name, nanoseconds) in found {
        run.value(&name, "us", Better::Lower, vec![nanoseconds / 1e3]);
    }
    Ok(())
}

pub(super) fn estimates(folder: &Path, name: &str, found: &mut Vec<(String, f64)>) -> Result<()> {
    let file = folder.join("new/estimates.json");
    if let Ok(text) = std::fs::read_to_string(file) {
        let estimates: Value = serde_json::from_str(&text)?;
        let median = estimates.pointer("/median/point_estimate").and_then(Value::as_f64);
        found.push((name.to_owned(), median.context("criterion's file has no median")?));
        return Ok(());
    }
    let mut entries = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries.iter().filter(|entry| entry.path().is_dir()) {
        let part = entry.file_name().to_string_lossy().into_owned();
        let name = if name.is_empty() { part } else { format!("{name}/{part}") };
        estimates(&entry.path(), &name, found)?;
    }
    Ok(())
}

/// Runs `once` to warm up and then `REPEATS` times.
fn repeat(mut once: impl FnMut() -> Result<Value>) -> Result<Vec<Value>> {
    once()?;
    (0..REPEATS).map(|_| once()).collect()
}

/// The one JSON value that a command prints.
fn json(command: &mut std::process::Command) -> Result<Value> {
    let finished = cmd::stdout(command)?;
    ensure!(finished.ok, "{} ended with a failure", cmd::line(command));
    let line = || format!("{} printed no JSON", cmd::line(command));
    serde_json::from_str(&finished.output).with_context(line)
}

fn numbers(runs: &[Value], pointer: &str) -> Result<Vec<f64>> {
    let number = |run: &Value| {
        let found = run.pointer(pointer).and_then(Value::as_f64);
        found.with_context(|| format!("no number at {pointer} in {run}"))
    };
    runs.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_found_or_missed() {
        let runs = [json!({"a": {"p50": 1.5}}), json!({"a": {"p50": 2}})];
        assert_eq!(numbers(&runs, "/a/p50").unwrap(), [1.5, 2.0]);
        assert!(numbers(&runs, "/a/p95").is_err());
    }

    #[test]
    fn this_process_is_resident() {
        let (now, most) = resident(u64::from(std::process::id())).unwrap();
        assert!(0.1 < now && now <= most);
    }
}
