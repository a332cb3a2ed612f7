//! A cluster in a folder of its own that goes with it: what `demo` and `bench` try things on.

use crate::cluster::{self, Cluster, Plan, Signals};
use crate::failure::{Failure, Result};
use crate::logging::LogFormat;
use crate::settings::{self, Keeping, Limits};
use crate::simd::Simd;
use lgp_sdk::DeviceId;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A free port of the loopback interface.
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Plan {
    /// Workers of this machine alone, with the settings that are the default.
    ///
    /// # Errors
    /// For an environment that names vector instructions which there are not.
    pub(crate) fn temporary(data: PathBuf, device: DeviceId, workers: usize) -> Result<Self> {
        Ok(Self {
            data,
            quic: ANY_PORT,
            control: None,
            blobs: None,
            reached_at: None,
            devices: vec![device],
            model_memory: None,
            workers,
            simd: Simd::resolve(None, settings::environment)?,
            log_format: LogFormat::Text,
            limits: Limits::default(),
            run_limit_s: 0,
            keeping: Keeping::default(),
            certificate_life: settings::CERTIFICATE_LIFE,
            absence_max: settings::ABSENCE_MAX,
        })
    }
}

/// A folder for it.
///
/// # Errors
/// `io`.
pub(crate) fn folder() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("radeon-cluster-demo-")
        .tempdir()
        .map_err(|error| Failure::new("io", format!("cannot make a temporary folder: {error}")))
}

/// Starts a cluster in `data`, works with it and ends it.
///
/// # Errors
/// Those of [`Cluster::launch`] and of the work; `interrupted`.
pub(crate) async fn with<T>(
    (data, device, workers): (&Path, DeviceId, usize),
    signals: &mut Signals,
    work: impl AsyncFnOnce(&Cluster, &mut Signals) -> Result<T>,
) -> Result<T> {
    let plan = Plan::temporary(data.to_owned(), device, workers)?;
    let launch = signals.until(Cluster::launch(&plan, plan.authority()?, None)).await;
    // The log that a failure names goes with the temporary folder.
    let cluster =
        launch.map_err(|failure| failure.hint("radeon-cluster doctor checks this machine"))?;
    let result = work(&cluster, signals).await;
    cluster.shut_down().await;
    result
}

/// Runs `work` with what clusters of a command need: no log, a runtime, and signals that end it.
///
/// # Errors
/// Those of the work.
pub(crate) fn block_on<T>(work: impl AsyncFnOnce(&mut Signals) -> Result<T>) -> Result<T> {
    crate::logging::init("error", LogFormat::Text);
    cluster::runtime()?.block_on(async {
        // Before any driver is loaded: some handle signals too, and then end the process.
        let mut signals = Signals::listen()?;
        work(&mut signals).await
    })
}
