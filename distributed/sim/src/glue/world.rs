//! One run: the seed's plan, faults for a while, and then everything must come to rest.

use super::GlueReport;
use super::behaviour::{Behaviour, inputs_of};
use super::callers;
use super::cluster::{CALLERS_MAX, Cluster, Shape, WORKERS_MAX};
use super::ledger::Way;
use super::log::{Medium, SimPlace};
use super::scene::Scene;
use lgp_distributed::inside;
use lgp_distributed::{ModelRef, TaskSpec, WorkerState};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The time until callers have their answers after the last fault.
const CALLERS_LIMIT: Duration = Duration::from_secs(200);
/// The time until the cluster is at rest after that.
const REST_LIMIT: Duration = Duration::from_secs(100);

/// The pause between two checks, and how many successive checks must find the cluster at rest: long
/// enough for silent workers to be given up.
const LOOK: Duration = Duration::from_millis(250);
const STILL: u32 = 10;

pub(super) struct World {
    pub(super) cluster: Arc<Cluster>,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) report: GlueReport,
    /// Whether a task may still get a slot until the callers have left.
    may_hold: bool,
}

impl World {
    pub(super) fn new(scene: &Arc<Scene>) -> Self {
        let mut rng = scene.rng();
        let shape = Shape {
            workers: rng.random_range(1..=WORKERS_MAX),
            slots: rng.random_range(1..=3),
            batch_max: if rng.random_range(0..4) == 0 { 2 } else { 1 },
            retained_tasks_max: if rng.random_range(0..2) == 0 { 3 } else { 4_096 },
        };
        let real = rng.random_range(0..3) == 0;
        let medium =
            if real { Medium::Disk(Arc::default()) } else { Medium::Memory(<_>::default()) };
        let place = SimPlace::new(scene, medium);
        let cluster = Cluster::new(scene, shape, place);
        let report = GlueReport { real_journals: u64::from(real), ..GlueReport::default() };
        let may_hold = cluster.shape.batch_max == 1 && cluster.shape.slots > 1;
        Self { cluster, rng, report, may_hold }
    }

    /// Runs to the end, or until an invariant is broken.
    pub(super) async fn run(mut self) -> GlueReport {
        let carrying = tokio::spawn(Arc::clone(&self.cluster.scene.net).carry());
        self.cluster.insist().await;
        let workers = self.cluster.supervise();
        let callers = self.callers();
        let healthy = self.chaos().await && self.heal(callers).await && self.rest().await;
        if healthy {
            self.audit().await;
        }
        self.cluster.end();
        self.cluster.stop().await;
        for worker in workers {
            let _ = worker.await;
        }
        if healthy {
            self.nothing_is_left().await;
        }
        carrying.abort();
        self.sum();
        self.report
    }

    pub(super) fn is_failed(&self) -> bool {
        self.cluster.scene.failure().is_some()
    }

    fn fail(&self, what: String) {
        self.cluster.scene.fail(what);
    }

    /// Plans the tasks, and starts their callers.
    fn callers(&mut self) -> Vec<JoinHandle<()>> {
        let count = self.rng.random_range(1..=CALLERS_MAX);
        let tasks = self.rng.random_range(8..=24);
        for number in 0..tasks {
            let (way, behaviour, spec) = self.task(number);
            self.cluster.ledger.add(way, behaviour, spec);
        }
        let start = |at| {
            let numbers = (0..tasks).filter(|number| number % count == at).collect();
            tokio::spawn(callers::call(Arc::clone(&self.cluster), at, numbers))
        };
        (0..count).map(start).collect()
    }

