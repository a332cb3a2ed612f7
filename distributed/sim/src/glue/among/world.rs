//! One run of several coordinators: the seed's plan, then faults for a while. Afterwards one
//! coordinator must lead, and according to each of them all accepted tasks must have ended.

use super::AmongReport;
use super::callers::Caller;
use super::cluster::{Cluster, Shape};
use super::machine::Machine;
use crate::glue::behaviour::{Behaviour, inputs_of};
use crate::glue::cluster::{CALLERS_MAX, WORKERS_MAX};
use crate::glue::ledger::Way;
use crate::glue::scene::Scene;
use lgp_distributed::{ModelRef, TaskSpec, TaskState};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The time until callers have their answers after the last fault.
const CALLERS_LIMIT: Duration = Duration::from_secs(200);

pub(super) struct World {
    pub(super) cluster: Arc<Cluster>,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) report: AmongReport,
}

impl World {
    pub(super) fn new(scene: &Arc<Scene>) -> Self {
        let mut rng = scene.rng();
        let shape = Shape {
            coordinators: rng.random_range(2..=4),
            workers: rng.random_range(1..=WORKERS_MAX),
            slots: rng.random_range(1..=3),
        };
        Self { cluster: Cluster::new(scene, shape), rng, report: AmongReport::default() }
    }

    /// Runs to the end, or until an invariant is broken.
    pub(super) async fn run(mut self) -> AmongReport {
        let carrying = tokio::spawn(Arc::clone(&self.cluster.scene.net).carry());
        self.start_all().await;
        let workers = self.cluster.supervise();
        let machines: Vec<_> = (0..CALLERS_MAX).map(|at| Machine::new(&self.cluster, at)).collect();
        let callers = self.callers(&machines);
        let healthy = self.chaos().await
            && self.heal(callers).await
            && self.rest().await
            && self.audit().await;
        if healthy {
            self.judge();
        }
        drop(machines);
        self.sum();
        self.cluster.end();
        for at in 0..self.cluster.shape.coordinators {
            self.cluster.stop(at).await;
        }
        for worker in workers {
            let _ = worker.await;
        }
        if healthy {
            self.nothing_is_left().await;
        }
        carrying.abort();
        self.report
    }

    pub(super) async fn start_all(&self) {
        for at in 0..self.cluster.shape.coordinators {
            self.cluster.insist(at).await;
        }
    }

    pub(super) fn is_failed(&self) -> bool {
        self.cluster.scene.failure().is_some()
    }

    pub(super) fn fail(&self, what: String) {
        self.cluster.scene.fail(what);
    }

    /// Plans the tasks, and starts their callers; some tasks have several.
    fn callers(&mut self, machines: &[Arc<Machine>]) -> Vec<JoinHandle<()>> {
        let tasks = self.rng.random_range(8..=20);
        let mut callers = Vec::new();
        for number in 0..tasks {
            let (way, behaviour, spec) = self.task(number);
            let shared = spec.idempotency_key.is_some();
            self.cluster.ledger.add(way, behaviour, spec);
            let count = if shared { self.rng.random_range(1..=3) } else { 1 };
            for _ in 0..count {
                let at = self.rng.random_range(0..machines.len());
                callers.extend(machines.get(at).map(|machine| Caller::start(machine, number)));
            }
        }
        callers
    }

    fn task(&mut self, number: usize) -> (Way, Behaviour, TaskSpec) {
        let rng = &mut self.rng;
        let (way, keyed) = match rng.random_range(0..100) {
            0..60 => (Way::Durable, true),
            60..78 => (Way::Durable, false),
            _ => (Way::Volatile, false),
        };
        let behaviour = match rng.random_range(0..100) {
            0..45 => Behaviour::Takes(rng.random_range(0..20)),
            45..75 => Behaviour::Takes(rng.random_range(0..1_200)),
            75..81 => Behaviour::Fails,
            81..93 => Behaviour::Takes(rng.random_range(1_200..6_000)),
            93..96 => Behaviour::Unavailable(rng.random_range(1..7)),
            _ => Behaviour::Hangs(rng.random_range(1..3)),
        };
        let name = format!("m{}", rng.random_range(0..2));
        let model = ModelRef { name, version: 1, sha256: String::new() };
        let mut spec = TaskSpec::new(model, inputs_of(number, rng.random_range(0..300)));
        spec.durable = way.is_durable();
        spec.idempotency_key = keyed.then(|| format!("key-{number}"));
        spec.max_attempts = rng.random_range(2..=5);
        if matches!(behaviour, Behaviour::Hangs(_)) {
            spec.run_limit = Some(Duration::from_millis(rng.random_range(200..1_500)));
        }
        (way, behaviour, spec)
    }

    /// Ends all faults; then one coordinator must lead, and every caller must get its answer.
    async fn heal(&self, callers: Vec<JoinHandle<()>>) -> bool {
        let cluster = &self.cluster;
        cluster.scene.note(|| "all is well".into());
        cluster.scene.heal();
        cluster.register.heal();
        cluster.log.heal();
        self.start_all().await;
        if !self.one_leads().await {
            return false;
        }
        let told = async {
            for caller in callers {
                let _ = caller.await;
            }
        };
        // Devices that hung too often take no tasks until a person enables them.
        let mending = async {
            loop {
                for (_, process) in cluster.processes() {
                    for at in 0..cluster.shape.workers {
                        let _ = process.coordinator.enable_worker(&format!("worker-{at}"));
                    }
                }
                if self.is_failed() {
                    return;
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        let told = async {
            tokio::select! {
                () = told => {}
                () = mending => {}
            }
        };
        if timeout(CALLERS_LIMIT, told).await.is_err() {
            self.explain().await;
            self.fail("callers wait in vain".into());
        }
        !self.is_failed()
    }

    fn sum(&mut self) {
        let (cluster, report) = (&self.cluster, &mut self.report);
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let ([succeeded, failed, cancelled], runs) = cluster.ledger.sums();
        (report.succeeded, report.failed, report.cancelled) = (succeeded, failed, cancelled);
        report.runs = runs;
        report.coordinators = wide(cluster.shape.coordinators);
        report.lives = u64::from(cluster.lives());
        report.workers = wide(cluster.shape.workers);
        report.tasks = wide(cluster.ledger.len());
        report.accepted = wide(cluster.ledger.accepted().len());
        let ends = cluster.log.ends();
        report.recorded = wide(ends.len());
        let succeeded = ends.values().filter(|end| **end == TaskState::Succeeded).count();
        report.recorded_succeeded = wide(succeeded);
        report.leads = wide(cluster.register.leads().len());
        report.commits = wide(cluster.log.commits().len());
        report.worker_ends = cluster.worker_ends.load(Ordering::SeqCst);
        let counts = cluster.scene.net.counts();
        report.datagrams = counts.sent;
        report.lost = counts.lost;
        report.blocked = counts.blocked;
        report.simulated_ms = u64::try_from(cluster.scene.now().as_millis()).unwrap_or(u64::MAX);
    }
}
