//! A worker: connects, serves, and comes back after a lost connection.

pub(crate) mod attempts;
pub(crate) mod device_queue;
mod loading;
mod route;
pub(crate) mod session;
pub(crate) mod task;
mod warm_up;

use crate::config::WorkerConfig;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::net::identity::renew::{RenewingIdentity, is_final};
use crate::net::outside;
use crate::net::transfer::tensors::{Offers, TensorCache};
use crate::net::transport::close::{Close, final_error};
use crate::net::transport::coordinators::Coordinators;
use crate::net::worker::attempts::Attempts;
use crate::net::worker::device_queue::{DeviceQueue, DeviceQueues};
use crate::net::worker::route::{Route, Sockets};
use crate::net::worker::session::{Ended, serve, status};
use crate::net::worker::warm_up::WarmUps;
use crate::proto::backoff::full_jitter;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use quinn::{Connection, ConnectionError, Endpoint};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Time for abandoned runs to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the executor is asked whether its process has to be replaced.
const LOOK: Duration = Duration::from_millis(100);
/// Time for the runs on other devices of a process that has to be replaced.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of a worker that outlive its connections to a coordinator.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) identity: Arc<RenewingIdentity>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) queues: DeviceQueues,
    /// The next connection continues the transfers that one connection left.
    pub(crate) input_cache: Arc<TensorCache>,
    pub(crate) offers: Arc<Offers>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) warm_ups: Arc<WarmUps>,
    pub(crate) served: Arc<Served>,
}

/// How many coordinators a worker serves.
#[derive(Debug, Default)]
pub(crate) struct Served(AtomicUsize);

impl Served {
    /// Counts one more coordinator, as long as the result lives.
    pub(crate) fn enter(self: &Arc<Self>) -> Serving {
        self.0.fetch_add(1, Relaxed);
        Serving(Arc::clone(self))
    }

    fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

pub(crate) struct Serving(Arc<Served>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Serves the coordinators until `shutdown` resolves or one of them asks the worker to leave;
/// either way the worker finishes its tasks first. A lost connection is made anew, with jittered
/// waits, however long that takes; runs go on meanwhile. All coordinators that are reached are
/// served at the same time: each has its own tasks, which share the devices. An expired identity is
/// renewed by proof of its key.
///
/// # Errors
/// [`Error::Refused`] when every coordinator refuses this worker for good or either side does
/// not trust the other; [`Error::JoinRefused`] when the identity was revoked or expired longer ago
/// than members may be away; [`Error::MustRestart`] when a run does not stop though it was asked to,
/// or when [`Executor::must_restart`] says so: the process has to end, and another one can take its
/// place; [`Error::Pki`] for an unusable identity; [`Error::Bind`].
pub async fn run_worker(
    config: WorkerConfig,
    executor: Arc<dyn Executor>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let queues = queues(&config, &executor).await;
    let identity = RenewingIdentity::new(&config, queues.len())?;
    let input_bytes_max = u64::try_from(config.input_bytes_max).unwrap_or(u64::MAX);
    let worker = Worker {
        config,
        identity,
        executor,
        queues,
        input_cache: Arc::new(TensorCache::new(input_bytes_max, 1)),
        offers: Arc::default(),
        attempts: Arc::default(),
        warm_ups: Arc::default(),
        served: Arc::default(),
    };
    let executor = Arc::clone(&worker.executor);
    let (restarts, mut restarting) = watch::channel(false);
    let shutdown = async {
        tokio::select! {
            () = shutdown => {}
            () = given_up(&*executor) => {
                tracing::error!(
                    limit = ?FINISH_TIMEOUT,
                    "a device works again only in a new process: finishing what runs on the others"
                );
                restarts.send_replace(true);
            }
        }
    };
    let overdue = async {
        // The sender outlives this.
        let _ = restarting.wait_for(|restarts| *restarts).await;
        tokio::time::sleep(FINISH_TIMEOUT).await;
    };
    let ended = tokio::select! {
        ended = serve_all(worker, shutdown) => ended,
        () = overdue => Ok(()),
    };
    // A worker that was told to leave before does not come back.
    let restarts = *restarts.borrow();
    ended.and(if restarts { Err(Error::MustRestart) } else { Ok(()) })
}

/// Resolves once the executor's process has to be replaced.
async fn given_up(executor: &dyn Executor) {
    while !executor.must_restart() {
        tokio::time::sleep(LOOK).await;
    }
}

async fn serve_all(worker: Worker, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    // Where two names lead to the same coordinator, the later connection stays.
    let places = worker.config.coordinators.each();
    match places.len() {
        0 | 1 => serve_one(worker, shutdown).await,
        _ => serve_each(worker, places, shutdown).await,
    }
}

/// How soon a coordinator that refuses is tried again, where another may serve.
const REFUSED: Duration = Duration::from_secs(30);

/// Serves several coordinators at once, until one asks the worker to leave, or all refuse it.
async fn serve_each(
    worker: Worker,
    places: Vec<Coordinators>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let (stop, stopping) = watch::channel(false);
    let begin = |place: Coordinators, wait| {
        let config = WorkerConfig { coordinators: place.clone(), ..worker.config.clone() };
        // Each coordinator has its own attempts.
        let worker = Worker { config, attempts: Arc::default(), ..worker.clone() };
        let (mut waiting, mut stopping) = (stopping.clone(), stopping.clone());
        async move {
            let stopped = waiting.wait_for(|stopping| *stopping);
            if tokio::time::timeout(wait, stopped).await.is_ok() {
                return (place, Ok(()));
            }
            let shutdown = async move {
                // The sender outlives all receivers.
                let _ = stopping.wait_for(|stopping| *stopping).await;
            };
            (place, serve_one(worker, shutdown).await)
        }
    };
    let count = places.len();
    let mut links: FuturesUnordered<_> =
        places.into_iter().map(|place| begin(place, Duration::ZERO)).collect();
    // Coordinators that have refused the worker since one last served it.
    let mut refused = Vec::new();
    let (mut shutdown, mut leaves, mut refusal) = (pin!(shutdown), false, None);
    loop {
        let ended = tokio::select! {
            ended = links.next() => ended,
            () = &mut shutdown, if !leaves => {
                leaves = true;
                stop.send_replace(true);
                continue;
            }
        };
        match ended {
            None if leaves => return Ok(()),
            None => return refusal.map_or(Ok(()), Err),
            Some((_, Ok(()))) => {
                leaves = true;
                stop.send_replace(true);
            }
            // A run that hangs does so for all coordinators.
            Some((_, Err(Error::MustRestart))) => return Err(Error::MustRestart),
            Some((_, Err(error))) if leaves => {
                refusal.get_or_insert(error);
            }
            Some((place, Err(error))) => {
                if !worker.served.is_empty() {
                    refused.clear();
                }
                if !refused.contains(&place) {
                    refused.push(place.clone());
                }
                if refused.len() == count {
                    return Err(error);
                }
                tracing::warn!(%error, wait = ?REFUSED, "a coordinator refuses; trying it again later");
                refusal.get_or_insert(error);
                links.push(begin(place, REFUSED));
            }
        }
    }
}

/// Serves one coordinator, which may have several addresses.
async fn serve_one(worker: Worker, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let (mut route, mut sockets) = (Route::default(), Sockets::default());
    let mut shutdown = pin!(shutdown);
    let mut rng = outside::rng();
    loop {
        let tried = tokio::select! {
            tried = reach(&worker, &mut route, &mut sockets) => tried?,
            () = &mut shutdown => return Ok(()),
        };
        if let Some((endpoint, connection)) = tried {
            let error = match serve(&connection, &worker, shutdown.as_mut()).await {
                Ended::Left => return farewell(&endpoint, &connection).await,
                Ended::Stuck => return Err(Error::MustRestart),
                Ended::Lost { error, greeted } => {
                    if greeted {
                        route.lost(&error);
                    }
                    (error, greeted)
                }
            };
            tokio::select! {
                mended = mend(&worker, &mut route, (&endpoint, connection.remote_address()), error) => mended?,
                () = &mut shutdown => return Ok(()),
            }
        }
        let Some(round) = route.pause() else { continue };
        let WorkerConfig { reconnect_min, reconnect_max, .. } = worker.config;
        let wait = full_jitter(round, reconnect_min, reconnect_max, &mut rng);
        if worker.served.is_empty() {
            tracing::debug!(?wait, "no connection to a coordinator; trying again");
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = &mut shutdown => return Ok(()),
        }
    }
}

/// The queue of each device.
async fn queues(config: &WorkerConfig, executor: &Arc<dyn Executor>) -> DeviceQueues {
    let devices = status(executor).await.devices.len().max(1);
    let queue = |device| Arc::new(DeviceQueue::new(device, config, Arc::clone(executor)));
    (0..devices).map(queue).collect()
}

/// Tries the next coordinator; `None` where it is not reached.
///
/// # Errors
/// Errors after which no other attempt must be made.
async fn reach(
    worker: &Worker,
    route: &mut Route,
    sockets: &mut Sockets,
) -> Result<Option<(Endpoint, Connection)>> {
    let addr = match route.next(&worker.config).await {
        Ok(addr) => addr,
        Err(error) => {
            if route.is_worth_a_word(Instant::now()) {
                tracing::warn!(%error, "no coordinator is known; trying again");
            }
            return Ok(None);
        }
    };
    let endpoint = sockets.of(addr)?;
    match route::connect(&endpoint, &worker.identity, addr).await {
        Ok(connection) => Ok(Some((endpoint, connection))),
        Err(error) => {
            mend(worker, route, (&endpoint, addr), (error, false)).await?;
            Ok(None)
        }
    }
}

/// Renews the identity where it has expired by the coordinator's clock, which decides, and notes
/// the failed attempt, unless the connection was served. After an error, no other connection must
/// be made.
async fn mend(
    worker: &Worker,
    route: &mut Route,
    (endpoint, addr): (&Endpoint, SocketAddr),
    (error, served): (ConnectionError, bool),
) -> Result<()> {
    let identity = &worker.identity;
    let given = Close::given_by_peer(&error);
    let named = given == Some(Close::Superseded) && !served;
    let may_be_its_own = !route.is_taken(Instant::now(), named) && named;
    let refusal = if given == Some(Close::Expired) {
        match identity.recover(endpoint, addr).await {
            Ok(()) => {
                tracing::info!("the certificate had expired and is renewed");
                None
            }
            Err(error) if is_final(&error) => Some(error),
            Err(error) => {
                tracing::warn!(%error, "the expired certificate is not renewed yet");
                None
            }
        }
    } else if may_be_its_own {
        None
    } else {
        final_error(addr, &error, identity.until()?)
    };
    match refusal {
        Some(refusal) if route.refused() => return Err(refusal),
        Some(refusal) => tracing::warn!(error = %refusal, "trying the next coordinator"),
        None if !served => route.failed(),
        None => {}
    }
    // One of several coordinators may be away for long.
    match worker.served.is_empty() && route.is_worth_a_word(Instant::now()) {
        true => tracing::warn!(%addr, %error, "no connection to the coordinator; trying again"),
        false => tracing::debug!(%addr, %error, "no connection to one of the coordinators"),
    }
    Ok(())
}

async fn farewell(endpoint: &Endpoint, connection: &Connection) -> Result<()> {
    connection.close(Close::Farewell.code(), Close::Farewell.reason().as_bytes());
    // The coordinator may be gone and never confirm.
    let _ = tokio::time::timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
    Ok(())
}
