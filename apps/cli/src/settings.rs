//! Settings of a coordinator: defaults < file < environment `RADEON_…` < flags.
//!
//! The file is `--config FILE`, or `radeon-cluster.toml` in the data folder where there is one.

use crate::cluster::driver::WORKERS_MAX;
use crate::failure::{Failure, Result};
use crate::logging::LogFormat;
use crate::simd::Simd;
use crate::tls::Certificate;
use config::builder::DefaultState;
use config::{Config, ConfigBuilder, File, FileFormat, FileSourceString, Value};
use etcetera::BaseStrategy;
use lgp_sdk::{BlobsAt, Control, CoordinatorConfig, WorkerConfig};
use lgp_server::ServerConfig;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Everything that can be set. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Where models, logs and the runtime file live.
    pub(crate) data: PathBuf,
    /// The devices of each local worker: `auto`, `cpu`, `opencl:0`, `opencl:0,opencl:1` ….
    pub(crate) device: String,
    /// The widest vector instructions that local workers use.
    pub(crate) simd: Simd,
    /// Local worker processes.
    pub(crate) workers: usize,
    /// Up to so many are started when tasks wait, and ended when they are idle; 0 keeps their
    /// number as it is.
    pub(crate) workers_max: usize,
    /// What models may take of each device's memory, in bytes; 0 is all of it. Models beyond it make
    /// room for one another.
    pub(crate) model_memory_bytes: u64,
    /// Tasks of one model that a worker may run together.
    pub(crate) batch_max: u32,
    /// How long a task that could run waits for others to run with.
    pub(crate) batch_delay_ms: u64,
    /// The largest inputs of one task. Beyond 64 MiB they are sent as binary data, and those of a
    /// durable task lie in the data folder until it has ended.
    pub(crate) input_bytes_max: usize,
    /// How long one run of a model may take before it is stopped, in seconds, where neither the task
    /// nor the model's deployment says so; 0 is ten times the longest one measured, a minute at least,
    /// and ten minutes where none was measured.
    pub(crate) run_limit_s: u64,
    /// How often the folder of models is looked at for what came or went by hand, in milliseconds; 0 is
    /// never.
    pub(crate) models_poll_ms: u64,
    /// Inferences of one model that are under way at the same time; more are refused.
    pub(crate) pending_max: u64,
    /// Sequences of one version of a model that are open at the same time; more are refused.
    pub(crate) sequences_max: u64,
    /// Bytes of the states of all sequences.
    pub(crate) sequences_bytes_max: usize,
    /// The form of log lines: `text` or `json`.
    pub(crate) log_format: LogFormat,
    /// How long results of durable tasks wait to be read.
    pub(crate) results_kept_for_s: u64,
    /// What they may take of the disk that they lie on; above it the oldest go, those that were read
    /// first.
    pub(crate) results_disk_share: f64,
    /// How long an idempotency key stands for its task after that has ended, at least.
    pub(crate) keys_kept_for_s: u64,
    /// Where what several coordinators share is kept, `postgres://…`; empty is the data folder. It may
    /// have a password in it.
    pub(crate) control: String,
    /// The name that this cluster's own has there.
    pub(crate) control_name: String,
    /// Where what is too large for a record lies, `file:///FOLDER` or `s3://BUCKET/PREFIX`; empty is
    /// the data folder. AWS's own variables have what S3 needs.
    pub(crate) blobs: String,
    /// The REST interface.
    pub(crate) http: Http,
    /// The gRPC interface, with the certificate, the keys and the limits of the other.
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
    /// Bytes of all requests' bodies that are held at once; others wait.
    pub(crate) bodies_bytes_max: usize,
}

/// The gRPC interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grpc {
    /// Where it listens; port 0 picks a free one.
    pub(crate) addr: SocketAddr,
}

/// The interface for Frigate's detector `zmq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Frigate {
    /// Where it listens, on loopback; port 0 picks a free one. Without one there is no such interface.
    pub(crate) addr: Option<SocketAddr>,
    /// After how long an image is answered without boxes; less than the detector's `request_timeout_ms`.
    pub(crate) timeout_ms: u64,
}

