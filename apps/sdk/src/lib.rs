//! The platform's promised API for Rust programs, grouped by use: [`tensor`]s go through a [`model`] on a [`device`];
//! a [`cluster`] runs tasks; [`measure`] reports what runs take.
//!
//! These names follow semantic versioning. Each name has one place, and `tests/promised.rs` counts them. Other names
//! in the crates of the layers, such as `lgp-inference`, may change at any time.
//!
//! # A model on this machine
//! [`device::probe`] finds devices, [`device::open_devices`] opens one or several, and a [`model::Session`] runs a
//! model on them, or on the CPU.
//!
//! ```
//! use lgp_sdk::device::{DeviceLimits, ProbeOptions, open_devices, probe};
//! use lgp_sdk::measure::{LatencyOptions, generate_report, measure_latency, profile_cpu};
//! use lgp_sdk::model::{Model, Session, SessionOptions};
//! use lgp_sdk::tensor::{NamedTensor, Tensor};
//!
//! for device in probe(&ProbeOptions::default()) {
//!     println!("{}: {}", device.id, device.reason.as_deref().unwrap_or("runs models"));
//! }
//! let model = Model::load("../cli/assets/digits/digits.onnx")?;
//! // `auto` is the best of the devices.
//! let devices = open_devices("cpu", &DeviceLimits::default())?;
//! let session = Session::on_devices(model, SessionOptions::default(), devices)?;
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
//! A [`cluster::Coordinator`] takes tasks. Workers, in this process or others, run the tasks with a
//! [`cluster::ModelExecutor`]. A [`cluster::Client`] submits tasks from elsewhere.
//!
//! ```
//! use lgp_sdk::cluster::{
//!     Coordinator, CoordinatorConfig, ModelExecutor, ModelRef, Pki, TaskSpec, TaskState,
//!     WorkerConfig, run_worker,
//! };
//! use lgp_sdk::model::{Repository, SessionOptions};
//! use lgp_sdk::tensor::{NamedTensor, Tensor};
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

mod cache;
mod choice;
mod executor;
mod multi;
mod sensors;
mod turns;
mod ways;

/// The inputs and outputs of models: tensors, their shapes and their dtypes.
pub mod tensor {
    pub use lgp_memory::{
        DType, Datum, Dim, Element, Error, NamedTensor, Shape, SymShape, Tensor, TensorType,
        TensorView,
    };
}

/// Models from ONNX files and repositories, and the sessions that run them.
pub mod model {
    pub use lgp_inference::{
        Error, Model, Precision, Profile, Repository, RunOptions, Session, SessionOptions, Stop,
        ValueSpec,
    };
}

/// The devices of this machine: listing them, why a device cannot be used, and opening them.
pub mod device {
    pub use crate::choice::{
        ChoiceError as Error, DeviceLimits, device_names, open_device, open_devices,
    };
    pub use lgp_compute::device::Accelerator;
    pub use lgp_hal::{DeviceId, DeviceInfo, ProbeOptions, probe};
}

/// Coordinators, workers and clients of a cluster.
pub mod cluster {
    pub use crate::cache::RepositoryFiles;
    pub use crate::executor::ModelExecutor;
    pub use crate::multi::MultiExecutor;
    pub use lgp_distributed::{
        Client, Coordinator, CoordinatorConfig, Error, Identity, JoinToken, ModelRef, Pki,
        Priority, Role, Services, TaskId, TaskRecord, TaskSpec, TaskState, Tokens, WorkerConfig,
        enrol, join, run_worker,
    };
}

/// Measures the runs of a session and renders a page of the results.
pub mod measure {
    pub use lgp_measure::{
        CpuProfile, Latency, LatencyOptions, generate_report, measure_latency, profile_cpu,
    };
}

/// The README's examples, so that they compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The book's examples of each crate, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/crates.md")]
struct Crates;
