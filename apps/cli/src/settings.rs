//! Settings of a coordinator: defaults < file < environment `RADEON_…` < flags.
//!
//! The file is `--config FILE`, or `radeon-cluster.toml` in the data folder where there is one.

mod addresses;
mod last;
mod ranges;
mod sources;
#[cfg(test)]
mod tests;

use crate::failure::{Failure, Result};
use crate::logging::LogFormat;
use crate::simd::Simd;
use crate::tls::Certificate;
use lgp_distributed::{BlobsAt, Control};
use lgp_sdk::cluster::{CoordinatorConfig, WorkerConfig};
use lgp_server::ServerConfig;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use addresses::address;
pub(crate) use last::{Flags, Last};
pub(crate) use sources::{FILE_NAME, data_folder, environment, misspelt, resolve};

/// Everything that can be set. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Where models, logs and the runtime file live.
    pub(crate) data: PathBuf,
    /// The devices of each local worker: `auto`, `cpu`, `vulkan:0`, `vulkan:0,vulkan:1` ….
    pub(crate) device: String,
    /// The widest vector instructions that local workers use.
    pub(crate) simd: Simd,
    /// Local worker processes.
    pub(crate) workers: usize,
    /// The most local workers that are started while tasks wait; idle ones end again. 0 keeps the number as it is.
    pub(crate) workers_max: usize,
    /// Bytes of each device's memory that models may take; 0 is all of it. Models that do not fit evict one another.
    pub(crate) model_memory_bytes: u64,
    /// The most tasks of one model that a worker runs together.
    pub(crate) batch_max: u32,
    /// How long a task that could run waits for others to join its batch.
    pub(crate) batch_delay_ms: u64,
    /// The largest inputs of one task. Beyond 64 MiB they are sent as binary data, and those of a
    /// durable task lie in the data folder until it has ended.
    pub(crate) input_bytes_max: usize,
    /// The time limit of one run of a model, in seconds, where neither the task nor the model's deployment sets one. 0
    /// is ten times the longest measured run, at least one minute, and ten minutes where no run was measured.
    pub(crate) run_limit_s: u64,
    /// Milliseconds between scans of the models folder for files added or removed by hand; 0 is never.
    pub(crate) models_poll_ms: u64,
    /// Inferences of one model that are under way at the same time; more are refused.
    pub(crate) pending_max: u64,
    /// Sequences of one version of a model that are open at the same time; more are refused.
    pub(crate) sequences_max: u64,
    /// Bytes of the states of all sequences.
    pub(crate) sequences_bytes_max: usize,
    /// The form of log lines: `text` or `json`.
    pub(crate) log_format: LogFormat,
    /// How long results of durable tasks are kept.
    pub(crate) results_kept_for_s: u64,
    /// The share of their disk that these results may take; above it the oldest are removed, read ones first.
    pub(crate) results_disk_share: f64,
    /// The least time that an idempotency key is kept after its task has ended.
    pub(crate) keys_kept_for_s: u64,
    /// The database that several coordinators share, `postgres://…`; empty is the data folder. The URL may contain a
    /// password.
    pub(crate) control: String,
    /// The cluster's name in that database.
    pub(crate) control_name: String,
    /// The store for data too large for a record, `file:///FOLDER` or `s3://BUCKET/PREFIX`; empty is the data folder.
    /// AWS's own variables configure S3.
    pub(crate) blobs: String,
    /// The REST interface.
    pub(crate) http: Http,
    /// The gRPC interface. It uses the certificate, the keys and the limits of REST.
    pub(crate) grpc: Grpc,
    /// The interface for workers.
    pub(crate) quic: Quic,
    /// The interface for Frigate's detector `zmq`.
    pub(crate) frigate: Frigate,
    /// Traces of requests.
    pub(crate) otlp: Otlp,
    /// The interface for Immich's machine learning.
    pub(crate) immich: Immich,
}

/// The REST interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    /// Where it listens; port 0 picks a free one.
    #[serde(deserialize_with = "addresses::read")]
    pub(crate) addr: SocketAddr,
    /// The certificate that it shows: `off`, `self-signed`, or `CERT.pem,KEY.pem`. Needed where other
    /// machines reach it.
    pub(crate) tls: Certificate,
    /// Origins of pages that may use it besides its own, as in `https://example.org`.
    #[serde(default)]
    pub(crate) origins: Vec<String>,
    /// Whether programs of this machine may ask for health, metadata and inference without a key.
    pub(crate) open: bool,
    /// The largest request that is accepted, apart from tensors as binary data.
    pub(crate) body_bytes_max: usize,
    /// The most bytes of request bodies that are held at once; further requests wait.
    pub(crate) bodies_bytes_max: usize,
}

/// The gRPC interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grpc {
    /// Where it listens; port 0 picks a free one.
    #[serde(deserialize_with = "addresses::read")]
    pub(crate) addr: SocketAddr,
}

