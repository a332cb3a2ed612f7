//! Local worker processes: started, watched, started again when they die, ended.
//!
//! One task watches one place for a worker. A worker that dies there is replaced, after a longer wait each time it dies
//! again. The coordinator is told at once, so that tasks need not wait for a timeout.

mod plan;

use crate::cluster::bootstrap::{self, Bootstrap, Worker};
use crate::failure::{Failure, Result};
use crate::folder;
use crate::logging::LogFormat;
use crate::settings::Limits;
use crate::simd::Simd;
use lgp_distributed::{ExecError, ExecErrorKind, Supervisor, WorkerState};
use lgp_sdk::cluster::{Coordinator, ModelRef, Pki, TaskId};
use lgp_sdk::device::DeviceId;
use lgp_server::{BoxFuture, Driver, DriverError, Restarted};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The first and the longest wait before a dead worker is replaced.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A worker that lived this long was sound: the next wait is the first one again.
const SOUND: Duration = Duration::from_secs(10);
/// The number of workers in a row that die before they are sound, after which starting has failed.
const DEATHS_MAX: u32 = 3;
/// How long a worker may take to finish the tasks it holds.
const LEAVE: Duration = Duration::from_secs(60);
/// How long a new worker may take to join and to load every model.
const READY: Duration = Duration::from_secs(60);
/// How long a worker may take to end once it is told to.
const END: Duration = Duration::from_secs(3);
/// The most workers that one machine is asked to run.
pub(crate) const WORKERS_MAX: usize = 256;

/// The prefix of local workers' names; no other worker's name has it.
pub(crate) const OWN_PREFIX: &str = "local-";

/// The settings that all local workers share.
pub(crate) struct Fleet {
    pub(crate) coordinator: Coordinator,
    pub(crate) pki: Pki,
    pub(crate) devices: Vec<DeviceId>,
    /// Bytes of each device's memory that models may take, if less than all.
    pub(crate) model_memory: Option<u64>,
    pub(crate) models: PathBuf,
    pub(crate) log: PathBuf,
    /// The cores that the workers share.
    pub(crate) cores: usize,
    /// The widest vector instructions that the workers use.
    pub(crate) simd: Simd,
    /// The form of the workers' log lines.
    pub(crate) log_format: LogFormat,
    /// How the workers batch tasks.
    pub(crate) limits: Limits,
}

/// Whether the coordinator is to end, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Keep running.
    Run,
    /// End when every accepted task is done.
    Drain,
    /// End at once.
    Now,
}

/// An order to the task that watches a place.
enum Order {
    /// Kill the worker with SIGKILL.
    Kill,
    /// Let the worker finish and leave; no other replaces it.
    Leave,
}

struct Place {
    /// The name of the worker in this place.
    worker: Arc<Mutex<Option<String>>>,
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

struct Inner {
    fleet: Fleet,
    places: Mutex<Vec<Place>>,
    /// The number of workers ever started: no name is used twice.
    started: Mutex<u64>,
    /// The worker that reports which devices of the machine are not used.
    surveyor: Mutex<Option<String>>,
    /// Held while a model's memory is planned.
    planning: tokio::sync::Mutex<()>,
    stop: watch::Sender<Stop>,
    /// Why workers keep dying.
    broken: watch::Sender<Option<String>>,
}

/// The local workers. Clones share them.
#[derive(Clone)]
pub(crate) struct LocalDriver(Arc<Inner>);

impl LocalDriver {
    pub(crate) fn new(fleet: Fleet) -> Self {
        Self(Arc::new(Inner {
            fleet,
            places: Mutex::default(),
            started: Mutex::default(),
            surveyor: Mutex::default(),
            planning: tokio::sync::Mutex::default(),
            stop: watch::Sender::new(Stop::Run),
            broken: watch::Sender::new(None),
        }))
    }

    /// The stop requests that the coordinator gets.
    pub(crate) fn stop_requests(&self) -> watch::Receiver<Stop> {
        self.0.stop.subscribe()
    }

    /// Resolves once the coordinator is to end, in whichever way.
    pub(crate) async fn stop_requested(&self) {
        // The sender lives in self.
        let _ = self.stop_requests().wait_for(|stop| *stop != Stop::Run).await;
    }

