//! The processes of a simulated cluster: several coordinators, each with its own folder, and
//! workers that serve them all.

use super::authority::Register;
use super::history::History;
use super::log::SharedLog;
use super::queue::Queue;
use super::seat::Seat;
use crate::glue::cluster::{PATIENCE, identity_of_worker, pki};
use crate::glue::executor::{Life, SimExecutor};
use crate::glue::ledger::Ledger;
use crate::glue::net::{NODE, Node, address};
use crate::glue::scene::Scene;
use lgp_distributed::inside::outside::on;
use lgp_distributed::inside::{self, CoreHandle};
use lgp_distributed::{
    Coordinator, CoordinatorConfig, Coordinators, Error, WorkerConfig, run_worker,
};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const PORT: u16 = 8443;

pub(super) fn coordinator_node(at: usize) -> Node {
    Node::try_from(1 + at).unwrap_or(Node::MAX)
}

/// The size of a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) coordinators: usize,
    pub(super) workers: usize,
    pub(super) slots: u32,
}

/// A coordinator's process.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) coordinator: Coordinator,
    /// The number of the process among all processes.
    pub(super) life: u32,
    dead: Arc<AtomicBool>,
    queue: Arc<Mutex<Option<Arc<Queue>>>>,
}

/// A place for a process, and the lock for starting or stopping one.
#[derive(Default)]
struct Slot {
    process: Mutex<Option<Process>>,
    starting: tokio::sync::Mutex<()>,
}

/// How a worker's process should end.
#[derive(Default)]
struct Orders {
    kill: Notify,
    shut_down: Notify,
}

pub(super) struct Cluster {
    pub(super) scene: Arc<Scene>,
    pub(super) shape: Shape,
    pub(super) register: Register,
    pub(super) log: SharedLog,
    pub(super) ledger: Arc<Ledger>,
    pub(super) history: History,
    folder: PathBuf,
    slots: Vec<Slot>,
    lives: AtomicU32,
    earlier: Mutex<Vec<Weak<CoreHandle>>>,
    orders: Vec<Orders>,
    pub(super) worker_ends: AtomicU64,
    /// No more processes are started.
    over: AtomicBool,
}

impl Cluster {
    pub(super) fn new(scene: &Arc<Scene>, shape: Shape) -> Arc<Self> {
        let name = format!("lgp-among-{}-{}", std::process::id(), scene.seed);
        let shared = PathBuf::from("/dev/shm");
        let folder = if shared.is_dir() { shared } else { std::env::temp_dir() }.join(name);
        Arc::new(Self {
            scene: Arc::clone(scene),
            register: Register::new(scene),
            log: SharedLog::new(scene),
            ledger: Ledger::new(scene),
            history: History::default(),
            folder,
            slots: (0..shape.coordinators).map(|_| Slot::default()).collect(),
            lives: AtomicU32::new(0),
            earlier: Mutex::default(),
            orders: (0..shape.workers).map(|_| Orders::default()).collect(),
            worker_ends: AtomicU64::new(0),
            over: AtomicBool::new(false),
            shape,
        })
    }

    pub(super) fn addr(at: usize) -> SocketAddr {
        address(coordinator_node(at), PORT)
    }

    fn slot(&self, at: usize) -> Option<MutexGuard<'_, Option<Process>>> {
        let slot = self.slots.get(at)?;
        Some(slot.process.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The process in a place, while there is one.
    pub(super) fn process(&self, at: usize) -> Option<Process> {
        self.slot(at)?.clone()
    }

    /// All running processes.
    pub(super) fn processes(&self) -> Vec<(usize, Process)> {
        let one = |at| Some((at, self.process(at)?));
        (0..self.shape.coordinators).filter_map(one).collect()
    }

    /// How many coordinator processes there were.
    pub(super) fn lives(&self) -> u32 {
        self.lives.load(Ordering::SeqCst)
    }

    async fn start(self: &Arc<Self>, at: usize) -> Result<(), String> {
        let Some(slot) = self.slots.get(at) else { return Ok(()) };
        let _one = slot.starting.lock().await;
        if self.process(at).is_some() || self.over.load(Ordering::SeqCst) {
            return Ok(());
        }
        let folder = self.folder.join(at.to_string());
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let config = CoordinatorConfig {
            quic_addr: Self::addr(at),
            journal: Some(folder.join("tasks.journal")),
            shared_memory_bytes_max: 0,
            ..CoordinatorConfig::default()
        };
        let node = coordinator_node(at);
        let (view, dead) = self.register.view(node);
        let (log, queue) = (self.log.clone(), Arc::default());
        let seat = Seat { log, node, dead: Arc::clone(&dead), running: Arc::clone(&queue) };
        let pki = pki().map_err(|error| error.to_string())?;
        let started = on(node, inside::start_among(Arc::new(seat), config, pki, view)).await;
        let coordinator = started.map_err(|error| error.to_string())?;
        let life = self.lives.fetch_add(1, Ordering::SeqCst) + 1;
        let number = coordinator.epoch();
        self.scene.note(|| format!("coordinator {at} is there: life {life}, number {number}"));
        let weak = Arc::downgrade(inside::shared(&coordinator));
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).push(weak);
        if let Some(mut slot) = self.slot(at) {
            *slot = Some(Process { coordinator, life, dead, queue });
        }
        Ok(())
    }

