//! A worker: connects, serves, and comes back after a lost connection.

use crate::config::WorkerConfig;
use crate::error::Result;
use crate::executor::Executor;
use crate::net::close::{Close, final_error};
use crate::net::large::Larder;
use crate::net::line::{Line, Lines};
use crate::net::renew::Badge;
use crate::net::role::COORDINATOR_SAN;
use crate::net::transport;
use crate::net::worker_session::{Ended, serve, status};
use crate::proto::backoff::full_jitter;
use quinn::{Connection, ConnectionError, Endpoint};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Serves a coordinator until `shutdown` resolves or the coordinator asks it to leave; either
/// way it finishes what it holds first. A lost connection is made anew, with jittered waits.
///
/// # Errors
/// [`Error::Refused`] when the coordinator refuses this worker for good or either side does
/// not trust the other; [`Error::JoinRefused`] when the identity has expired or was revoked;
/// [`Error::Pki`] for an unusable identity; [`Error::Bind`].
pub async fn run_worker(
    config: WorkerConfig,
    executor: Arc<dyn Executor>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let lines = lines(&config, &executor).await;
    let (endpoint, _) = transport::bind(transport::any_for(config.coordinator), None)?;
    let badge = Badge::new(&config, lines.len())?;
    // What one connection left, the next may go on with.
    let larder = Arc::new(Larder::new(u64::try_from(config.input_bytes_max).unwrap_or(u64::MAX)));
    let mut shutdown = pin!(shutdown);
    let mut rng = Xoshiro256PlusPlus::from_rng(&mut rand::rng());
    let mut failures = 0;
    loop {
        let connected = tokio::select! {
            connected = connect(&endpoint, &badge, config.coordinator) => connected,
            () = &mut shutdown => return Ok(()),
        };
        let error = match connected {
            Ok(connection) => {
                let shutdown = shutdown.as_mut();
                match serve(&connection, &config, &badge, &executor, &lines, &larder, shutdown)
                    .await
                {
                    Ended::Left => return farewell(&endpoint, &connection).await,
                    Ended::Lost { error, greeted } => {
                        failures = if greeted { 0 } else { failures };
                        error
                    }
                }
            }
            Err(error) => error,
        };
        if let Some(error) = final_error(config.coordinator, &error) {
            return Err(error);
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

/// The line of each device.
async fn lines(config: &WorkerConfig, executor: &Arc<dyn Executor>) -> Lines {
    let devices = status(executor).await.devices.len().max(1);
    let line = |device| Arc::new(Line::new(device, config, Arc::clone(executor)));
    (0..devices).map(line).collect()
}

async fn connect(
    endpoint: &Endpoint,
    badge: &Badge,
    addr: SocketAddr,
) -> Result<Connection, ConnectionError> {
    match endpoint.connect_with(badge.client(), addr, COORDINATOR_SAN) {
        Ok(connecting) => connecting.await,
        // The address is unusable for now or the endpoint is out of numbers.
        Err(error) => {
            tracing::warn!(%addr, %error, "cannot connect");
            Err(ConnectionError::LocallyClosed)
        }
    }
}

async fn farewell(endpoint: &Endpoint, connection: &Connection) -> Result<()> {
    connection.close(Close::Farewell.code(), Close::Farewell.reason().as_bytes());
    // The other end may be gone and never confirm.
    let _ = tokio::time::timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
    Ok(())
}