/// Traces of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Otlp {
    /// The base URL of a collector that speaks OTLP over HTTP, as in `http://127.0.0.1:4318`. Without one
    /// traces go nowhere.
    pub(crate) endpoint: Option<String>,
    /// The share of traces that are kept, 0 to 1, of requests that do not come with one.
    pub(crate) ratio: f64,
    /// Whether traces tell of the nodes of runs, of one a second of each model at most. On a device a run takes
    /// longer by that.
    pub(crate) nodes: bool,
}

/// The interface for Immich's machine learning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Immich {
    /// Where it listens, on loopback; port 0 picks a free one. Without one there is no such interface.
    pub(crate) addr: Option<SocketAddr>,
}

/// The interface for workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quic {
    /// Where it listens, UDP; port 0 picks a free one.
    pub(crate) addr: SocketAddr,
    /// Where other coordinators reach it, `HOST[:PORT]`; empty is the address that it listens on.
    pub(crate) reached_at: String,
    /// Whether the coordinator is announced on the local network.
    pub(crate) advertise: Advertise,
    /// How long workers' certificates are valid; they renew them after two thirds of it.
    pub(crate) certificate_life_s: u64,
    /// How long members may be away after their certificates have expired, and come back without a
    /// token.
    pub(crate) absence_max_s: u64,
}

/// Whether a coordinator is announced on the local network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Advertise {
    /// Where other machines can reach it.
    Auto,
    /// Also where only this machine can.
    Always,
    /// Machines have to know its address.
    Never,
}

/// How long workers' certificates are valid unless the settings say otherwise.
pub(crate) const CERTIFICATE_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Shorter ones would be renewed all the time, longer ones are as good as none.
const CERTIFICATE_LIFE_S: RangeInclusive<u64> = 3..=365 * 24 * 3600;
/// How long members may be away unless the settings say otherwise.
pub(crate) const ABSENCE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// So long a revocation has to be remembered; 0 lets nobody renew what has expired.
const ABSENCE_MAX_S: RangeInclusive<u64> = 0..=365 * 24 * 3600;
/// A worker holds as many tasks for each of its threads.
const BATCH_MAX: RangeInclusive<u64> = 1..=256;
/// Longer waits would be noticed by callers, and by nobody else.
const BATCH_DELAY_MS: RangeInclusive<u64> = 0..=1_000;
/// A camera that waits for longer sees nothing.
const FRIGATE_TIMEOUT_MS: RangeInclusive<u64> = 1..=60_000;
/// Runs of more than a month are no runs.
const RUN_LIMIT_S: RangeInclusive<u64> = 0..=31 * 24 * 3600;
/// A day is as good as never.
const MODELS_POLL_MS: RangeInclusive<u64> = 0..=24 * 3600 * 1000;
/// The queue of all models takes no more.
const PENDING_MAX: RangeInclusive<u64> = 1..=10_000;
/// Each takes memory besides its states.
const SEQUENCES_MAX: RangeInclusive<u64> = 1..=1_000_000;
/// What requests and inputs may have: with less the cluster's own commands would be refused, and more
/// no machine has.
const BYTES_MAX: RangeInclusive<u64> = 64 << 10..=1 << 40;

/// How long results and keys are kept.
const KEPT_FOR_S: RangeInclusive<u64> = 1..=10 * 365 * 24 * 3600;

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
    /// The same as settings of a coordinator whose journal lies in a folder.
    ///
    /// # Errors
    /// Where the size of the file system is not to be had.
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

/// How many tasks workers take together, and how large ones.
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
    /// The same as settings of a worker.
    pub(crate) fn apply(self, config: WorkerConfig) -> WorkerConfig {
        let batch_delay = Duration::from_millis(self.delay_ms);
        let input_bytes_max = self.input_bytes_max;
        WorkerConfig { batch_max: self.max, batch_delay, input_bytes_max, ..config }
    }
}

impl Otlp {
    /// # Errors
    /// `settings_invalid` where that is no collector, or no share.
    fn check(&self) -> Result<()> {
        let given = self.endpoint.as_deref();
        let is_url = |url: &str| {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            let host = rest.and_then(|rest| rest.split('/').next());
            // A password would be written to the log one day.
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
        // What is not a number is in no range.
        if !(0.0..=1.0).contains(&self.ratio) {
            let message = format!("settings: otlp.ratio is {}, expected 0 to 1", self.ratio);
            return Err(Failure::new("settings_invalid", message));
        }
        Ok(())
    }
}

/// The name that a cluster's own has in what coordinators share, unless the settings say otherwise.
const CONTROL_NAME: &str = "radeon_cluster";

impl Settings {
    /// What coordinators share, if that is not the data folder.
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

