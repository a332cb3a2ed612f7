//! Three coordinators with very many workers, first idle and then with durable tasks.

use super::Bench;
use super::cluster::{of, pids, stage};
use super::processes::{cpu_seconds, memory_bytes};
use crate::bench::measure::resident;
use crate::cmd;
use crate::kill::{Engine, Stage};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long all workers may take until every coordinator has them.
const JOINED: Duration = Duration::from_secs(300);
/// Workers that have just joined are not idle yet.
const SETTLING: Duration = Duration::from_secs(5);

/// A process that runs many workers, killed when dropped.
struct Crowd(Child);

impl Drop for Crowd {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The measured processes, in the order of measuring.
struct Parts {
    leader: u32,
    followers: Vec<u32>,
    engine: Vec<u32>,
    crowd: u32,
}

/// Processor time and memory of one part.
struct Taken {
    cpu_s: f64,
    memory_mb: f64,
}

impl Parts {
    /// The present figures by part; the followers are a list.
    fn taken(&self) -> Result<Vec<(&'static str, Vec<Taken>)>> {
        let own = |pid: &u32| {
            let memory_mb = resident(u64::from(*pid))?.0;
            Ok(Taken { cpu_s: cpu_seconds(&[*pid], false)?, memory_mb })
        };
        let whole = |pids: &[u32]| {
            let memory_mb = memory_bytes(pids)? / 1e6;
            Ok::<_, anyhow::Error>(Taken { cpu_s: cpu_seconds(pids, true)?, memory_mb })
        };
        Ok(vec![
            ("leader", vec![own(&self.leader)?]),
            ("followers", self.followers.iter().map(own).collect::<Result<_>>()?),
            ("engine", vec![whole(&self.engine)?]),
            ("workers", vec![own(&self.crowd)?]),
        ])
    }

    /// Each part's processor time during `what`, in percent of a processor, and its memory afterwards. Answers how long
    /// `what` took.
    fn during(
        &self,
        found: &mut Value,
        name: &str,
        what: impl FnOnce() -> Result<()>,
    ) -> Result<f64> {
        let (began, before) = (Instant::now(), self.taken()?);
        what()?;
        let (seconds, after) = (began.elapsed().as_secs_f64(), self.taken()?);
        for ((part, before), (_, after)) in before.iter().zip(&after) {
            let pairs = before.iter().zip(after);
            let cpu: Vec<_> = pairs.map(|(a, b)| (b.cpu_s - a.cpu_s) / seconds * 100.0).collect();
            let memory: Vec<_> = after.iter().map(|it| it.memory_mb).collect();
            found[*part][name] = json!({ "cpu_percent": cpu, "memory_mb": memory });
        }
        Ok(seconds)
    }
}

/// Measures without workers, with idle workers, and under load.
pub(super) fn measure(bench: &Bench, engine: Engine) -> Result<Value> {
    let mut stage = stage(bench, engine)?;
    let leads = stage.leader()?;
    let coordinators = pids(&mut stage)?;
    let empty: Vec<f64> =
        coordinators.iter().map(|pid| Ok(resident(u64::from(*pid))?.0)).collect::<Result<_>>()?;
    let (crowd, joined_s) = join(bench, &stage)?;
    let mut followers = coordinators.clone();
    let parts = Parts {
        leader: followers.remove(leads),
        followers,
        engine: stage.servers.processes().collect(),
        crowd: crowd.0.id(),
    };
    let mut found = json!({ "empty_mb": empty, "joined_s": joined_s });
    parts.during(&mut found, "idle", || {
        std::thread::sleep(Duration::from_secs(bench.idle_s));
        Ok(())
    })?;
    let cluster = of(&stage, &stage.clients[leads..=leads], (leads, coordinators), "crowd");
    let tasks = 2 * bench.load.tasks;
    cluster.ready()?;
    cluster.call("warm", (bench.load.callers, 4 * bench.load.callers), true)?;
    let seconds = parts.during(&mut found, "busy", || {
        let before = cluster.succeeded()?;
        cluster.call("crowd", (bench.load.callers, tasks), false)?;
        cluster.wait(before + tasks as u64)
    });
    // Only the previous leader counts all tasks.
    ensure!(stage.leader()? == leads, "another coordinator came to lead: {seconds:?}");
    let seconds = seconds?;
    found["ended_per_s"] = json!(tasks as f64 / seconds);
    Ok(found)
}

/// Starts the workers, and waits until every coordinator has them all.
fn join(bench: &Bench, stage: &Stage) -> Result<(Crowd, f64)> {
    let folder = bench.folder("crowd")?;
    let authority = folder.join("pki/authority.pem");
    std::fs::create_dir_all(folder.join("pki"))?;
    std::fs::copy(stage.authority(), &authority)?;
    let mut command = cmd::command(&bench.crowd);
    command.arg(stage.addresses()).arg(&authority).arg(bench.workers.to_string());
    // The process ends when its stdin closes, however this process ends.
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let began = Instant::now();
    let crowd = Crowd(command.spawn().context("the workers do not start")?);
    loop {
        let ready = |client: &crate::kill::Client| -> Result<u64> {
            let stats = client.cluster_raw("GET", "stats", &[])?;
            stats["workers"]["ready"].as_u64().context("no number of workers that are ready")
        };
        let ready = stage.clients.iter().map(ready).collect::<Result<Vec<_>>>()?;
        // Each coordinator has a local worker besides.
        if ready.iter().all(|ready| *ready > bench.workers) {
            break;
        }
        ensure!(began.elapsed() < JOINED, "{ready:?} workers are ready after {JOINED:?}");
        std::thread::sleep(Duration::from_millis(250));
    }
    let joined_s = began.elapsed().as_secs_f64();
    std::thread::sleep(SETTLING);
    Ok((crowd, joined_s))
}
