//! The processes of a simulated cluster: a coordinator and workers that are killed, stopped in an
//! orderly way, and started again.

use super::executor::{Life, SimExecutor};
use super::ledger::Ledger;
use super::log::SimPlace;
use super::net::{NODE, Node, address};
use super::scene::Scene;
use lgp_distributed::inside::{self, CoreHandle};
use lgp_distributed::{
    Coordinator, CoordinatorConfig, Error, Identity, Pki, Role, Services, WorkerConfig, run_worker,
};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub(super) const COORDINATOR: Node = 1;
const PORT: u16 = 8443;
pub(super) const WORKERS_MAX: usize = 3;
pub(super) const CALLERS_MAX: usize = 3;

/// The age of the certificate of a worker that was away: it has expired, but can still be renewed.
const AWAY: Duration = Duration::from_secs(14 * 24 * 3600);

/// The time for an orderly stop of a worker.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

/// The machine of a worker.
pub(super) fn worker_node(at: usize) -> Node {
    Node::try_from(10 + at).unwrap_or(Node::MAX)
}
pub(super) fn caller_node(at: usize) -> Node {
    Node::try_from(100 + at).unwrap_or(Node::MAX)
}

/// The keys, shared by all runs of a process because they take long to make.
struct Keys {
    pki: Pki,
    workers: Vec<Identity>,
    callers: Vec<Identity>,
}

fn keys() -> Result<&'static Keys, Error> {
    static KEYS: OnceLock<Result<Keys, String>> = OnceLock::new();
    let make = || -> Result<Keys, Error> {
        let pki = Pki::generate()?;
        let issue = |role, name: &str, count| {
            (0..count).map(|at| pki.issue(role, &format!("{name}-{at}"))).collect()
        };
        let workers: Result<Vec<_>, Error> = issue(Role::Worker, "worker", WORKERS_MAX);
        let callers: Result<_, Error> = issue(Role::Client, "caller", CALLERS_MAX);
        let mut workers = workers?;
        // Each process of this worker must renew its certificate first.
        if let (Some(away), Some(then)) = (workers.first_mut(), SystemTime::now().checked_sub(AWAY))
        {
            *away = inside::issue_at(&pki, Role::Worker, "worker-0", then)?;
        }
        Ok(Keys { workers, callers: callers?, pki })
    };
    let keys = KEYS.get_or_init(|| make().map_err(|error| error.to_string()));
    keys.as_ref().map_err(|message| Error::Pki { message: message.clone() })
}

pub(super) fn caller_identity(at: usize) -> Result<&'static Identity, Error> {
    keys()?.callers.get(at).ok_or(Error::Stopped)
}

pub(super) fn pki() -> Result<&'static Pki, Error> {
    Ok(&keys()?.pki)
}

pub(super) fn identity_of_worker(at: usize) -> Result<&'static Identity, Error> {
    keys()?.workers.get(at).ok_or(Error::Stopped)
}

/// The size of a cluster.
pub(super) struct Shape {
    pub(super) workers: usize,
    pub(super) slots: u32,
    pub(super) batch_max: u32,
    pub(super) retained_tasks_max: usize,
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
    pub(super) place: SimPlace,
    pub(super) ledger: Arc<Ledger>,
    /// Whether the callers have left.
    pub(super) released: Arc<AtomicBool>,
    folder: PathBuf,
    coordinator: Mutex<Option<Coordinator>>,
    /// Held while a coordinator is started or stopped.
    starting: tokio::sync::Mutex<()>,
    /// How many coordinators there were.
    lives: AtomicU32,
    earlier: Mutex<Vec<Weak<CoreHandle>>>,
    orders: Vec<Orders>,
    /// How many worker processes ended.
    pub(super) worker_ends: AtomicU64,
    pub(super) replaced: AtomicU64,
    /// No more processes are started.
    over: AtomicBool,
}