    /// Where what is too large for a record lies, if that is not the data folder.
    ///
    /// # Errors
    /// `settings_invalid` where the place or what it is reached with cannot be one.
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

    /// What models may take of each device's memory, if less than all.
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

    /// How many tasks workers take together, and how large ones.
    pub(crate) fn limits(&self) -> Limits {
        let input_bytes_max = self.input_bytes_max;
        Limits { max: self.batch_max, delay_ms: self.batch_delay_ms, input_bytes_max }
    }

    /// The settings of a machine where nobody set anything.
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

/// What the command line sets.
#[derive(Debug, Default)]
pub(crate) struct Flags<'a> {
    pub(crate) config: Option<&'a Path>,
    pub(crate) data: Option<&'a Path>,
    pub(crate) device: Option<&'a str>,
    pub(crate) workers: Option<usize>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) tls: Option<&'a Certificate>,
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) quic: Option<SocketAddr>,
    pub(crate) control: Option<&'a str>,
    pub(crate) control_name: Option<&'a str>,
    pub(crate) blobs: Option<&'a str>,
    pub(crate) reached_at: Option<&'a str>,
    pub(crate) frigate: Option<SocketAddr>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) immich: Option<SocketAddr>,
}

/// The environment variables that are read, and the settings that they stand for.
///
/// Others that start alike belong to graphics drivers, so unknown ones are no error.
const VARIABLES: [(&str, &str); 39] = [
    ("RADEON_DATA", "data"),
    ("RADEON_DEVICE", "device"),
    ("RADEON_SIMD", "simd"),
    ("RADEON_WORKERS", "workers"),
    ("RADEON_WORKERS_MAX", "workers_max"),
    ("RADEON_MODEL_MEMORY_BYTES", "model_memory_bytes"),
    ("RADEON_BATCH_MAX", "batch_max"),
    ("RADEON_BATCH_DELAY_MS", "batch_delay_ms"),
    ("RADEON_INPUT_BYTES_MAX", "input_bytes_max"),
    ("RADEON_RUN_LIMIT_S", "run_limit_s"),
    ("RADEON_MODELS_POLL_MS", "models_poll_ms"),
    ("RADEON_PENDING_MAX", "pending_max"),
    ("RADEON_SEQUENCES_MAX", "sequences_max"),
    ("RADEON_SEQUENCES_BYTES_MAX", "sequences_bytes_max"),
    ("RADEON_LOG_FORMAT", "log_format"),
    ("RADEON_RESULTS_KEPT_FOR_S", "results_kept_for_s"),
    ("RADEON_RESULTS_DISK_SHARE", "results_disk_share"),
    ("RADEON_KEYS_KEPT_FOR_S", "keys_kept_for_s"),
    ("RADEON_CONTROL", "control"),
    ("RADEON_CONTROL_NAME", "control_name"),
    ("RADEON_BLOBS", "blobs"),
    ("RADEON_HTTP__ADDR", "http.addr"),
    ("RADEON_HTTP__TLS", "http.tls"),
    ("RADEON_HTTP__ORIGINS", ORIGINS),
    ("RADEON_HTTP__OPEN", "http.open"),
    ("RADEON_HTTP__BODY_BYTES_MAX", "http.body_bytes_max"),
    ("RADEON_HTTP__BODIES_BYTES_MAX", "http.bodies_bytes_max"),
    ("RADEON_GRPC__ADDR", "grpc.addr"),
    ("RADEON_QUIC__ADDR", "quic.addr"),
    ("RADEON_QUIC__REACHED_AT", "quic.reached_at"),
    ("RADEON_QUIC__ADVERTISE", "quic.advertise"),
    ("RADEON_QUIC__CERTIFICATE_LIFE_S", "quic.certificate_life_s"),
    ("RADEON_QUIC__ABSENCE_MAX_S", "quic.absence_max_s"),
    ("RADEON_FRIGATE__ADDR", "frigate.addr"),
    ("RADEON_FRIGATE__TIMEOUT_MS", "frigate.timeout_ms"),
    ("RADEON_OTLP__ENDPOINT", "otlp.endpoint"),
    ("RADEON_OTLP__NODES", "otlp.nodes"),
    ("RADEON_OTLP__RATIO", "otlp.ratio"),
    ("RADEON_IMMICH__ADDR", "immich.addr"),
];

