//! A worker is killed under load, and another one is started once that is noticed.

use crate::Result;
use crate::options::Options;
use crate::timeline::{Timeline, ms};
use crate::workers::{Crew, cluster, spec};
use lgp_distributed::{CoordinatorConfig, TaskSpec, TaskState, WorkerState};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const IN_FLIGHT: usize = 64;

/// The callers' records.
#[derive(Default)]
struct Log {
    timeline: Mutex<Timeline>,
    lost: AtomicU64,
    redone: AtomicU64,
    done: AtomicBool,
}

pub(crate) async fn run(options: &Options) -> Result<String> {
    let span = Duration::from_secs(options.get("seconds", 3)?);
    let task = spec(options.get("payload", 64)?)?;
    let (coordinator, pki, mut victim) = cluster(CoordinatorConfig::default(), Crew::ONE).await?;
    let _other = Crew::ONE.start(coordinator.quic_addr(), &pki, "other")?;
    coordinator.wait_for_workers(2).await?;
    let log = Arc::new(Log::default());
    let callers: Vec<_> = (0..IN_FLIGHT)
        .map(|_| tokio::spawn(call(coordinator.clone(), task.clone(), Arc::clone(&log))))
        .collect();
    sleep(span / 3).await;
    let from = Instant::now();
    sleep(span).await;
    let killed = Instant::now();
    victim.kill();
    let ready = || {
        let workers = coordinator.workers();
        workers.iter().filter(|worker| worker.state == WorkerState::Ready).count()
    };
    while ready() > 1 {
        sleep(Duration::from_millis(1)).await;
    }
    let noticed = Instant::now();
    let _next = Crew::ONE.start(coordinator.quic_addr(), &pki, "next")?;
    coordinator.wait_for_workers(2).await?;
    let replaced = Instant::now();
    sleep(span).await;
    let to = Instant::now();
    log.done.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await??;
    }
    coordinator.stop().await;
    let timeline = log.timeline.lock().unwrap_or_else(PoisonError::into_inner);
    let recovered = timeline.recovered(from, killed, killed);
    Ok(json!({
        "in_flight": IN_FLIGHT,
        "noticed_ms": ms(killed, Some(noticed)),
        "replaced_ms": ms(killed, Some(replaced)),
        "recovered_ms": ms(killed, recovered),
        "before": timeline.between(from, killed),
        "during": timeline.between(killed, replaced),
        "after": timeline.between(replaced, to),
        "redone": log.redone.load(Ordering::Relaxed),
        "lost": log.lost.load(Ordering::Relaxed),
    })
    .to_string())
}

/// Runs one task after another until enough have run.
async fn call(
    coordinator: lgp_distributed::Coordinator,
    task: TaskSpec,
    log: Arc<Log>,
) -> Result<(), lgp_distributed::Error> {
    while !log.done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let record = coordinator.run(task.clone()).await?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        log.lost.fetch_add(u64::from(record.state != TaskState::Succeeded), Ordering::Relaxed);
        log.redone.fetch_add(u64::from(record.attempts > 1), Ordering::Relaxed);
        let mut timeline = log.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        timeline.ends.push((Instant::now(), took));
    }
    Ok(())
}