impl Cluster {
    pub(super) fn new(scene: &Arc<Scene>, shape: Shape, place: SimPlace) -> Arc<Self> {
        let name = format!("lgp-glue-{}-{}", std::process::id(), scene.seed);
        let shared = PathBuf::from("/dev/shm");
        let folder = if shared.is_dir() { shared } else { std::env::temp_dir() }.join(name);
        Arc::new(Self {
            orders: (0..shape.workers).map(|_| Orders::default()).collect(),
            scene: Arc::clone(scene),
            ledger: Ledger::new(scene),
            shape,
            place,
            folder,
            released: Arc::default(),
            coordinator: Mutex::default(),
            starting: <_>::default(),
            lives: AtomicU32::new(0),
            earlier: Mutex::default(),
            worker_ends: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    pub(super) fn addr() -> SocketAddr {
        address(COORDINATOR, PORT)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Coordinator>> {
        self.coordinator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The coordinator, while there is one.
    pub(super) fn coordinator(&self) -> Option<Coordinator> {
        self.slot().clone()
    }

    /// The number of the coordinator's life.
    pub(super) fn life(&self) -> u32 {
        self.lives.load(Ordering::SeqCst)
    }

    /// Starts a coordinator if there is none.
    pub(super) async fn start(self: &Arc<Self>) -> Result<(), String> {
        let _one = self.starting.lock().await;
        if self.slot().is_some() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.folder).map_err(|error| error.to_string())?;
        let config = CoordinatorConfig {
            quic_addr: Self::addr(),
            journal: Some(self.folder.join("tasks.journal")),
            retained_tasks_max: self.shape.retained_tasks_max,
            shared_memory_bytes_max: 0,
            ..CoordinatorConfig::default()
        };
        let pki = &keys().map_err(|error| error.to_string())?.pki;
        let place = Some(Box::new(self.place.clone()) as _);
        let started = inside::start_on(place, config, pki, Services::default()).await;
        let coordinator = started.map_err(|error| error.to_string())?;
        let life = self.lives.fetch_add(1, Ordering::SeqCst) + 1;
        self.scene.note(|| format!("coordinator {life} is there"));
        let weak = Arc::downgrade(inside::shared(&coordinator));
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).push(weak);
        *self.slot() = Some(coordinator.clone());
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            let broken = coordinator.journal_broken().await;
            drop(coordinator);
            if !matches!(broken, Error::Stopped) && cluster.life() == life {
                cluster.scene.note(|| format!("coordinator {life} is replaced: {broken}"));
                cluster.stop().await;
                cluster.insist().await;
            }
        });
        Ok(())
    }

    /// Starts a coordinator, with retries.
    pub(super) fn insist(self: &Arc<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let cluster = Arc::clone(self);
        Box::pin(async move {
            for _ in 0..100 {
                match cluster.start().await {
                    Ok(()) => return,
                    Err(error) => cluster.scene.note(|| format!("no coordinator: {error}")),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            cluster.scene.fail("a coordinator does not start".into());
        })
    }

    /// Stops the coordinator in an orderly way.
    pub(super) async fn stop(&self) {
        let _one = self.starting.lock().await;
        let coordinator = self.slot().take();
        if let Some(coordinator) = coordinator {
            coordinator.stop().await;
            // Its process takes along the sockets that connections of slow peers have kept open.
            self.scene.net.cut(COORDINATOR);
        }
    }

    /// Kills the coordinator: it receives and writes nothing afterwards.
    pub(super) fn crash(&self) {
        let coordinator = self.slot().take();
        let Some(coordinator) = coordinator else { return };
        self.scene.note(|| "the coordinator is killed".into());
        self.place.crash();
        self.scene.net.cut(COORDINATOR);
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
            tokio::spawn(NODE.scope(worker_node(at), cluster.keep(at, rng)))
        };
        (0..self.shape.workers).map(one).collect()
    }

    async fn keep(self: Arc<Self>, at: usize, mut rng: Xoshiro256PlusPlus) {
        let (Some(orders), Ok(keys)) = (self.orders.get(at), keys()) else { return };
        let Some(identity) = keys.workers.get(at) else { return };
        for incarnation in 1.. {
            let mut config = WorkerConfig::new(Self::addr(), identity.clone(), self.shape.slots);
            config.incarnation = incarnation;
            config.batch_max = self.shape.batch_max;
            config.shared_memory_bytes_max = 0;
            config.machine = format!("machine-{at}");
            let life = Arc::new(Life::default());
            let executor = SimExecutor {
                ledger: Arc::clone(&self.ledger),
                life: Arc::clone(&life),
                released: Arc::clone(&self.released),
            };
            let running = run_worker(config, Arc::new(executor), orders.shut_down.notified());
            let ended = tokio::select! {
                ended = running => Some(ended),
                () = orders.kill.notified() => None,
            };
            self.scene.note(|| format!("worker {at} ended: {ended:?}"));
            match ended {
                None | Some(Ok(())) => {}
                Some(Err(Error::MustRestart)) => {
                    self.replaced.fetch_add(1, Ordering::SeqCst);
                }
                Some(Err(error)) => self.scene.fail(format!("worker {at} gave up: {error}")),
            }
            self.worker_ends.fetch_add(1, Ordering::SeqCst);
            // The process is gone with everything in it.
            self.scene.net.cut(worker_node(at));
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