/// Of which there may be several, in the environment with commas between them.
const ORIGINS: &str = "http.origins";

/// The name of the settings file in the data folder.
pub(crate) const FILE_NAME: &str = "radeon-cluster.toml";

/// Reads the process's environment, for [`resolve`].
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Resolves all settings once.
///
/// # Errors
/// `settings_invalid`, naming the key, for an unknown key or a value of the wrong kind;
/// `file_not_found` for a `--config` file that is not there.
pub(crate) fn resolve(
    flags: &Flags<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Settings> {
    let given = named_folder(flags, &variable);
    let data = match &given {
        Some(path) => path.clone(),
        None => default_data_folder()?,
    };
    let file = match flags.config {
        Some(path) => Some(path.to_owned()),
        None => Some(data.join(FILE_NAME)).filter(|path| path.exists()),
    };
    let defaults = Config::try_from(&Settings::defaults(data)).map_err(Failure::internal)?;
    let mut builder = Config::builder().add_source(defaults);
    if let Some(path) = file {
        let source = read_file(&path, builder.clone())?;
        builder = builder.add_source(source);
    }
    for (name, key) in VARIABLES {
        if let Some(value) = variable(name) {
            let value = match key {
                ORIGINS => Value::from(value.split(',').map(str::to_owned).collect::<Vec<_>>()),
                _ => Value::from(value),
            };
            builder = builder.set_override(key, value).map_err(|error| {
                Failure::new("settings_invalid", format!("environment variable {name}: {error}"))
            })?;
        }
    }
    let overrides = [
        ("device", flags.device.map(str::to_owned)),
        ("workers", flags.workers.map(|count| count.to_string())),
        ("http.addr", flags.http.map(|addr| addr.to_string())),
        ("http.tls", flags.tls.map(ToString::to_string)),
        ("grpc.addr", flags.grpc.map(|addr| addr.to_string())),
        ("quic.addr", flags.quic.map(|addr| addr.to_string())),
        ("control", flags.control.map(str::to_owned)),
        ("control_name", flags.control_name.map(str::to_owned)),
        ("blobs", flags.blobs.map(str::to_owned)),
        ("quic.reached_at", flags.reached_at.map(str::to_owned)),
        ("frigate.addr", flags.frigate.map(|addr| addr.to_string())),
        ("log_format", flags.log_format.map(|format| format.to_string())),
        ("immich.addr", flags.immich.map(|addr| addr.to_string())),
    ];
    for (key, value) in overrides {
        builder = builder.set_override_option(key, value).map_err(Failure::internal)?;
    }
    let mut settings =
        builder.build().and_then(Config::try_deserialize::<Settings>).map_err(|error| {
            Failure::new("settings_invalid", format!("settings: {error}")).hint(known())
        })?;
    for (key, count) in [("workers", settings.workers), ("workers_max", settings.workers_max)] {
        if count > WORKERS_MAX {
            let message = format!("settings: {key} is {count}, expected 0 to {WORKERS_MAX}");
            return Err(Failure::new("settings_invalid", message));
        }
    }
    let bytes = |given: usize| u64::try_from(given).unwrap_or(u64::MAX);
    for (key, given, allowed) in [
        ("batch_max", u64::from(settings.batch_max), BATCH_MAX),
        ("batch_delay_ms", settings.batch_delay_ms, BATCH_DELAY_MS),
        ("input_bytes_max", bytes(settings.input_bytes_max), BYTES_MAX),
        ("run_limit_s", settings.run_limit_s, RUN_LIMIT_S),
        ("models_poll_ms", settings.models_poll_ms, MODELS_POLL_MS),
        ("pending_max", settings.pending_max, PENDING_MAX),
        ("sequences_max", settings.sequences_max, SEQUENCES_MAX),
        ("sequences_bytes_max", bytes(settings.sequences_bytes_max), BYTES_MAX),
        ("results_kept_for_s", settings.results_kept_for_s, KEPT_FOR_S),
        ("keys_kept_for_s", settings.keys_kept_for_s, KEPT_FOR_S),
        ("http.body_bytes_max", bytes(settings.http.body_bytes_max), BYTES_MAX),
        ("http.bodies_bytes_max", bytes(settings.http.bodies_bytes_max), BYTES_MAX),
        ("quic.certificate_life_s", settings.quic.certificate_life_s, CERTIFICATE_LIFE_S),
        ("quic.absence_max_s", settings.quic.absence_max_s, ABSENCE_MAX_S),
        ("frigate.timeout_ms", settings.frigate.timeout_ms, FRIGATE_TIMEOUT_MS),
    ] {
        if !allowed.contains(&given) {
            let (least, most) = (allowed.start(), allowed.end());
            let message = format!("settings: {key} is {given}, expected {least} to {most}");
            return Err(Failure::new("settings_invalid", message));
        }
    }
    let share = settings.results_disk_share;
    // What is not a number is in no range.
    if !(share > 0.0 && share <= 1.0) {
        let message = format!("settings: results_disk_share is {share}, expected above 0 up to 1");
        return Err(Failure::new("settings_invalid", message));
    }
    settings.otlp.check()?;
    if let Some(path) = given {
        // As it was given: a path need not be text.
        settings.data = path;
    }
    settings.data = absolute(&settings.data)?;
    settings.http.tls = std::mem::take(&mut settings.http.tls).absolute()?;
    Ok(settings)
}

/// The data folder alone. Where it is named, nothing else that is set can change it: a cluster can
/// be asked and stopped whatever became of its settings since.
///
/// # Errors
/// As [`resolve`], where the folder is not named or a settings file is.
pub(crate) fn data_folder(
    flags: &Flags<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<PathBuf> {
    match named_folder(flags, &variable) {
        Some(path) if flags.config.is_none() => absolute(&path),
        _ => Ok(resolve(flags, variable)?.data),
    }
}

fn named_folder(flags: &Flags<'_>, variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    flags.data.map(Path::to_owned).or_else(|| variable("RADEON_DATA").map(Into::into))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::file("resolve", path, &error))
}

/// Reads a settings file and checks it before other sources can hide a wrong value in it.
fn read_file(
    path: &Path,
    defaults: ConfigBuilder<DefaultState>,
) -> Result<File<FileSourceString, FileFormat>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::file("read the settings file", path, &error))?;
    let source = File::from_str(&text, FileFormat::Toml);
    defaults
        .add_source(source.clone())
        .build()
        .and_then(Config::try_deserialize::<Settings>)
        .map_err(|error| {
            // The text came from memory, so the message does not name the file.
            let message = format!("settings file {}: {error}", path.display());
            Failure::new("settings_invalid", message).hint(known())
        })?;
    Ok(source)
}

