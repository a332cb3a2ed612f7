//! Runs a coordinator: takes the data folder, serves, and cleans up at the end.

use crate::cluster::driver::Stop;
use crate::cluster::launch::{Cluster, Plan};
use crate::cluster::scale;
use crate::cluster::serve::{self, Listeners};
use crate::cluster::signals::Signals;
use crate::device;
use crate::failure::{Failure, Result};
use crate::folder::{Endpoint, Ownership};
use crate::settings::{self, Advertise, Settings};
use lgp_distributed::{Advertisement, WorkerState};
use lgp_sdk::model::SessionOptions;
use lgp_server::ServerConfig;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// The runtime of a coordinator or a worker, both of which wait more than they compute. They usually share a machine,
/// so each gets threads for half of its processors: a request that changes threads waits until another processor wakes.
///
/// # Errors
/// When the system refuses threads.
pub(crate) fn runtime() -> Result<Runtime> {
    let mut builder = match SessionOptions::default().threads / 2 {
        // It runs on the caller's thread; a multi-thread runtime would add another.
        0 | 1 => Builder::new_current_thread(),
        threads => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads.min(4));
            builder
        }
    };
    builder.enable_all().build().map_err(Failure::internal)
}

/// How long a drain waits without a ready worker; a worker that died is back sooner.
const NOBODY_LEFT: Duration = Duration::from_secs(30);

/// Runs a coordinator until it is asked to stop. `announce` is called once it is ready, unless
/// `abandoned` resolves before.
///
/// # Errors
/// `already_running`, `address_in_use`, `worker_start_failed`, or the failure of `announce`.
pub(crate) fn host(
    settings: &Settings,
    abandoned: impl Future<Output = ()>,
    announce: impl FnOnce(&Endpoint) -> Result<()>,
) -> Result<()> {
    let ownership = Ownership::take(&settings.data)?;
    // Dropping the runtime kills what is left of the workers, on every way out.
    runtime()?.block_on(async {
        // Listen before a driver is loaded: some drivers handle signals too, and then end the process.
        let mut signals = Signals::listen()?;
        // Opened to report errors early; each worker opens the devices itself.
        let devices = device::resolve_each(&settings.device)?;
        let devices = devices.iter().map(|device| device::id(device.as_ref())).collect();
        let plan = Plan {
            data: settings.data.clone(),
            quic: settings.quic.addr,
            control: settings.control()?,
            blobs: settings.blobs(settings::environment)?,
            reached_at: Some(settings.quic.reached_at.clone()).filter(|at| !at.is_empty()),
            devices,
            model_memory: settings.model_memory(),
            workers: settings.workers,
            simd: settings.simd,
            log_format: settings.log_format,
            limits: settings.limits(),
            run_limit_s: settings.run_limit_s,
            keeping: settings.keeping(),
            certificate_life: Duration::from_secs(settings.quic.certificate_life_s),
            absence_max: Duration::from_secs(settings.quic.absence_max_s),
        };
        // Bound before the workers start, so that a port in use is reported at once.
        let pki = plan.authority()?;
        let access = serve::access(&pki, &settings.data)?;
        let listeners = Listeners::bind(settings, &pki, &access).await?;
        // The port in `reached_at` is not REST's.
        let at = settings.quic.reached_at.as_str();
        let host = at.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
        let host = host.map_or(at, |(host, _)| host);
        let url = listeners.url(Some(host).filter(|host| !host.is_empty()));
        let cluster = tokio::select! {
            cluster = Cluster::launch(&plan, pki, url) => cluster?,
            () = signals.next() => return Err(Failure::interrupted()),
            () = abandoned => return Err(Failure::interrupted()),
        };
        let config = ServerConfig {
            open: settings.http.open,
            origins: settings.http.origins.clone(),
            body_bytes_max: settings.http.body_bytes_max,
            bodies_bytes_max: settings.http.bodies_bytes_max,
            frigate_timeout_ms: settings.frigate.timeout_ms,
            binary_bytes_max: settings.input_bytes_max.saturating_add(settings.http.body_bytes_max),
            models_poll_ms: settings.models_poll_ms,
            pending_max: settings.pending_max,
            sequences_max: settings.sequences_max,
            sequences_bytes_max: settings.sequences_bytes_max,
            otlp_endpoint: settings.otlp.endpoint.clone(),
            otlp_ratio: settings.otlp.ratio,
            otlp_nodes: settings.otlp.nodes,
            ..ServerConfig::default()
        };
        let service = serve::serve(&cluster, access, listeners, config)?;
        let endpoint = Endpoint {
            pid: std::process::id(),
            http: service.url().to_owned(),
            local: service.local_url().map(str::to_owned),
            fingerprint: settings.http.tls.fingerprint(&cluster.pki),
            grpc: Some(service.grpc_url().to_owned()),
            quic: cluster.coordinator.quic_addr().to_string(),
            frigate: service.frigate_url().map(str::to_owned),
            immich: service.immich_url().map(str::to_owned),
            data: settings.data.clone(),
        };
        // Held for as long as the coordinator serves.
        let _advertisement = advertise(settings.quic.advertise, &cluster);
        let mut ended = ownership.publish(&endpoint).and_then(|()| announce(&endpoint));
        if ended.is_ok() {
            tracing::info!(http = endpoint.http, quic = endpoint.quic, "ready");
            tokio::select! {
                () = until_stopped(&cluster, &mut signals) => {}
                () = scale::keep_scaled(&cluster, settings) => {}
                // Without its journal the coordinator must not accept durable tasks.
                error = cluster.coordinator.journal_broken() => {
                    tracing::error!(%error, "durable tasks cannot be kept");
                    ended = Err(Failure::from_error("journal_failed", &error));
                }
            }
            tracing::info!("stopping");
        }
        cluster.coordinator.stop().await;
        service.finish().await;
        cluster.driver.end().await;
        ended
    })
}

/// Announces the coordinator on the local network where other machines can reach it. Without that,
/// they join by its address.
fn advertise(wanted: Advertise, cluster: &Cluster) -> Option<Advertisement> {
    let addr = cluster.coordinator.quic_addr();
    let announced = match wanted {
        Advertise::Always => true,
        Advertise::Auto => !addr.ip().is_loopback(),
        Advertise::Never => false,
    };
    let started = announced.then(|| Advertisement::start(addr, cluster.pki.hash()));
    started?.inspect_err(|error| tracing::warn!(%error, "machines have to name this one")).ok()
}

/// Resolves when the coordinator is to end: at once, or after its tasks are done.
async fn until_stopped(cluster: &Cluster, signals: &mut Signals) {
    let mut requests = cluster.driver.stop_requests();
    tokio::select! {
        () = signals.next() => {}
        () = cluster.driver.stop_requested() => {}
    }
    cluster.driver.request_stop(Stop::Drain);
    tracing::info!("draining");
    tokio::select! {
        () = cluster.coordinator.drain() => {}
        () = nobody_left(cluster) => {
            tracing::warn!("tasks are queued and no worker is left to run them: giving up");
        }
        // A second signal means at once.
        () = signals.next() => {}
        // The sender lives in the driver of `cluster`.
        _ = requests.wait_for(|stop| *stop == Stop::Now) => {}
    }
}

/// Resolves when no worker can run queued tasks: at once without local workers, else after a time without a ready one.
async fn nobody_left(cluster: &Cluster) {
    let mut since = Instant::now();
    loop {
        let ready = cluster.coordinator.workers().iter().any(|w| w.state == WorkerState::Ready);
        if ready {
            since = Instant::now();
        } else if cluster.driver.places() == 0 || since.elapsed() > NOBODY_LEFT {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
