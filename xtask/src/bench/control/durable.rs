//! Measures durable tasks over HTTP: the rate of acceptance, and the rate of ends.

use super::processes::cpu_seconds;
use crate::kill::{Answer, Client};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long all tasks of a measurement may take to end.
const ENDED: Duration = Duration::from_secs(120);
/// How long a coordinator holds a request that waits for an end.
const WAIT: Duration = Duration::from_secs(10);

/// How much is done.
#[derive(Clone, Copy)]
pub(super) struct Load {
    /// The number of callers, each with one request under way.
    pub(super) callers: usize,
    pub(super) tasks: usize,
    /// The tasks of a single caller.
    pub(super) alone: usize,
}

/// A cluster that is measured.
pub(super) struct Cluster<'a> {
    /// Coordinators that callers ask, in turn.
    pub(super) asked: &'a [Client],
    /// The coordinator that leads.
    pub(super) leader: &'a Client,
    pub(super) coordinators: Vec<u32>,
    pub(super) engine: Vec<u32>,
    /// The prefix of keys.
    pub(super) name: String,
}

/// From submission to the acknowledgement and to the end, in milliseconds.
type Times = (f64, f64);

/// All measurements of a cluster; `shown` reports what its control plane holds.
pub(super) fn measure(
    cluster: &Cluster<'_>,
    load: Load,
    shown: impl Fn() -> Result<Value>,
) -> Result<Value> {
    let Load { callers, tasks, alone } = load;
    cluster.ready()?;
    cluster.call("warm", (callers, callers * 4), true)?;
    let (before, held) = (cluster.succeeded()?, shown()?);
    let cpu = cluster.cpu()?;
    let began = Instant::now();
    let accepts = cluster.call("accept", (callers, tasks), false)?;
    let accepted_s = began.elapsed().as_secs_f64();
    cluster.wait(before + tasks as u64)?;
    let ended_s = began.elapsed().as_secs_f64();
    let (after, holds) = (cluster.cpu()?, shown()?);
    let lone = cluster.call("alone", (1, alone), true)?;
    let began = Instant::now();
    let lives = cluster.call("life", (callers, tasks), true)?;
    let lived_s = began.elapsed().as_secs_f64();
    let us_of_task = |cpu: f64| cpu * 1e6 / tasks as f64;
    let accept = |times: &[Times], share| at(times.iter().map(|it| it.0).collect(), share);
    let life = |times: &[Times], share| at(times.iter().map(|it| it.1).collect(), share);
    let mut found = json!({
        "accepted_per_s": tasks as f64 / accepted_s,
        "ended_per_s": tasks as f64 / ended_s,
        "lived_per_s": tasks as f64 / lived_s,
        "accept_p50_ms": accept(&accepts, 50),
        "accept_p99_ms": accept(&accepts, 99),
        "life_p50_ms": life(&lives, 50),
        "life_p99_ms": life(&lives, 99),
        "alone_accept_p50_ms": accept(&lone, 50),
        "alone_life_p50_ms": life(&lone, 50),
        "coordinators_us": us_of_task(after.0 - cpu.0),
        "engine_us": us_of_task(after.1 - cpu.1),
    });
    let since = |at| Some(holds.pointer(at)?.as_f64()? - held.pointer(at)?.as_f64()?);
    if let Some(commits) = since("/last_commit/number") {
        found["records_per_commit"] = json!(2.0 * tasks as f64 / commits);
    }
    Ok(found)
}

/// A percentile, by nearest rank.
fn at(mut samples: Vec<f64>, share: usize) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples
        .get((samples.len() * share).div_ceil(100).saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

impl Cluster<'_> {
    /// Processor time of coordinators and of the engine so far.
    fn cpu(&self) -> Result<(f64, f64)> {
        Ok((cpu_seconds(&self.coordinators, false)?, cpu_seconds(&self.engine, true)?))
    }

    /// Waits until each used coordinator accepts tasks: it may know the model before its worker
    /// does.
    pub(super) fn ready(&self) -> Result<()> {
        let end = Instant::now() + ENDED;
        for (at, client) in self.asked.iter().enumerate() {
            while let Answer::Refused(why) = client.submit(&format!("{}-ready-{at}", self.name), 0)
            {
                ensure!(Instant::now() < end, "coordinator {at} accepts no task: {why}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Tasks that the leader has seen succeed.
    pub(super) fn succeeded(&self) -> Result<u64> {
        let stats = self.leader.cluster_raw("GET", "stats", &[])?;
        stats["tasks"]["succeeded"].as_u64().context("no number of tasks that succeeded")
    }

    pub(super) fn wait(&self, succeeded: u64) -> Result<()> {
        let end = Instant::now() + ENDED;
        while self.succeeded()? < succeeded {
            if Instant::now() >= end {
                let stats = self.leader.cluster_raw("GET", "stats", &[])?;
                bail!("not all tasks ended within {ENDED:?}, {succeeded} expected: {stats}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Lets callers submit tasks one after another and, if wanted, wait for each task's end.
    pub(super) fn call(
        &self,
        phase: &str,
        (callers, tasks): (usize, usize),
        to_end: bool,
    ) -> Result<Vec<Times>> {
        let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(tasks)));
        let call = |caller: usize| -> Result<()> {
            let client = self.asked[caller % self.asked.len()].keeping();
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= tasks {
                    break;
                }
                times.push(one(&client, &format!("{}-{phase}-{number}", self.name), to_end)?);
            }
            all.lock().map_err(|_| anyhow::anyhow!("a caller panicked"))?.extend(times);
            Ok(())
        };
        std::thread::scope(|scope| {
            let callers: Vec<_> =
                (0..callers).map(|caller| scope.spawn(move || call(caller))).collect();
            callers
                .into_iter()
                .try_for_each(|it| it.join().unwrap_or_else(|_| bail!("it panicked")))
        })?;
        all.into_inner().map_err(|_| anyhow::anyhow!("a caller panicked"))
    }
}

/// Submits the smallest task.
fn one(client: &Client, key: &str, to_end: bool) -> Result<Times> {
    let began = Instant::now();
    let ms = || began.elapsed().as_secs_f64() * 1e3;
    let id = match client.submit(key, 0) {
        Answer::Accepted(id) => id,
        other => bail!("task {key} was met with {other:?}"),
    };
    let accepted = ms();
    if !to_end {
        return Ok((accepted, f64::NAN));
    }
    loop {
        match client.look(&id, WAIT) {
            Answer::Ended(end) if end.starts_with("succeeded") => return Ok((accepted, ms())),
            Answer::Open if began.elapsed() < ENDED => {}
            other => bail!("task {key} is {other:?}"),
        }
    }
}