    fn task(&mut self, number: usize) -> (Way, Behaviour, TaskSpec) {
        let rng = &mut self.rng;
        let way = match rng.random_range(0..100) {
            0..45 => Way::Durable,
            45..65 => Way::DurableLeft,
            65..75 => Way::Run,
            75..92 => Way::Volatile,
            // Such a task keeps a slot while there are callers.
            _ if self.may_hold => Way::Held,
            _ => Way::Volatile,
        };
        self.may_hold &= way != Way::Held;
        let behaviour = match rng.random_range(0..100) {
            _ if way == Way::Held => Behaviour::Held,
            0..50 => Behaviour::Takes(rng.random_range(0..20)),
            50..80 => Behaviour::Takes(rng.random_range(0..1_200)),
            80..86 => Behaviour::Fails,
            86..90 => Behaviour::Takes(rng.random_range(1_200..5_000)),
            90..93 => Behaviour::Unavailable(rng.random_range(1..7)),
            93..97 => Behaviour::Hangs(rng.random_range(1..3)),
            _ => Behaviour::Deaf(1),
        };
        let filling = if rng.random_range(0..6) == 0 { 20_000 } else { rng.random_range(0..300) };
        let name = format!("m{}", rng.random_range(0..2));
        let model = ModelRef { name, version: 1, sha256: String::new() };
        let mut spec = TaskSpec::new(model, inputs_of(number, filling));
        spec.durable = way.is_durable();
        spec.idempotency_key = spec.durable.then(|| format!("key-{number}"));
        spec.max_attempts = rng.random_range(2..=5);
        if matches!(behaviour, Behaviour::Hangs(_) | Behaviour::Deaf(_)) {
            spec.run_limit = Some(Duration::from_millis(rng.random_range(200..1_500)));
        } else if self.cluster.shape.batch_max > 1 {
            // A run that hangs in a batch is stopped when nobody waits for any task of the batch:
            // without a limit of their own, the others would wait for ten minutes.
            spec.run_limit = Some(Duration::from_secs(15));
        }
        (way, behaviour, spec)
    }