    /// Starts a process in an empty place, with retries.
    pub(super) fn insist(self: &Arc<Self>, at: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let cluster = Arc::clone(self);
        Box::pin(async move {
            for _ in 0..200 {
                match cluster.start(at).await {
                    Ok(()) => return,
                    Err(error) => cluster.scene.note(|| format!("no coordinator {at}: {error}")),
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            cluster.scene.fail(format!("coordinator {at} does not start"));
        })
    }

    /// Stops a process in an orderly way.
    pub(super) async fn stop(&self, at: usize) {
        let Some(slot) = self.slots.get(at) else { return };
        let _one = slot.starting.lock().await;
        let process = self.slot(at).and_then(|mut slot| slot.take());
        if let Some(process) = process {
            process.coordinator.stop().await;
            process.dead.store(true, Ordering::SeqCst);
            self.scene.net.cut(coordinator_node(at));
        }
    }

    /// Kills a process: it receives and writes nothing afterwards.
    pub(super) fn crash(&self, at: usize) {
        let Some(Process { coordinator, dead, queue, .. }) =
            self.slot(at).and_then(|mut slot| slot.take())
        else {
            return;
        };
        self.scene.note(|| format!("coordinator {at} is killed"));
        dead.store(true, Ordering::SeqCst);
        if let Some(queue) = queue.lock().unwrap_or_else(PoisonError::into_inner).take() {
            queue.crash();
        }
        self.scene.net.cut(coordinator_node(at));
        // Clean up its objects in the simulation's process.
        tokio::spawn(async move { coordinator.stop().await });
    }

    pub(super) fn kill_worker(&self, at: usize) {
        self.orders.get(at).inspect(|orders| orders.kill.notify_one());
    }

    /// Asks a worker to stop, and kills it after a while, as supervisors do.
    pub(super) fn shut_worker_down(self: &Arc<Self>, at: usize) {
        self.orders.get(at).inspect(|orders| orders.shut_down.notify_one());
        let (cluster, ends) = (Arc::clone(self), self.worker_ends.load(Ordering::SeqCst));
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            if cluster.worker_ends.load(Ordering::SeqCst) == ends {
                cluster.kill_worker(at);
            }
        });
    }

    /// Starts no more processes.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        (0..self.orders.len()).for_each(|at| self.kill_worker(at));
    }

    /// How many coordinators still have live objects.
    pub(super) fn left(&self) -> usize {
        let earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.iter().filter(|weak| weak.strong_count() > 0).count()
    }

    /// Starts a supervisor for each worker.
    pub(super) fn supervise(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let one = |at| {
            let (cluster, rng) = (Arc::clone(self), self.scene.rng());
            let node = crate::glue::cluster::worker_node(at);
            tokio::spawn(NODE.scope(node, cluster.keep(at, rng)))
        };
        (0..self.shape.workers).map(one).collect()
    }

    async fn keep(self: Arc<Self>, at: usize, mut rng: Xoshiro256PlusPlus) {
        let Some(orders) = self.orders.get(at) else { return };
        let places: Vec<_> =
            (0..self.shape.coordinators).map(|at| Self::addr(at).to_string()).collect();
        let Ok(places) = places.join(",").parse::<Coordinators>() else { return };
        for incarnation in 1.. {
            let Ok(identity) = identity_of_worker(at) else { return };
            let mut config = WorkerConfig::new(places.clone(), identity.clone(), self.shape.slots);
            config.incarnation = incarnation;
            config.shared_memory_bytes_max = 0;
            config.machine = format!("machine-{at}");
            let life = Arc::new(Life::default());
            let executor = SimExecutor {
                ledger: Arc::clone(&self.ledger),
                life: Arc::clone(&life),
                released: Arc::default(),
            };
            let running = run_worker(config, Arc::new(executor), orders.shut_down.notified());
            let ended = tokio::select! {
                ended = running => Some(ended),
                () = orders.kill.notified() => None,
            };
            self.scene.note(|| format!("worker {at} ended: {ended:?}"));
            match ended {
                None | Some(Ok(()) | Err(Error::MustRestart)) => {}
                Some(Err(error)) => self.scene.fail(format!("worker {at} gave up: {error}")),
            }
            self.worker_ends.fetch_add(1, Ordering::SeqCst);
            // The process is gone with everything in it.
            self.scene.net.cut(crate::glue::cluster::worker_node(at));
            life.end();
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let wait = rng.random_range(20..2_000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
