//! A worker: connects, serves, and comes back after a lost connection.

pub(crate) mod attempts;
pub(crate) mod device_queue;
pub(crate) mod session;
pub(crate) mod task;

use crate::config::WorkerConfig;
use crate::error::{Error, Result};
use crate::executor::Executor;
use crate::net::identity::renew::{RenewingIdentity, is_final};
use crate::net::identity::role::COORDINATOR_SAN;
use crate::net::outside;
use crate::net::transfer::inputs::InputCache;
use crate::net::transport::close::{Close, final_error};
use crate::net::transport::endpoint;
use crate::net::worker::attempts::Attempts;
use crate::net::worker::device_queue::{DeviceQueue, DeviceQueues};
use crate::net::worker::session::{Ended, serve, status};
use crate::proto::backoff::full_jitter;
use quinn::{Connection, ConnectionError, Endpoint};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// What a worker has over all of its connections.
pub(crate) struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) identity: Arc<RenewingIdentity>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) queues: DeviceQueues,
    /// What one connection left, the next may go on with.
    pub(crate) input_cache: Arc<InputCache>,
    pub(crate) attempts: Arc<Attempts>,
}

/// Serves a coordinator until `shutdown` resolves or the coordinator asks it to leave; either
/// way it finishes what it holds first. A lost connection is made anew, with jittered waits, however
/// long that takes; what runs goes on meanwhile. An identity that has expired is renewed by proof of
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
    let addr = config.coordinator;
    let (endpoint, _) = endpoint::bind(endpoint::any_for(addr), None)?;
    let identity = RenewingIdentity::new(&config, queues.len())?;
    let input_bytes_max = u64::try_from(config.input_bytes_max).unwrap_or(u64::MAX);
    let input_cache = Arc::new(InputCache::new(input_bytes_max));
    let attempts = Arc::default();
    let worker = Worker { config, identity, executor, queues, input_cache, attempts };
    let config = &worker.config;
    let mut shutdown = pin!(shutdown);
    let mut rng = outside::rng();
    let mut failures = 0;
    loop {
        let connected = tokio::select! {
            connected = connect(&endpoint, &worker.identity, addr) => connected,
            () = &mut shutdown => return Ok(()),
        };
        let error = match connected {
            Ok(connection) => match serve(&connection, &worker, shutdown.as_mut()).await {
                Ended::Left => return farewell(&endpoint, &connection).await,
                Ended::Stuck => return Err(Error::MustRestart),
                Ended::Lost { error, greeted } => {
                    failures = if greeted { 0 } else { failures };
                    error
                }
            },
            Err(error) => error,
        };
        tokio::select! {
            mended = mend(&endpoint, &worker.identity, addr, &error) => mended?,
            () = &mut shutdown => return Ok(()),
        }
        failures += 1;
        let wait = full_jitter(failures, config.reconnect_min, config.reconnect_max, &mut rng);
        tracing::warn!(%error, ?wait, "no connection to the coordinator; trying again");
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

async fn connect(
    endpoint: &Endpoint,
    identity: &RenewingIdentity,
    addr: SocketAddr,
) -> Result<Connection, ConnectionError> {
    match endpoint.connect_with(identity.client(), addr, COORDINATOR_SAN) {
        Ok(connecting) => connecting.await,
        // The address is unusable for now or the endpoint is out of numbers.
        Err(error) => {
            tracing::warn!(%addr, %error, "cannot connect");
            Err(ConnectionError::LocallyClosed)
        }
    }
}

/// Renews the identity where it has expired by the coordinator's clock, which decides. An error is one
/// after which no other connection is to be made.
async fn mend(
    endpoint: &Endpoint,
    identity: &RenewingIdentity,
    addr: SocketAddr,
    error: &ConnectionError,
) -> Result<()> {
    if Close::given_by_peer(error) != Some(Close::Expired) {
        return final_error(addr, error, identity.until()?).map_or(Ok(()), Err);
    }
    match identity.recover(endpoint, addr).await {
        Ok(()) => tracing::info!("the certificate had expired and is renewed"),
        Err(error) if is_final(&error) => return Err(error),
        Err(error) => tracing::warn!(%error, "the expired certificate is not renewed yet"),
    }
    Ok(())
}

async fn farewell(endpoint: &Endpoint, connection: &Connection) -> Result<()> {
    connection.close(Close::Farewell.code(), Close::Farewell.reason().as_bytes());
    // The other end may be gone and never confirm.
    let _ = tokio::time::timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
    Ok(())
}
