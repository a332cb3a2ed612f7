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
use crate::net::worker::attempts::Attempts;
use crate::net::worker::device_queue::{DeviceQueue, DeviceQueues};
use crate::net::worker::route::{Route, Sockets};
use crate::net::worker::session::{Ended, serve, status};
use crate::net::worker::warm_up::WarmUps;
use crate::proto::backoff::full_jitter;
use quinn::{Connection, ConnectionError, Endpoint};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a worker has over all of its connections.
pub(crate) struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) identity: Arc<RenewingIdentity>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) queues: DeviceQueues,
    /// What one connection left, the next may go on with.
    pub(crate) input_cache: Arc<TensorCache>,
    pub(crate) offers: Arc<Offers>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) warm_ups: Arc<WarmUps>,
}

/// Serves the coordinator that leads until `shutdown` resolves or the coordinator asks it to leave;
/// either way it finishes what it holds first. A lost connection is made anew, with jittered waits,
/// however long that takes; what runs goes on meanwhile. Where one of several coordinators does not
/// answer, or steps down, the next is tried. An identity that has expired is renewed by proof of
/// its key.
///
/// # Errors
/// [`Error::Refused`] when the coordinator refuses this worker for good or either side does
/// not trust the other; [`Error::JoinRefused`] when the identity was revoked or expired longer ago
/// than members may be away; [`Error::MustRestart`] when a run does not stop though it was asked to:
/// the process has to end, and another one can take its place; [`Error::Pki`] for an unusable
/// identity; [`Error::Bind`].
pub async fn run_worker(
    config: WorkerConfig,
    executor: Arc<dyn Executor>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let queues = queues(&config, &executor).await;
    let identity = RenewingIdentity::new(&config, queues.len())?;
    let input_bytes_max = u64::try_from(config.input_bytes_max).unwrap_or(u64::MAX);
    let input_cache = Arc::new(TensorCache::new(input_bytes_max, 1));
    let attempts = Arc::default();
    let offers = Arc::default();
    let warm_ups = Arc::default();
    let worker =
        Worker { config, identity, executor, queues, input_cache, offers, attempts, warm_ups };
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
        tracing::warn!(?wait, "no connection to a coordinator; trying again");
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
/// Those after which no other attempt is to be made.
async fn reach(
    worker: &Worker,
    route: &mut Route,
    sockets: &mut Sockets,
) -> Result<Option<(Endpoint, Connection)>> {
    let addr = match route.next(&worker.config).await {
        Ok(addr) => addr,
        Err(error) => {
            tracing::warn!(%error, "no coordinator is known");
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

/// Renews the identity where it has expired by the coordinator's clock, which decides, and notes what
/// became of the attempt, unless the connection was served. An error is one after which no other
/// connection is to be made.
async fn mend(
    worker: &Worker,
    route: &mut Route,
    (endpoint, addr): (&Endpoint, SocketAddr),
    (error, served): (ConnectionError, bool),
) -> Result<()> {
    tracing::warn!(%addr, %error, "no connection to the coordinator");
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
    Ok(())
}

async fn farewell(endpoint: &Endpoint, connection: &Connection) -> Result<()> {
    connection.close(Close::Farewell.code(), Close::Farewell.reason().as_bytes());
    // The other end may be gone and never confirm.
    let _ = tokio::time::timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
    Ok(())
}
