//! The coordinator: a handle on the core and on the endpoint that workers connect to.

mod backlog;
pub(crate) mod core_handle;
mod election;
pub(crate) mod elsewhere;
mod events;
pub(crate) mod exchange;
mod fleet;
pub(crate) mod gate;
pub(crate) mod journal;
pub(crate) mod mirror;
mod outputs;
pub(crate) mod peers;
pub(crate) mod requests;
mod revoke;
pub(crate) mod session;
pub(crate) mod stored;
mod tasks;
mod upkeep;
pub(crate) mod waiting;

pub use events::Events;

use crate::config::CoordinatorConfig;
use crate::control::authority::Leading;
use crate::control::log::Place;
use crate::control::persisted::Persisted;
use crate::control::shared;
use crate::error::{Error, Result};
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::coordinator::gate::{Gate, Services};
use crate::net::coordinator::peers::{About, Peers};
use crate::net::identity::enrol::{JOINING, Limits};
use crate::net::identity::members::ConnectedMembers;
use crate::net::identity::pki::Pki;
use crate::net::identity::tls;
use crate::net::identity::token::Tokens;
use crate::net::outside;
use crate::net::transport::close::Close;
use crate::net::transport::endpoint;
use crate::net::transport::endpoint::SocketWatch;
use crate::net::transport::shared_memory::Lender;
use crate::proto::HangTable;
use crate::proto::balance;
use crate::proto::core::Core;
use crate::proto::state::{CoreConfig, RetentionLimits, Timing};
use quinn::{Endpoint, ServerConfig};
use rand::RngExt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Label of the key for stateless resets, which end connections of earlier coordinators.
const RESET_LABEL: &str = "legacy-gpu stateless reset";

/// Bytes of a task's outputs that travel through the journal; longer outputs are written once, to a
/// file beside it, so that readers of the journal need not read them.
const OUTPUTS_INLINE_MAX: usize = 64 << 10;

/// Coordinators that take part at once number their tasks from their own number on, this many bits
/// higher. Their numbers are at least a millisecond apart, so that task numbers never meet.
const NUMBER_BITS: u32 = 20;

/// The authority's file of devices on which runs did not stop.
const HANGS: &str = "devices.json";
const HANGS_REMEDY: &str = "delete it to forget which devices were taken out";

