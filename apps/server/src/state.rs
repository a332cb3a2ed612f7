//! State shared by all handlers: the coordinator, the registered models, the counters, the limits.

use crate::access::Access;
use crate::answers::Answers;
use crate::bodies::Bodies;
use crate::catalog::Catalog;
use crate::config::ServerConfig;
use crate::driver::Driver;
use crate::feed::Feed;
use crate::history::History;
use crate::metrics::Metrics;
use crate::places::Places;
use crate::sequences::Sequences;
use crate::shadow::Shadows;
use crate::shared_memory::Regions;
use crate::shed::Shed;
use crate::stream::Writers;
use crate::trace::Tracing;
use lgp_sdk::cluster::Coordinator;
use lgp_sdk::model::Repository;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The server's state. Clones share it.
#[derive(Clone)]
pub struct ServerState {
    inner: Arc<Inner>,
}

struct Inner {
    config: ServerConfig,
    coordinator: Coordinator,
    catalog: Arc<Catalog>,
    metrics: Metrics,
    driver: Option<Arc<dyn Driver>>,
    bodies: Bodies,
    answers: Answers,
    writers: Writers,
    feed: Feed,
    history: History,
    regions: Regions,
    shadows: Shadows,
    shed: Shed,
    sequences: Arc<Sequences>,
    tracing: Tracing,
    /// Limits the listeners to events.
    listeners: Arc<Places>,
    /// Limits the callers that wait for the end of a task.
    waiters: Arc<Places>,
    access: Access,
    /// True once the server is stopping.
    closing: watch::Sender<bool>,
}

impl ServerState {
    /// State over a running coordinator and a model repository. Must be made within a Tokio runtime.
    ///
    /// Without a driver, requests to scale or to stop are answered with 501.
    #[must_use]
    pub fn new(
        config: ServerConfig,
        coordinator: Coordinator,
        repository: Repository,
        access: Access,
        driver: Option<Arc<dyn Driver>>,
    ) -> Self {
        let config = config.within_room();
        let sequences = Sequences::new(&config);
        let catalog = Catalog::new(coordinator.clone(), repository, Arc::clone(&sequences));
        let catalog = Arc::new(catalog);
        let metrics = Metrics::default();
        let closing = watch::Sender::new(false);
        let bodies = Bodies::new(config.bodies_bytes_max);
        let answers = Answers::new(config.bodies_bytes_max, config.body_timeout());
        let writers = Writers::default();
        let listeners = Places::new(config.listeners_max);
        let waiters = Places::new(config.waiters_max);
        let feed = Feed::new(&coordinator, config.events_kept_max);
        let history = History::new(&coordinator);
        let tracing = Tracing::new(&config);
        let inner = Inner {
            config,
            coordinator,
            catalog,
            metrics,
            driver,
            bodies,
            answers,
            writers,
            feed,
            history,
            regions: Regions::default(),
            shadows: Shadows::default(),
            shed: Shed::default(),
            sequences,
            tracing,
            listeners,
            waiters,
            access,
            closing,
        };
        let inner = Arc::new(inner);
        watch(&inner);
        Self { inner }
    }

    /// Marks the server as stopping, which ends endless answers.
    pub(crate) fn close(&self) {
        self.inner.closing.send_replace(true);
    }

    /// Resolves once the server is stopping.
    pub(crate) async fn closing(&self) {
        // The sender lives as long as this state.
        let _ = self.inner.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Whether the server is stopping.
    pub(crate) fn is_closing(&self) -> bool {
        *self.inner.closing.borrow()
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.inner.config
    }

    /// Access control.
    pub(crate) fn access(&self) -> &Access {
        &self.inner.access
    }

    /// The room for request bodies.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.inner.bodies
    }

    /// The room for answers that clients have not taken yet; as large as that for request bodies.
    pub(crate) fn answers(&self) -> &Answers {
        &self.inner.answers
    }

    /// The threads that write large answers.
    pub(crate) fn writers(&self) -> &Writers {
        &self.inner.writers
    }

    /// The room for copies of requests to shadow models.
    pub(crate) fn shadows(&self) -> &Shadows {
        &self.inner.shadows
    }

    /// Decides which refusals are logged.
    pub(crate) fn shed(&self) -> &Shed {
        &self.inner.shed
    }

    /// The sequences of stateful models.
    pub(crate) fn sequences(&self) -> &Arc<Sequences> {
        &self.inner.sequences
    }

    /// The events of the cluster.
    pub(crate) fn feed(&self) -> &Feed {
        &self.inner.feed
    }

    /// The history of the totals.
    pub(crate) fn history(&self) -> &History {
        &self.inner.history
    }

    /// Shared memory that clients have registered.
    pub(crate) fn regions(&self) -> &Regions {
        &self.inner.regions
    }

    /// The trace exporter and its tracer.
    pub(crate) fn tracing(&self) -> &Tracing {
        &self.inner.tracing
    }

    /// Limits the listeners to events.
    pub(crate) fn listeners(&self) -> &Arc<Places> {
        &self.inner.listeners
    }

    /// Limits the callers that wait for the end of a task.
    pub(crate) fn waiters(&self) -> &Arc<Places> {
        &self.inner.waiters
    }

    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.inner.coordinator
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.inner.catalog
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    pub(crate) fn driver(&self) -> Option<&dyn Driver> {
        self.inner.driver.as_deref()
    }
}

/// Polls the folder of models for as long as the state lives.
fn watch(inner: &Arc<Inner>) {
    let pause = Duration::from_millis(inner.config.models_poll_ms);
    if pause.is_zero() {
        return;
    }
    let watched = Arc::downgrade(inner);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            let Some(inner) = watched.upgrade() else { return };
            if let Err(fault) = inner.catalog.refresh().await {
                let reason = fault.message;
                tracing::warn!(reason, "the folder of models cannot be looked at");
            }
        }
    });
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