    /// Ends all faults; then every caller must get its answer.
    async fn heal(&self, callers: Vec<JoinHandle<()>>) -> bool {
        let cluster = &self.cluster;
        cluster.scene.note(|| "all is well".into());
        cluster.scene.heal();
        cluster.place.heal();
        cluster.insist().await;
        self.write_something().await;
        let told = async {
            for caller in callers {
                let _ = caller.await;
            }
        };
        // Devices that hung too often take no tasks until a person enables them.
        let mending = async {
            loop {
                if let Some(coordinator) = cluster.coordinator() {
                    for at in 0..cluster.shape.workers {
                        let _ = coordinator.enable_worker(&format!("worker-{at}"));
                    }
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
            let ledger = &cluster.ledger;
            let doing = (0..ledger.len()).filter_map(|number| {
                let what =
                    ledger.with(number, |entry| (entry.way, entry.behaviour, entry.doing))?;
                (what.2 != "done").then(|| format!("{number}: {what:?}"))
            });
            let doing: Vec<_> = doing.collect();
            self.explain().await;
            self.fail(format!("callers wait in vain: {}", doing.join("; ")));
        }
        !self.is_failed()
    }

    /// Writes something, because a journal that was closed by a full disk can be read again after a
    /// write.
    async fn write_something(&self) {
        let Some(coordinator) = self.cluster.coordinator() else { return };
        let model = ModelRef { name: "m0".into(), version: 1, sha256: String::new() };
        let spec = TaskSpec { durable: true, ..TaskSpec::new(model, inputs_of(usize::MAX, 0)) };
        let _ = coordinator.submit_all(vec![(spec, Vec::new())]).await;
    }

    /// Records the coordinator's explanations of tasks that have not ended.
    async fn explain(&self) {
        let Some(coordinator) = self.cluster.coordinator() else { return };
        for (number, _, id, _) in self.cluster.ledger.accepted() {
            if coordinator.state(id).is_ok_and(|state| !state.is_terminal()) {
                let lines = coordinator.explain(id).await;
                let what = self.cluster.ledger.with(number, |entry| entry.behaviour);
                self.cluster.scene.note(|| format!("task {number} {what:?}: {lines:?}"));
            }
        }
        for worker in coordinator.workers() {
            self.cluster.scene.note(|| format!("{worker:?}"));
        }
    }

    /// Waits until the cluster is at rest.
    async fn rest(&self) -> bool {
        let cluster = &self.cluster;
        // Connections of callers that left end meanwhile, but some of their tasks continue.
        let left = async {
            while cluster.coordinator().is_none_or(|it| inside::shared(&it).residue().waiting > 0) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        if timeout(REST_LIMIT, left).await.is_err() {
            self.fail("callers who have left are waited for".into());
            return false;
        }
        cluster.released.store(true, Ordering::SeqCst);
        let resting = async {
            let mut still = 0;
            while still < STILL {
                still = if self.busy().is_none() { still + 1 } else { 0 };
                sleep(LOOK).await;
            }
        };
        if timeout(REST_LIMIT, resting).await.is_err() {
            self.explain().await;
            self.fail(format!("it does not come to rest: {:?}", self.busy()));
        }
        !self.is_failed()
    }

    /// What is not at rest; `None` if everything is.
    fn busy(&self) -> Option<String> {
        let Some(coordinator) = self.cluster.coordinator() else { return Some("stopped".into()) };
        let tasks = coordinator.stats().tasks;
        if tasks.queued + tasks.running > 0 {
            return Some(format!("{tasks:?}"));
        }
        let workers = coordinator.workers();
        let ready = workers.iter().filter(|w| w.state == WorkerState::Ready).count();
        if ready != self.cluster.shape.workers {
            return Some(format!("{ready} workers are ready"));
        }
        if let Some(worker) = workers.iter().find(|w| w.running + w.queued > 0) {
            return Some(format!("{} has {} attempts", worker.id, worker.running));
        }
        let residue = inside::shared(&coordinator).residue();
        (!residue.is_none(ready)).then(|| format!("{residue:?}"))
    }

    /// Asks again for the end of every accepted task, also after a restart.
    async fn audit(&mut self) {
        for _ in 0..2 {
            let Some(coordinator) = self.cluster.coordinator() else {
                return self.fail("the coordinator went away".into());
            };
            for (number, way, id, _) in self.cluster.ledger.accepted() {
                if !way.is_durable() {
                    continue;
                }
                match timeout(REST_LIMIT, coordinator.wait(id)).await {
                    Ok(Ok(record)) => self.cluster.ledger.show(number, record),
                    Ok(Err(error)) => self.fail(format!("task {number} is lost: {error}")),
                    Err(_) => self.fail(format!("task {number} does not end")),
                }
            }
            drop(coordinator);
            self.cluster.stop().await;
            self.cluster.insist().await;
        }
    }

    /// Checks that nothing of ended processes is still running.
    async fn nothing_is_left(&self) {
        let over = async {
            while self.cluster.left() > 0 || self.cluster.scene.net.sockets() > 0 {
                sleep(Duration::from_millis(100)).await;
            }
        };
        if timeout(REST_LIMIT, over).await.is_err() {
            let (coordinators, sockets) = (self.cluster.left(), self.cluster.scene.net.sockets());
            self.fail(format!("{coordinators} coordinators and {sockets} sockets are left"));
        }
    }

    fn sum(&mut self) {
        let (cluster, report) = (&self.cluster, &mut self.report);
        let wide = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let ([succeeded, failed, cancelled], runs) = cluster.ledger.sums();
        (report.succeeded, report.failed, report.cancelled) = (succeeded, failed, cancelled);
        report.runs = runs;
        report.workers = wide(cluster.shape.workers);
        report.tasks = wide(cluster.ledger.len());
        report.accepted = wide(cluster.ledger.accepted().len());
        report.coordinators = u64::from(cluster.life());
        report.worker_ends = cluster.worker_ends.load(Ordering::SeqCst);
        report.replaced = cluster.replaced.load(Ordering::SeqCst);
        let counts = cluster.scene.net.counts();
        report.datagrams = counts.sent;
        report.lost = counts.lost;
        report.doubled = counts.doubled;
        report.late = counts.late;
        report.blocked = counts.blocked;
        report.simulated_ms = u64::try_from(cluster.scene.now().as_millis()).unwrap_or(u64::MAX);
    }
}
