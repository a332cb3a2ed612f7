//! The curated Rust API of the platform: what applications need, and nothing else.
//!
//! Tensors come from `lgp-memory`, devices from `lgp-hal`, models and sessions from
//! `lgp-inference`, the cluster from `lgp-distributed`; each crate also works alone.
//! [`ModelExecutor`] joins the last two.
//!
//! # A model on this machine
//! Devices are found by [`probe`] and opened by [`open`]; [`session`] compiles a model for one, or for
//! the processor, and [`measure_latency`], [`profile_cpu`] and [`generate_report`] say what its runs take.
//!
//! ```
//! use lgp_sdk::{LatencyOptions, Model, NamedTensor, SessionOptions, Tensor};
//! use lgp_sdk::{generate_report, measure_latency, probe, profile_cpu, select_auto, session};
//!
//! let devices = probe(&lgp_sdk::ProbeOptions::default());
//! println!("models run best on {}", select_auto(&devices));
//!
//! let model = Model::load("../cli/assets/digits/digits.onnx")?;
//! let session = session(model, SessionOptions::default(), None)?;
//! let image = Tensor::from_slice([1, 1, 8, 8], &[0f32; 64])?;
//! let outputs = session.run(&[("image", image.view())])?;
//! assert_eq!(outputs[0].tensor.shape().dims(), [1, 10]);
//!
//! let inputs = [NamedTensor::new("image", image)];
//! let latency = measure_latency(&session, &inputs, &LatencyOptions::default())?;
//! let profile = profile_cpu(&session, &inputs, 10)?;
//! let page = generate_report("digits", &latency, &profile);
//! assert!(page.contains("Latency"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A cluster within a program
//! A [`Coordinator`] takes tasks; workers, in this process or others, run them by an [`Executor`].
//! [`Client`] does the same from elsewhere.
//!
//! ```
//! use lgp_sdk::{
//!     Coordinator, CoordinatorConfig, ModelExecutor, ModelRef, NamedTensor, Pki, Repository,
//!     SessionOptions, TaskSpec, TaskState, Tensor, WorkerConfig, run_worker,
//! };
//! use std::sync::Arc;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let repository = Repository::open(folder.path())?;
//! let digits = std::fs::read("../cli/assets/digits/digits.onnx")?;
//! let entry = repository.find_or_add_bytes("digits", &digits)?;
//! let model = ModelRef { name: entry.name, version: entry.version, sha256: entry.sha256 };
//!
//! let pki = Pki::generate()?;
//! let config = CoordinatorConfig { quic_addr: "127.0.0.1:0".parse()?, ..Default::default() };
//! let coordinator = Coordinator::start(config, &pki).await?;
//! let executor = ModelExecutor::new(repository, None, SessionOptions::with_threads(1));
//! let worker = WorkerConfig::new(coordinator.quic_addr(), pki.issue_worker("worker-1")?, 2);
//! tokio::spawn(run_worker(worker, Arc::new(executor), std::future::pending()));
//! coordinator.wait_for_workers(1).await?;
//! coordinator.load(model.clone()).await?;
//!
//! let image = NamedTensor::new("image", Tensor::from_slice([1, 1, 8, 8], &[0f32; 64])?);
//! let record = coordinator.run(TaskSpec::new(model, vec![image])).await?;
//! assert_eq!(record.state, TaskState::Succeeded);
//! coordinator.stop().await;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod arrays;
mod bench_devices;
mod bench_memory;
mod cache;
mod choice;
mod codes;
mod deployment;
mod executor;
mod joined;
mod labels;
mod measure;
mod multi;
mod random;
pub mod report;
mod results;
mod sensors;
mod size;
pub mod stats;
mod trial;
mod turns;
mod versions;
pub mod vision;