/// The interface for Frigate's detector `zmq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Frigate {
    /// The loopback address to listen on; port 0 picks a free port. Without an address the interface is off.
    #[serde(default, deserialize_with = "addresses::read_some")]
    pub(crate) addr: Option<SocketAddr>,
    /// The time after which an image is answered without boxes; less than the detector's `request_timeout_ms`.
    pub(crate) timeout_ms: u64,
}

/// Traces of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Otlp {
    /// The base URL of a collector that speaks OTLP over HTTP, as in `http://127.0.0.1:4318`. Without one
    /// traces go nowhere.
    pub(crate) endpoint: Option<String>,
    /// The share, 0 to 1, of traces that are kept of requests that carry no trace.
    pub(crate) ratio: f64,
    /// Whether traces include the nodes of a run, for at most one run of each model a second. On a device, tracing the
    /// nodes slows that run.
    pub(crate) nodes: bool,
}

/// The interface for Immich's machine learning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Immich {
    /// The loopback address to listen on; port 0 picks a free port. Without an address the interface is off.
    #[serde(default, deserialize_with = "addresses::read_some")]
    pub(crate) addr: Option<SocketAddr>,
}

/// The interface for workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quic {
    /// Where it listens, UDP; port 0 picks a free one.
    #[serde(deserialize_with = "addresses::read")]
    pub(crate) addr: SocketAddr,
    /// Where other coordinators reach it, `HOST[:PORT]`; empty is the address that it listens on.
    pub(crate) reached_at: String,
    /// Whether the coordinator is announced on the local network.
    pub(crate) advertise: Advertise,
    /// How long workers' certificates are valid; they renew them after two thirds of it.
    pub(crate) certificate_life_s: u64,
    /// How long after its certificate expired a member may come back without a token.
    pub(crate) absence_max_s: u64,
}

/// Whether a coordinator is announced on the local network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Advertise {
    /// It is, where other machines can reach it.
    Auto,
    /// It is, even where only this machine can reach it.
    Always,
    /// It is not: machines must know its address.
    Never,
}

/// How long workers' certificates are valid unless the settings say otherwise.
pub(crate) const CERTIFICATE_LIFE: Duration = Duration::from_secs(24 * 3600);
/// How long members may be away unless the settings say otherwise.
pub(crate) const ABSENCE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// For how long results of durable tasks are kept, and on how much of the disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Keeping {
    results_kept_for_s: u64,
    disk_share: f64,
    keys_kept_for_s: u64,
}

impl Default for Keeping {
    /// A week, on a tenth of the disk.
    fn default() -> Self {
        Self { results_kept_for_s: 7 * 24 * 3600, disk_share: 0.1, keys_kept_for_s: 600 }
    }
}

impl Keeping {
    /// Applies these limits to a coordinator whose journal lies in `folder`.
    ///
    /// # Errors
    /// When the size of the file system cannot be read.
    pub(crate) fn apply(
        self,
        folder: &Path,
        config: CoordinatorConfig,
    ) -> Result<CoordinatorConfig> {
        let disk = rustix::fs::statvfs(folder).map_err(|error| {
            Failure::file("ask for the size of the file system of", folder, &error.into())
        })?;
        let bytes = Duration::from_secs(disk.f_blocks.saturating_mul(disk.f_frsize));
        Ok(CoordinatorConfig {
            results_kept_for_s: self.results_kept_for_s,
            results_bytes_max: bytes.mul_f64(self.disk_share).as_secs(),
            keys_kept_for_s: self.keys_kept_for_s,
            ..config
        })
    }
}

/// How many tasks a worker runs together, and how large their inputs may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    max: u32,
    delay_ms: u64,
    pub(crate) input_bytes_max: usize,
}

impl Default for Limits {
    /// One at a time, with inputs of up to 1 GiB.
    fn default() -> Self {
        Self { max: 1, delay_ms: 0, input_bytes_max: 1 << 30 }
    }
}

impl Limits {
    /// Applies these limits to a worker.
    pub(crate) fn apply(self, config: WorkerConfig) -> WorkerConfig {
        let batch_delay = Duration::from_millis(self.delay_ms);
        let input_bytes_max = self.input_bytes_max;
        WorkerConfig { batch_max: self.max, batch_delay, input_bytes_max, ..config }
    }
}

