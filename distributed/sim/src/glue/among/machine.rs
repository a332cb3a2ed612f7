//! A machine with callers.

use super::cluster::Cluster;
use crate::glue::cluster::caller_identity;
use lgp_distributed::{Client, Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a caller waits for a coordinator before it asks another one.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// A caller's machine, with a connection to each coordinator.
pub(super) struct Machine {
    pub(super) cluster: Arc<Cluster>,
    pub(super) at: usize,
    clients: Vec<Mutex<Option<Client>>>,
}

impl Machine {
    pub(super) fn new(cluster: &Arc<Cluster>, at: usize) -> Arc<Self> {
        let clients = (0..cluster.shape.coordinators).map(|_| Mutex::default()).collect();
        Arc::new(Self { cluster: Arc::clone(cluster), at, clients })
    }

    async fn client(&self, to: usize) -> Result<Client> {
        let mut slot = self.clients.get(to).ok_or(Error::Stopped)?.lock().await;
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let connecting = Client::connect(Cluster::addr(to), caller_identity(self.at)?);
        let late = |_| Error::Connection("it takes too long".into());
        let client = timeout(CONNECT_LIMIT, connecting).await.map_err(late)??;
        *slot = Some(client.clone());
        Ok(client)
    }

    /// Calls a coordinator. If the connection fails, the next call makes a new one.
    pub(super) async fn call<R>(
        &self,
        to: usize,
        call: impl AsyncFnOnce(Client) -> Result<R>,
    ) -> Result<R> {
        let told = call(self.client(to).await?).await;
        if matches!(told, Err(Error::Connection(_) | Error::Refused { .. } | Error::Frame(_)))
            && let Some(slot) = self.clients.get(to)
        {
            *slot.lock().await = None;
        }
        told
    }
}
