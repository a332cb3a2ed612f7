//! Models that are loaded because a client of a protocol without commands asks for one.

use super::turns::Turns;
use super::{Catalog, ModelEntry, Readiness, lock, not_ready};
use crate::fault::Fault;
use crate::faults;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// So long nobody has a model loaded by asking after a load that failed, unless something has changed.
const PAUSE: Duration = Duration::from_secs(10);

/// What is known of loads that such clients asked for.
#[derive(Debug, Default)]
pub(super) struct Demands {
    /// Each model is loaded once, however many ask.
    turns: Turns,
    failed: Mutex<HashMap<String, (Instant, Fault)>>,
}

impl Demands {
    /// Something about a model has changed, or somebody has it loaded.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.failed).remove(name);
    }

    /// Why the load before failed, if that was a moment ago.
    fn failure(&self, name: &str) -> Option<Fault> {
        let mut failed = lock(&self.failed);
        failed.retain(|_, (then, _)| then.elapsed() < PAUSE);
        failed.get(name).map(|(_, fault)| fault.clone())
    }
}

impl Catalog {
    /// The model, once it can be used: it is loaded if need be, or what loads it already is waited for.
    ///
    /// # Errors
    /// 503 where that takes longer than `limit`; why it cannot be loaded.
    pub(crate) async fn demand(
        self: &Arc<Self>,
        entry: &ModelEntry,
        limit: Duration,
    ) -> Result<ModelEntry, Fault> {
        if self.require_ready(entry).is_ok() {
            return Ok(entry.clone());
        }
        let (catalog, name) = (Arc::clone(self), entry.name().to_owned());
        // It goes on where this client does not wait any more: the next one has use for it.
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