impl Otlp {
    /// # Errors
    /// `settings_invalid` where the endpoint is no collector's URL, or the ratio no share.
    fn check(&self) -> Result<()> {
        let given = self.endpoint.as_deref();
        let is_url = |url: &str| {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            let host = rest.and_then(|rest| rest.split('/').next());
            // A password in the URL would end up in the log.
            host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
                && url.parse::<ureq::http::Uri>().is_ok()
        };
        if let Some(url) = given.filter(|url| !is_url(url)) {
            let shown = url.rsplit('@').next().unwrap_or_default();
            let expected = "expected the URL of a collector without a password, as in \
                            http://127.0.0.1:4318; OTEL_EXPORTER_OTLP_HEADERS takes credentials";
            let message = format!("settings: otlp.endpoint is {shown:?}, {expected}");
            return Err(Failure::new("settings_invalid", message));
        }
        // NaN is in no range, so it is refused too.
        if !(0.0..=1.0).contains(&self.ratio) {
            let message = format!("settings: otlp.ratio is {}, expected 0 to 1", self.ratio);
            return Err(Failure::new("settings_invalid", message));
        }
        Ok(())
    }
}

/// The cluster's name in the database that coordinators share, unless the settings say otherwise.
const CONTROL_NAME: &str = "radeon_cluster";

impl Settings {
    /// The database that coordinators share, if it is not the data folder.
    ///
    /// # Errors
    /// `settings_invalid` where the address or the name cannot be one.
    pub(crate) fn control(&self) -> Result<Option<Control>> {
        if self.control.is_empty() {
            return Ok(None);
        }
        let control = Control::new(&self.control, &self.control_name);
        control.map(Some).map_err(|error| {
            Failure::new("settings_invalid", format!("settings: control: {error}"))
        })
    }

    /// The store for data too large for a record, if it is not the data folder.
    ///
    /// # Errors
    /// `settings_invalid` where the place, or an option of its store, cannot be one.
    pub(crate) fn blobs(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<BlobsAt>> {
        if self.blobs.is_empty() {
            return Ok(None);
        }
        let options = BlobsAt::OPTIONS.iter().filter_map(|&name| Some((name, variable(name)?)));
        let options: Vec<(&str, String)> = options.collect();
        let options = options.iter().map(|(name, value)| (*name, value.as_str()));
        let blobs = BlobsAt::new(&self.blobs, options);
        blobs
            .map(Some)
            .map_err(|error| Failure::new("settings_invalid", format!("settings: blobs: {error}")))
    }

    /// Bytes of each device's memory that models may take, if less than all.
    pub(crate) fn model_memory(&self) -> Option<u64> {
        Some(self.model_memory_bytes).filter(|bytes| *bytes > 0)
    }

    /// For how long results are kept, and on how much of the disk.
    pub(crate) fn keeping(&self) -> Keeping {
        Keeping {
            results_kept_for_s: self.results_kept_for_s,
            disk_share: self.results_disk_share,
            keys_kept_for_s: self.keys_kept_for_s,
        }
    }

    /// How many tasks a worker runs together, and how large their inputs may be.
    pub(crate) fn limits(&self) -> Limits {
        let input_bytes_max = self.input_bytes_max;
        Limits { max: self.batch_max, delay_ms: self.batch_delay_ms, input_bytes_max }
    }

    /// The settings where neither file, environment nor flags set anything.
    ///
    /// One local worker: it uses every core for one request at a time, which gives the lowest
    /// latency and the least memory. A worker that dies is started again either way.
    fn defaults(data: PathBuf) -> Self {
        Self {
            data,
            device: "auto".to_owned(),
            simd: Simd::Auto,
            workers: 1,
            workers_max: 0,
            model_memory_bytes: 0,
            batch_max: Limits::default().max,
            batch_delay_ms: Limits::default().delay_ms,
            input_bytes_max: Limits::default().input_bytes_max,
            run_limit_s: 0,
            models_poll_ms: ServerConfig::default().models_poll_ms,
            pending_max: ServerConfig::default().pending_max,
            sequences_max: ServerConfig::default().sequences_max,
            sequences_bytes_max: ServerConfig::default().sequences_bytes_max,
            log_format: LogFormat::Text,
            results_kept_for_s: Keeping::default().results_kept_for_s,
            results_disk_share: Keeping::default().disk_share,
            keys_kept_for_s: Keeping::default().keys_kept_for_s,
            control: String::new(),
            control_name: CONTROL_NAME.to_owned(),
            blobs: String::new(),
            http: Http {
                addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 8000)),
                tls: Certificate::Off,
                origins: Vec::new(),
                open: true,
                body_bytes_max: 64 << 20,
                bodies_bytes_max: 512 << 20,
            },
            grpc: Grpc { addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 8001)) },
            quic: Quic {
                addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 8443)),
                reached_at: String::new(),
                advertise: Advertise::Auto,
                certificate_life_s: CERTIFICATE_LIFE.as_secs(),
                absence_max_s: ABSENCE_MAX.as_secs(),
            },
            frigate: Frigate { addr: None, timeout_ms: 180 },
            otlp: Otlp {
                endpoint: None,
                ratio: ServerConfig::default().otlp_ratio,
                nodes: ServerConfig::default().otlp_nodes,
            },
            immich: Immich { addr: None },
        }
    }
}