fn known() -> String {
    let keys: Vec<&str> = VARIABLES.iter().map(|(_, key)| *key).collect();
    format!(
        "the settings are {}; simd is auto, scalar, avx2 or avx512, log_format text or json, and quic.advertise auto, always or never",
        keys.join(", ")
    )
}

/// The platform's folder for the data of programs.
fn default_data_folder() -> Result<PathBuf> {
    match etcetera::choose_base_strategy() {
        Ok(strategy) => Ok(strategy.data_dir().join("radeon-cluster")),
        Err(error) => Err(Failure::new("no_data_folder", format!("no data folder: {error}"))
            .hint("name one with --data DIR")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(file: &str, variables: &[(&str, &str)], flags: Flags<'_>) -> Result<Settings> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join(FILE_NAME), file).expect("the folder is ours");
        let lookup = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        resolve(&Flags { data: Some(folder.path()), ..flags }, lookup)
    }

    #[test]
    fn flags_beat_environment_beats_file_beats_defaults() {
        let port = |settings: Settings| settings.http.addr.port();
        let file = "workers = 3\n[http]\naddr = '127.0.0.1:1'\n";
        let variables = [("RADEON_HTTP__ADDR", "127.0.0.1:2"), ("RADEON_DEBUG", "info")];
        let flags = || Flags { http: "127.0.0.1:3".parse().ok(), ..Flags::default() };
        assert_eq!(with("", &[], Flags::default()).map(port).ok(), Some(8000));
        assert_eq!(with(file, &[], Flags::default()).map(port).ok(), Some(1));
        assert_eq!(with(file, &variables, Flags::default()).map(port).ok(), Some(2));
        let all = with(file, &variables, flags()).expect("every source is right");
        assert_eq!((all.http.addr.port(), all.workers), (3, 3));
        let simd = with("simd = 'scalar'", &[("RADEON_SIMD", "avx2")], Flags::default());
        assert_eq!(simd.map(|settings| settings.simd).ok(), Some(Simd::Avx2));
        assert_eq!(all.frigate.addr, None);
        let frigate = with("[frigate]\naddr = '127.0.0.1:5'\n", &[], Flags::default());
        let frigate = frigate.map(|settings| settings.frigate).ok();
        let addr = "127.0.0.1:5".parse().ok();
        assert_eq!(frigate, Some(Frigate { addr, timeout_ms: 180 }));
        assert_eq!(all.immich.addr, None);
        let immich = with("", &[("RADEON_IMMICH__ADDR", "127.0.0.1:5")], Flags::default());
        assert_eq!(immich.map(|settings| settings.immich).ok(), Some(Immich { addr }));
        assert_eq!(all.http.body_bytes_max, 64 << 20, "a table of the file keeps its defaults");
    }

    #[test]
    fn wrong_settings_name_the_key() {
        for (file, variables, part) in [
            ("wrokers = 3", &[][..], "wrokers"),
            ("[http]\nport = 80", &[], "port"),
            ("workers = 'many'", &[], "workers"),
            ("workers = ", &[], "radeon-cluster.toml"),
            ("", &[("RADEON_WORKERS", "many")], "workers"),
            ("", &[("RADEON_HTTP__ADDR", "nowhere")], "socket address"),
            ("", &[("RADEON_SIMD", "neon")], "neon"),
            ("simd = 'sse'", &[], "sse"),
            ("log_format = 'xml'", &[], "xml"),
            ("[quic]\nadvertise = 'maybe'", &[], "maybe"),
            ("[quic]\ncertificate_life_s = 1", &[], "certificate_life_s is 1"),
            ("", &[("RADEON_QUIC__ABSENCE_MAX_S", "31536001")], "quic.absence_max_s is 31536001"),
            ("batch_max = 0", &[], "batch_max is 0, expected 1 to 256"),
            ("[frigate]\ntimeout_ms = 0", &[], "frigate.timeout_ms is 0, expected 1 to 60000"),
            ("", &[("RADEON_FRIGATE__ADDR", "tcp://*:5555")], "socket address"),
            ("[otlp]\nendpoint = 'localhost:4318'", &[], "otlp.endpoint is \"localhost:4318\""),
            ("", &[("RADEON_OTLP__RATIO", "2")], "otlp.ratio is 2, expected 0 to 1"),
            ("", &[("RADEON_BATCH_DELAY_MS", "2000")], "batch_delay_ms is 2000"),
            (
                "results_disk_share = 1.5",
                &[],
                "results_disk_share is 1.5, expected above 0 up to 1",
            ),
            ("", &[("RADEON_RESULTS_KEPT_FOR_S", "0")], "results_kept_for_s is 0, expected 1 to"),
            ("input_bytes_max = 0", &[], "input_bytes_max is 0, expected 65536 to"),
            ("", &[("RADEON_HTTP__BODY_BYTES_MAX", "10")], "http.body_bytes_max is 10, expected"),
        ] {
            let failure = with(file, variables, Flags::default()).expect_err("it is wrong");
            assert_eq!(failure.code, "settings_invalid");
            assert!(failure.message.contains(part), "{:?} lacks {part:?}", failure.message);
        }
    }

    #[test]
    fn a_named_folder_is_found_whatever_else_is_wrong() {
        let named = Flags { data: Some(Path::new("/there")), ..Flags::default() };
        let wrong = |name: &str| (name == "RADEON_WORKERS").then(|| "many".to_owned());
        assert_eq!(data_folder(&named, wrong).ok(), Some(PathBuf::from("/there")));
        let failure = data_folder(&Flags::default(), wrong).expect_err("it is wrong");
        assert_eq!(failure.code, "settings_invalid");
    }

    #[test]
    fn a_named_file_has_to_be_there() {
        let flags = Flags { config: Some(Path::new("/nonexistent.toml")), ..Flags::default() };
        let failure = resolve(&flags, |_| None).expect_err("there is no such file");
        assert_eq!(failure.code, "file_not_found");
    }
}
