//! Loads models on demand, for clients whose protocol has no command to load one.

use super::turns::Turns;
use super::{Catalog, ModelEntry, Readiness, lock, not_ready};
use crate::fault::Fault;
use crate::faults;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The pause after a failed load before another demand retries it, unless the model has changed.
const PAUSE: Duration = Duration::from_secs(10);

/// The state of loads on demand.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// Serializes the loads of a model, so that many clients load it once.
    turns: Turns,
    failed: Mutex<HashMap<String, (Instant, Fault)>>,
}

impl Demands {
    /// Clears the failure of a model that has changed or was loaded by a command.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.failed).remove(name);
    }

    /// The failure of the last load, if it is recent.
    fn failure(&self, name: &str) -> Option<Fault> {
        let mut failed = lock(&self.failed);
        failed.retain(|_, (then, _)| then.elapsed() < PAUSE);
        failed.get(name).map(|(_, fault)| fault.clone())
    }
}

impl Catalog {
    /// The model once it is usable. Loads it if need be, or waits for a load in progress.
    ///
    /// # Errors
    /// 503 if that takes longer than `limit`; the error if the model cannot be loaded.
    pub(crate) async fn demand(
        self: &Arc<Self>,
        entry: &ModelEntry,
        limit: Duration,
    ) -> Result<ModelEntry, Fault> {
        if self.require_ready(entry).is_ok() {
            return Ok(entry.clone());
        }
        let (catalog, name) = (Arc::clone(self), entry.name().to_owned());
        // The load goes on if this client stops waiting, because the next client needs it.
        let loading = tokio::spawn(async move { catalog.load_once(&name).await });
        match tokio::time::timeout(limit, loading).await {
            Ok(loaded) => loaded.map_err(Fault::internal)?,
            Err(_) => Err(not_ready(entry, &Readiness::Loading)),
        }
    }

    async fn load_once(self: &Arc<Self>, name: &str) -> Result<ModelEntry, Fault> {
        let _turn = self.demands.turns.of(name).await;
        let entry = self.get(name, None).await?;
        if self.require_ready(&entry).is_ok() {
            return Ok(entry);
        }
        if let Some(fault) = self.demands.failure(name) {
            return Err(fault);
        }
        if self.readiness(&entry) == Readiness::Loading {
            self.coordinator.loaded(entry.model()).await.map_err(faults::cluster)?;
            if self.require_ready(&entry).is_ok() {
                return Ok(entry);
            }
        }
        match self.load(name, None).await {
            Ok(outcome) => Ok(outcome.entry),
            Err(fault) => {
                let failure = (Instant::now(), fault.clone());
                lock(&self.demands.failed).insert(name.to_owned(), failure);
                Err(fault)
            }
        }
    }
}