    /// Asks the coordinator to end; a stronger request overrules a weaker one.
    pub(crate) fn request_stop(&self, stop: Stop) {
        self.0.stop.send_if_modified(|present| {
            let stronger = stop > *present;
            *present = stop.max(*present);
            stronger
        });
    }

    /// Resolves with the reason once workers keep dying before they are sound.
    pub(crate) async fn broken(&self) -> Failure {
        let mut broken = self.0.broken.subscribe();
        // The sender lives in self.
        let reason = broken.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        Failure::new(
            "worker_start_failed",
            format!("workers do not start: {}", reason.unwrap_or_default()),
        )
    }

    /// Kills a worker by name with SIGKILL. Answers whether there was one.
    pub(crate) fn kill(&self, worker: &str) -> bool {
        let places = lock(&self.0.places);
        let place = places.iter().find(|place| lock(&place.worker).as_deref() == Some(worker));
        place.is_some_and(|place| place.orders.send(Order::Kill).is_ok())
    }

    /// Brings the number of places to `workers`. Running workers keep their threads; a worker that starts, for the
    /// first time or again, gets its share of the cores at that moment.
    pub(crate) fn resize(&self, workers: usize) -> usize {
        let mut places = lock(&self.0.places);
        let before = places.len();
        while places.len() > workers {
            if let Some(place) = places.pop() {
                // The watcher may have ended already; then it has no worker to send away.
                let _ = place.orders.send(Order::Leave);
            }
        }
        while places.len() < workers {
            places.push(self.place());
        }
        before
    }

    /// As [`Self::resize`], for requests from outside.
    fn try_resize(&self, workers: usize) -> Result<usize, DriverError> {
        if workers > WORKERS_MAX {
            return Err(DriverError::TooMany { given: workers, max: WORKERS_MAX });
        }
        if *self.0.stop.borrow() != Stop::Run {
            return Err(DriverError::Stopping);
        }
        Ok(self.resize(workers))
    }

    /// Makes a place and starts a worker in it.
    fn place(&self) -> Place {
        let (orders, inbox) = mpsc::unbounded_channel();
        let worker = Arc::default();
        let watcher = Watcher { driver: self.clone(), worker: Arc::clone(&worker), inbox };
        Place { worker, orders, task: tokio::spawn(watcher.run()) }
    }

    /// Replaces every worker by a new one, one after another. The old worker leaves once the new one is ready and has
    /// the models, so that no request waits for either. Where the new worker cannot load a model that the old one
    /// serves, the new one leaves.
    async fn replace_all(&self, limit: Duration) -> Result<Restarted, DriverError> {
        let count = self.places();
        let mut ended = Vec::new();
        for done in 0..count {
            if *self.0.stop.borrow() != Stop::Run {
                return Err(DriverError::Stopping);
            }
            let fresh = self.place();
            let worker = Arc::clone(&fresh.worker);
            // Wait before the old worker leaves, so that the cores are shared by the right number.
            let lacking = tokio::time::timeout(READY, async {
                self.until_ready(&worker).await;
                self.lacking(&worker).await
            });
            let refused = match lacking.await {
                Ok(None) => None,
                Ok(Some((model, error))) => {
                    tracing::error!(%model, %error, "a new worker cannot load what the old one has");
                    Some(DriverError::Unloadable { model: model.to_string(), done, count })
                }
                Err(_) => Some(DriverError::Start(format!(
                    "it was not ready within {} s; {done} of {count} were replaced",
                    READY.as_secs()
                ))),
            };
            if let Some(refused) = refused {
                // The watcher may have ended already; then it has no worker to send away.
                let _ = fresh.orders.send(Order::Leave);
                return Err(refused);
            }
            let old = {
                let mut places = lock(&self.0.places);
                places.push(fresh);
                // A request may have scaled down meanwhile.
                (places.len() > 1).then(|| places.remove(0))
            };
            if let Some(old) = old {
                ended.extend(self.drained(&old, limit).await);
                // As above; a watcher that panicked has dropped its worker, which kills the worker.
                let _ = old.orders.send(Order::Leave);
                let _ = old.task.await;
            }
        }
        Ok(Restarted { workers: count, ended })
    }

    /// Lets a place's worker finish its tasks for at most `limit`; answers the tasks that were ended then.
    async fn drained(&self, place: &Place, limit: Duration) -> Vec<TaskId> {
        let Some(worker) = lock(&place.worker).clone() else { return Vec::new() };
        // A worker that is gone has nothing to finish.
        self.0.fleet.coordinator.drain_worker(&worker, limit).await.unwrap_or_default()
    }