pub use arrays::{for_numpy, numpy_name};
pub use bench_devices::{Copies, measure_conv, measure_copies, measure_gemm};
pub use bench_memory::{Freed, MemoryTrace, PoolTimes, measure_pools, trace_memory};
pub use cache::RepositoryFiles;
pub use choice::{
    ChoiceError, DeviceLimits, device_names, keep_programs, open_device, open_devices,
};
pub use codes::{chain, model_error_code, plainly};
pub use deployment::triton::proto as triton;
pub use deployment::{
    ControlKind, DeployError, Deployment, DeploymentPatch, ModelConfig, SequenceControl,
    SequenceState, Sequences, WarmUp,
};
pub use executor::ModelExecutor;
pub use labels::{Beside, LabelsError, class_names};
pub use lgp_compute::device::Accelerator;
pub use lgp_distributed::{
    Advertisement, AttemptRecord, Backoff, Batching, BlobFile, BlobPart, BlobSource, BlobsAt,
    CaHash, Client, ClusterHome, Control, ControlView, Coordinator, CoordinatorConfig,
    Coordinators, DeviceInfo as WorkerDevice, DeviceStatus, Discovery, Error as ClusterError,
    Event, Events, ExecError, ExecErrorKind, Executor, ExecutorStatus, Identity, JoinRefusal,
    JoinToken, JournalError, Migrated, MigrationStep, ModelCache, ModelNeeds, ModelReadiness,
    ModelRef, NodeTime, Peer, Percentiles, Persisted, Pki, Priority, Revocation, Role, RunTrace,
    ScaleConfig, ScaleDecision, ScaleMetric, ScaleRule, ScaleSample, Scaler, Services, Stats,
    Stop as TaskStop, Supervisor, TaskCounts, TaskError, TaskErrorKind, TaskFilter, TaskId,
    TaskPage, TaskRecord, TaskSpec, TaskState, TokenInfo, Tokens, Traffic, Transport, UnusedDevice,
    WorkerConfig, WorkerCounts, WorkerId, WorkerInfo, WorkerState, ZeroInput, balancing_strategies,
    enrol, join, ms, renew, run_worker,
};
pub use lgp_hal::{
    BackendKind, Caps, Device, DeviceId, DeviceInfo, DeviceKind, Error as DeviceError, Finding,
    Monitor, ProbeOptions, SelfTest, Status as FindingStatus, Telemetry, diagnose, examine, open,
    open_auto, probe, select_auto,
};
pub use lgp_inference::{
    Attr, BoundWeights, DeviceMemoryReport, Entry, Error as ModelError, GraphBuilder, Isa,
    KeptFloats, MeasuredPlacement, MemoryReport, Model, NodeProfile, PassReport, Placement,
    Precision, Profile, Repository, RunTask, Session, SessionOptions, Stop, Stopped, StoredFloats,
    TensorBytes, TunedModel, TunedNode, ValueSpec, Weights, pass_reports, read_value,
};
pub use lgp_memory::{
    Buffer, DType, Datum, Dim, Element, Error as TensorError, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2,
    F8E5M2FNUZ, F8E8M0, MemoryKind, MemoryPhase, MemoryProfile, NamedTensor, Shape, SpikeRule,
    SymShape, Tensor, TensorType, TensorView, ValueKind,
};
pub use measure::{CpuNode, CpuProfile, Latency, LatencyOptions, measure_latency, profile_cpu};
pub use multi::MultiExecutor;
pub use random::Random;
pub use report::generate_report;
pub use results::agree;
pub use size::parse_size;
pub use trial::{TRIAL_KINDS, Trial, TrialSize, difference, trials};
pub use versions::{Loaded, VersionPolicy, keep_loaded, last_loaded};

/// Compiles a model for an opened device, or for the processor where there is none.
///
/// # Errors
/// As [`Session::new`].
///
/// ```
/// let model = lgp_sdk::Model::load("../cli/assets/digits/digits.onnx")?;
/// let session = lgp_sdk::session(model, lgp_sdk::SessionOptions::default(), None)?;
/// assert_eq!(session.inputs()[0].name, "image");
/// # Ok::<(), lgp_sdk::ModelError>(())
/// ```
pub fn session<'a>(
    model: impl Into<std::borrow::Cow<'a, Model>>,
    options: SessionOptions,
    accelerator: Option<Accelerator>,
) -> Result<Session, ModelError> {
    match accelerator {
        Some(accelerator) => Session::on_device(model, options, accelerator),
        None => Session::new(model, options),
    }
}

/// The README's examples, so that they compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The book's examples of each crate, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/crates.md")]
struct Crates;