/// A running coordinator. Clones share it; it runs until [`Coordinator::stop`].
#[derive(Clone)]
pub struct Coordinator {
    shared: Arc<CoreHandle>,
    config: Arc<CoordinatorConfig>,
    addr: SocketAddr,
    /// Taken by `stop`, so that the port becomes free.
    endpoint: Arc<Mutex<Option<(Endpoint, SocketWatch)>>>,
    tokens: Option<Tokens>,
    pki: Pki,
    /// The number of its lead, and the epoch of its tasks' ids.
    epoch: u64,
    /// Its lead of the cluster, while it leads.
    leading: Arc<Mutex<Option<Leading>>>,
    /// The other coordinators, where there can be any.
    peers: Option<Arc<Peers>>,
    present: Arc<ConnectedMembers>,
    limits: Arc<Limits>,
    /// Buffers of memory that is shared with workers.
    lender: Option<Arc<Lender>>,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Listens for workers whose certificates `pki` issued. Must run within a Tokio runtime.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Pki`], [`Error::UnknownBalancing`]; [`Error::Journal`] where
    /// the journal cannot be used, which is then left as it was.
    pub async fn start(config: CoordinatorConfig, pki: &Pki) -> Result<Self> {
        Self::start_with(config, pki, Services::default()).await
    }

    /// As [`Coordinator::start`], for machines that join with tokens and fetch their models.
    ///
    /// # Errors
    /// As [`Coordinator::start`].
    pub async fn start_with(
        config: CoordinatorConfig,
        pki: &Pki,
        services: Services,
    ) -> Result<Self> {
        if config.control.is_some() && config.journal.is_none() {
            let reason =
                "what is too large for a record needs a journal's path to lie beside".into();
            return Err(Error::Control { reason });
        }
        let place = config.journal.as_deref();
        let place = place.map(|path| shared::log(config.control.as_ref(), path)).transpose()?;
        match (config.control.is_some(), place) {
            (true, Some(place)) => Self::start_among(place.into(), config, pki, services).await,
            (_, place) => Self::start_on(place, config, pki, services).await,
        }
    }

    /// As [`Coordinator::start_with`], with the log of durable tasks in `place`; tensors that are
    /// too large for the log lie beside the journal's path in the settings.
    pub(crate) async fn start_on(
        place: Option<Box<dyn Place>>,
        config: CoordinatorConfig,
        pki: &Pki,
        services: Services,
    ) -> Result<Self> {
        let handle = tokio::runtime::Handle::current();
        let (lead, journal) = (Arc::clone(pki.lead()), place.zip(config.journal.clone()));
        let blobs = config.blobs.clone();
        let opening = outside::blocking(move || {
            let leading = lead.take(outside::unix_ms())?;
            let epoch = leading.epoch();
            let open = |(place, path): (Box<dyn Place>, PathBuf)| {
                journal::open(&*place, (&path, blobs.as_ref()), epoch.into(), handle)
            };
            Ok::<_, Error>((leading, journal.map(open).transpose()?))
        });
        let (leading, mut prepared) = opening.await.map_err(|_| Error::Stopped)??;
        // A coordinator that starts later must never reuse an epoch: answers to attempts of
        // its predecessor would be taken for its own. A journal may come from another authority.
        let epoch = prepared.as_ref().map_or(leading.epoch(), |prepared| prepared.epoch);
        let settings = core_config(&config, (epoch, None), prepared.is_some())?;
        let shared = Self::core(&config, settings, pki, &services)?;
        if let Some(prepared) = &mut prepared {
            shared.keep_apart(prepared);
            shared.restore(std::mem::take(&mut prepared.left), epoch);
        }
        let bound = Self::bind(&config, pki)?;
        if let Some(prepared) = prepared {
            shared.keep(journal::start(prepared, Arc::downgrade(&shared))?);
        }
        let lead = (Some(leading), None);
        Ok(Self::serve(config, pki, services, (shared, epoch), bound, lead))
    }

    /// As [`Coordinator::start_with`], as one of several. It leads when no other coordinator does.
    pub(crate) async fn start_among(
        place: Arc<dyn Place>,
        config: CoordinatorConfig,
        pki: &Pki,
        services: Services,
    ) -> Result<Self> {
        let bound = Self::bind(&config, pki)?;
        let (lead, addr) = (Arc::clone(pki.lead()), bound.2);
        let about = About::new(&config, addr)?;
        let (lead_too, shown) = (Arc::clone(&lead), about.encode());
        let entering = outside::blocking(move || {
            let alone = "what keeps the lead has one coordinator at a time".to_owned();
            let members = lead_too.members().ok_or(Error::Control { reason: alone })?;
            lead_too.take_part();
            members.enter(outside::unix_ms(), &shown)
        });
        let number = entering.await.map_err(|_| Error::Stopped)??;
        let settings = core_config(&config, (number, Some(number << NUMBER_BITS)), true)?;
        let shared = Self::core(&config, settings, pki, &services)?;
        shared.follow();
        let peers = Peers::new(lead, number);
        let among = (None, Some(Arc::clone(&peers)));
        let coordinator = Self::serve(config, pki, services, (shared, number), bound, among);
        let running = election::run(coordinator.clone(), Arc::clone(&peers), place);
        let mirrored = coordinator.config.mirrored.clone();
        let mirror = match mirrored {
            Some(folder) => {
                let own = coordinator.clone();
                let opening = outside::blocking(move || mirror::Mirror::open(&own, &folder));
                Some(opening.await.map_err(|_| Error::Stopped)??)
            }
            None => None,
        };
        let mirroring = mirror.map(|mirror| {
            peers.mirror(Arc::clone(&mirror));
            mirror::run(coordinator.clone(), Arc::clone(&peers), mirror)
        });
        peers.run(async move {
            tokio::join!(running, async move {
                if let Some(mirroring) = mirroring {
                    mirroring.await;
                }
            });
        });
        Ok(coordinator)
    }

    fn core(
        config: &CoordinatorConfig,
        settings: CoreConfig,
        pki: &Pki,
        services: &Services,
    ) -> Result<Arc<CoreHandle>> {
        let supervisor = services.supervisor.clone();
        let output_bytes_max = u64::try_from(config.input_bytes_max).unwrap_or(u64::MAX);
        let hangs = Persisted::open(pki.lead(), HANGS, HANGS_REMEDY, HangTable::new())?;
        // The core's clock starts here: opening the journal may have taken a while.
        let began = Duration::from_millis(outside::unix_ms());
        let core = Core::new(began, settings, outside::rng().random());
        let runtime = tokio::runtime::Handle::current();
        let shared = CoreHandle::new(core, began, runtime, supervisor, hangs, output_bytes_max);
        Ok(Arc::new(shared))
    }

    fn bind(config: &CoordinatorConfig, pki: &Pki) -> Result<(Endpoint, SocketWatch, SocketAddr)> {
        let mut server = ServerConfig::with_crypto(Arc::new(tls::server(pki)?));
        // Workers open one stream for their reports, and others for requests.
        server.transport_config(endpoint::cautious(requests::ASKS_MAX, 1)).migration(false);
        let settings = endpoint::successor(pki.secret(RESET_LABEL));
        let (endpoint, watch) = endpoint::bind_as(settings, config.quic_addr, Some(server))?;
        let addr = endpoint
            .local_addr()
            .map_err(|source| Error::Bind { addr: config.quic_addr, source })?;
        Ok((endpoint, watch, addr))
    }

    fn serve(
        config: CoordinatorConfig,
        pki: &Pki,
        services: Services,
        (shared, epoch): (Arc<CoreHandle>, u64),
        (endpoint, watch, addr): (Endpoint, SocketWatch, SocketAddr),
        (leading, peers): (Option<Leading>, Option<Arc<Peers>>),
    ) -> Self {
        tokio::spawn(outside::here(Arc::clone(&shared).run_timer()));
        let tokens = services.tokens.clone();
        let lender = Lender::open(config.shared_memory_bytes_max);
        let coordinator = Self {
            shared,
            config: Arc::new(config),
            addr,
            endpoint: Arc::new(Mutex::new(Some((endpoint.clone(), watch)))),
            tokens,
            pki: pki.clone(),
            epoch,
            leading: Arc::new(Mutex::new(leading)),
            peers,
            present: Arc::default(),
            limits: Limits::new(JOINING),
            lender: lender.clone(),
        };
        let heartbeat = Timing::default().heartbeat;
        let gate = Gate::new(coordinator.clone(), services, (epoch, heartbeat), lender);
        tokio::spawn(outside::here(gate.run(endpoint)));
        coordinator
    }

    /// The settings it was started with.
    #[must_use]
    pub fn config(&self) -> &CoordinatorConfig {
        &self.config
    }

    /// Its number among the coordinators of its cluster: each that starts later has a higher one.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The UDP address that workers connect to.
    #[must_use]
    pub fn quic_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The tokens that let machines join, if it was started with any.
    #[must_use]
    pub fn tokens(&self) -> Option<&Tokens> {
        self.tokens.as_ref()
    }

    pub(crate) fn shared(&self) -> &Arc<CoreHandle> {
        &self.shared
    }

    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }

    pub(crate) fn present(&self) -> &Arc<ConnectedMembers> {
        &self.present
    }

    /// The authority whose certificates it accepts.
    #[must_use]
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Steps down: fails tasks that are neither terminal nor durable, closes every connection, and
    /// frees the port, the journal and the lead. Durable tasks wait in the journal for the next
    /// coordinator, which may start in this process.
    pub async fn stop(&self) {
        if let Some(peers) = &self.peers {
            peers.stop().await;
        }
        self.shared.stop();
        // Close the store before the journal is free for another coordinator.
        if let Some(blob_store) = self.shared.blob_store() {
            blob_store.close().await;
            self.shared.outputs_stored().await;
        }
        let shared = Arc::clone(&self.shared);
        // Closing writes the changes that wait.
        let closed = outside::blocking(move || shared.close_journal());
        if let Err(error) = closed.await {
            tracing::error!(%error, "the journal's thread did not end well");
        }
        self.resign().await;
        let endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((endpoint, watch)) = endpoint else { return };
        endpoint.close(Close::Stopping.code(), Close::Stopping.reason().as_bytes());
        let closed = async {
            endpoint.wait_idle().await;
            drop(endpoint);
            watch.closed().await;
        };
        // Workers that are gone cannot confirm.
        let _ = tokio::time::timeout(Duration::from_secs(2), closed).await;
    }

    /// Gives the lead up, if it has it.
    async fn resign(&self) {
        let leading = Arc::clone(&self.leading);
        // Dropping the lead may wait for the engine.
        let resigning = outside::blocking(move || {
            let mut leading = leading.lock().unwrap_or_else(PoisonError::into_inner);
            drop(leading.take());
        });
        // A panic was reported where it happened.
        let _ = resigning.await;
    }

    fn leading(&self) -> MutexGuard<'_, Option<Leading>> {
        // The value is only replaced as a whole.
        self.leading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle that asks no other coordinator.
    pub(crate) fn alone(&self) -> Self {
        Self { peers: None, ..self.clone() }
    }

    /// Waits until `look` finds something in the core.
    async fn until<R>(&self, look: impl Fn(&Core, Duration) -> Option<R>) -> Result<R> {
        self.until_any(|| self.shared.read(&look)).await
    }

    /// Calls `look` after each change, until it finds something.
    async fn until_any<R>(&self, look: impl Fn() -> Option<R>) -> Result<R> {
        loop {
            // Created before looking: it counts every change from here on.
            let changed = self.shared.changed.notified();
            if let Some(found) = look() {
                return Ok(found);
            }
            if self.shared.is_stopped() {
                return Err(Error::Stopped);
            }
            changed.await;
        }
    }
}

fn core_config(
    config: &CoordinatorConfig,
    (epoch, first_seq): (u64, Option<u64>),
    durable: bool,
) -> Result<CoreConfig> {
    Ok(CoreConfig {
        epoch,
        first_seq,
        balancing: balance::by_name(&config.balancing)?,
        queue_tasks_max: config.queue_tasks_max,
        queue_bytes_max: config.queue_bytes_max,
        retention: RetentionLimits {
            retained_tasks_max: config.retained_tasks_max,
            retained_bytes_max: config.retained_bytes_max,
            keys_kept_for: Duration::from_secs(config.keys_kept_for_s),
            results_kept_for: Duration::from_secs(config.results_kept_for_s),
            results_bytes_max: config.results_bytes_max,
            results_max: config.results_max,
            outputs_inline_max: OUTPUTS_INLINE_MAX,
        },
        durable,
        thrift: config.thrift_ms_per_joule,
        run_limit: Some(Duration::from_secs(config.run_limit_s)).filter(|limit| !limit.is_zero()),
        timing: Timing::default(),
    })
}