    /// Resolves once a place's worker is ready and has settled which models it holds.
    async fn until_ready(&self, worker: &Mutex<Option<String>>) {
        let coordinator = &self.0.fleet.coordinator;
        loop {
            let name = lock(worker).clone();
            let info = name.as_ref().and_then(|name| coordinator.worker(name).ok());
            // A settled worker holds the models it has room for, not those that only others have room for.
            let settled = name.is_some_and(|name| coordinator.is_settled(&name));
            if settled && info.is_some_and(|w| w.state == WorkerState::Ready) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The first model that the old worker of the first place has and the new worker could not load, and why. A model
    /// that the new worker had no room for does not count: it gets the old worker's room.
    async fn lacking(&self, fresh: &Mutex<Option<String>>) -> Option<(ModelRef, ExecError)> {
        let coordinator = &self.0.fleet.coordinator;
        let old = lock(&self.0.places).first().and_then(|place| lock(&place.worker).clone())?;
        let fresh = lock(fresh).clone()?;
        let old = coordinator.worker(&old).ok()?;
        let has = coordinator.worker(&fresh).ok()?.models;
        for model in coordinator.models() {
            let name = model.to_string();
            if has.contains(&name) || !old.models.contains(&name) {
                continue;
            }
            let report = coordinator.loaded(&model).await.ok()?;
            let failed = report
                .into_iter()
                .find_map(|(worker, loaded)| loaded.err().filter(|_| worker.as_str() == fresh));
            if let Some(error) = failed.filter(|error| error.kind != ExecErrorKind::Unavailable) {
                return Some((model, error));
            }
        }
        None
    }

    /// Ends every worker. It waits for their processes only, and for a short time.
    pub(crate) async fn end(&self) {
        let places = std::mem::take(&mut *lock(&self.0.places));
        for place in &places {
            // The watcher may have ended already; then it has no worker to send away.
            let _ = place.orders.send(Order::Leave);
        }
        self.request_stop(Stop::Now);
        for place in places {
            // A watcher that panicked has dropped its worker, which kills the worker.
            let _ = place.task.await;
        }
    }

    /// The number of workers that are wanted.
    pub(crate) fn places(&self) -> usize {
        lock(&self.0.places).len()
    }

    /// The cores, shared evenly among the places that there are now.
    fn threads_each(&self) -> usize {
        (self.0.fleet.cores / self.places().max(1)).max(1)
    }

    /// Whether this worker reports which devices are not used: the first worker does, for as long as it lives.
    fn gives_survey_to(&self, name: &str) -> bool {
        lock(&self.0.surveyor).get_or_insert_with(|| name.to_owned()) == name
    }

    fn next_name(&self) -> String {
        let mut started = lock(&self.0.started);
        *started += 1;
        format!("{OWN_PREFIX}{started}")
    }
}

impl Driver for LocalDriver {
    fn scale(&self, workers: usize) -> BoxFuture<'_, Result<usize, DriverError>> {
        Box::pin(async move { self.try_resize(workers) })
    }

    fn restart(&self, limit: Duration) -> BoxFuture<'_, Result<Restarted, DriverError>> {
        Box::pin(self.replace_all(limit))
    }

    fn workers(&self) -> usize {
        self.places()
    }

    fn stop(&self, now: bool) {
        self.request_stop(if now { Stop::Now } else { Stop::Drain });
    }

    fn plan(&self, model: PathBuf) -> BoxFuture<'_, Result<serde_json::Value, DriverError>> {
        Box::pin(async move {
            // Only one plan runs at a time: a plan takes as much memory as its model.
            let _turn = self.0.planning.lock().await;
            plan::plan(&model).await.map_err(DriverError::Plan)
        })
    }

    fn logs(&self) -> Vec<PathBuf> {
        self.0.fleet.log.parent().map(folder::logs).unwrap_or_default()
    }
}

/// The driver for the coordinator, which starts before the driver exists.
#[derive(Default)]
pub(crate) struct DriverToCome(OnceLock<LocalDriver>);

impl DriverToCome {
    /// Sets the driver. Only the first call counts.
    pub(crate) fn came(&self, driver: &LocalDriver) {
        self.0.get_or_init(|| driver.clone());
    }
}

impl Supervisor for DriverToCome {
    fn scale(&self, workers: usize) -> Result<usize, String> {
        let driver = self.0.get().ok_or("the coordinator is starting")?;
        driver.try_resize(workers).map_err(|error| error.to_string())
    }

    fn replace(&self, worker: &str) {
        // A remote worker's process hears of it from the coordinator, and starts anew.
        self.0.get().map(|driver| driver.kill(worker));
    }
}

/// The address at which a local worker reaches a coordinator that listens at `bound`. A coordinator that listens on all
/// addresses is reached on loopback: the unspecified address cannot be dialled.
fn dialled(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

/// Keeps one place filled.
struct Watcher {
    driver: LocalDriver,
    worker: Arc<Mutex<Option<String>>>,
    inbox: mpsc::UnboundedReceiver<Order>,
}

impl Watcher {
    async fn run(mut self) {
        let (mut backoff, mut deaths) = (BACKOFF.0, 0);
        loop {
            let start = Instant::now();
            let name = self.driver.next_name();
            let (leave, how) = match self.start(&name).await {
                Ok(worker) => self.watch(&name, worker).await,
                Err(failure) => (false, failure.message),
            };
            *lock(&self.worker) = None;
            lock(&self.driver.0.surveyor).take_if(|surveyor| *surveyor == name);
            // The coordinator would find out by itself, but only after a timeout.
            self.driver.0.fleet.coordinator.worker_exited(&name);
            if leave {
                return;
            }
            tracing::warn!(worker = name, "worker ended ({how}) and is replaced");
            (backoff, deaths) = match start.elapsed() > SOUND {
                true => (BACKOFF.0, 0),
                false => ((backoff * 2).min(BACKOFF.1), deaths + 1),
            };
            if deaths >= DEATHS_MAX {
                self.driver.0.broken.send_replace(Some(how));
            }
            tokio::select! {
                () = tokio::time::sleep(backoff) => {}
                order = self.inbox.recv() => if !matches!(order, Some(Order::Kill)) { return; }
            }
        }
    }

    async fn start(&self, name: &str) -> Result<Worker> {
        let fleet = &self.driver.0.fleet;
        let identity = fleet
            .pki
            .issue_worker(name)
            .map_err(|error| Failure::from_error("worker_start_failed", &error))?;
        let bootstrap = Bootstrap {
            coordinator: dialled(fleet.coordinator.quic_addr()),
            identity,
            devices: fleet.devices.clone(),
            model_memory: fleet.model_memory,
            threads: self.driver.threads_each(),
            simd: fleet.simd,
            log_format: fleet.log_format,
            limits: fleet.limits,
            surveys: self.driver.gives_survey_to(name),
            models: fleet.models.clone(),
        };
        let worker = bootstrap::spawn(&bootstrap, &fleet.log).await?;
        tracing::info!(worker = name, pid = worker.process.id(), "worker started");
        *lock(&self.worker) = Some(name.to_owned());
        Ok(worker)
    }

    /// Waits for a worker's end. Answers whether the end was asked for, and how the worker ended.
    async fn watch(&mut self, name: &str, mut worker: Worker) -> (bool, String) {
        loop {
            tokio::select! {
                status = worker.process.wait() => {
                    let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
                    return (false, how);
                }
                order = self.inbox.recv() => match order {
                    Some(Order::Kill) => {
                        // One that has ended already needs no killing.
                        let _ = worker.process.start_kill();
                    }
                    Some(Order::Leave) | None => {
                        self.send_away(name, worker).await;
                        return (true, String::new());
                    }
                }
            }
        }
    }

    /// Lets a worker finish its tasks, unless the coordinator is to stop; then ends the worker.
    async fn send_away(&self, name: &str, worker: Worker) {
        let Worker { mut process, lifeline } = worker;
        let mut stop = self.driver.stop_requests();
        if *stop.borrow() == Stop::Run
            && self.driver.0.fleet.coordinator.shutdown_worker(name).is_ok()
        {
            tokio::select! {
                _ = process.wait() => return,
                () = tokio::time::sleep(LEAVE) => {}
                _ = stop.wait_for(|stop| *stop == Stop::Now) => {}
            }
        }
        // A closed stdin is the worker's sign to end.
        drop(lifeline);
        if tokio::time::timeout(END, process.wait()).await.is_err() {
            // The worker's time is up. An error means that it has just ended.
            let _ = process.kill().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
