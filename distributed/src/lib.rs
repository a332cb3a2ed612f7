//! Coordinator, workers, scheduling and the wire between them.
//!
//! A [`Coordinator`] accepts tasks, keeps them in a bounded queue and hands them over QUIC with
//! mutual TLS to workers; each worker ([`run_worker`]) runs them on an [`Executor`]. This crate
//! knows nodes, not models: the executor decides what a task means.
//!
//! ```
//! use lgp_distributed::{
//!     Coordinator, CoordinatorConfig, DeviceStatus, ExecError, Executor, ExecutorStatus, ModelRef,
//!     Pki, Stop, TaskSpec, TaskState, WorkerConfig, run_worker,
//! };
//! use lgp_memory::{NamedTensor, Tensor};
//! use std::sync::Arc;
//!
//! /// Answers each task with its own inputs.
//! struct Echo;
//!
//! impl Executor for Echo {
//!     fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
//!         Ok(())
//!     }
//!     fn unload(&self, _: usize, _: &ModelRef) {}
//!     fn execute(
//!         &self,
//!         _: usize,
//!         _: &ModelRef,
//!         inputs: &[NamedTensor],
//!         _: &Stop,
//!     ) -> Result<Vec<NamedTensor>, ExecError> {
//!         Ok(inputs.to_vec())
//!     }
//!     fn status(&self) -> ExecutorStatus {
//!         let (device, backend) = ("cpu:0".into(), "cpu".into());
//!         ExecutorStatus::of(DeviceStatus { device, backend, ..DeviceStatus::default() })
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pki = Pki::generate()?;
//! let config = CoordinatorConfig { quic_addr: "127.0.0.1:0".parse()?, ..Default::default() };
//! let coordinator = Coordinator::start(config, &pki).await?;
//!
//! // A worker is usually another process, to which its identity goes by a private channel.
//! let worker = WorkerConfig::new(coordinator.quic_addr(), pki.issue_worker("worker-1")?, 2);
//! tokio::spawn(run_worker(worker, Arc::new(Echo), std::future::pending()));
//! coordinator.wait_for_workers(1).await?;
//!
//! let model = ModelRef { name: "echo".into(), version: 1, sha256: String::new() };
//! let input = NamedTensor::new("x", Tensor::from_slice([2], &[1f32, 2.])?);
//! let record = coordinator.run(TaskSpec::new(model, vec![input.clone()])).await?;
//! assert_eq!(record.state, TaskState::Succeeded);
//! assert_eq!(record.outputs, Some(vec![input]));
//!
//! coordinator.drain().await;
//! coordinator.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! - An accepted task reaches exactly one terminal state. It may execute more than once: the tasks
//!   of a lost worker are redone, at once when its process ends the connection and within two
//!   seconds when it falls silent.
//! - A durable task ([`TaskSpec::durable`]) is accepted, run and shown as ended only after the
//!   journal has recorded that step. It survives its coordinator, and an end that was shown is
//!   never revoked. Other tasks live in memory and end with their coordinator.
//! - Inputs and outputs beyond 64 MiB travel by digest, resumed and verified. Inputs of durable
//!   tasks lie on the disk until the task has ended; if they are lost, it ends with
//!   [`TaskErrorKind::InputsLost`].
//! - Outputs of a durable task above 64 KiB lie on the disk until its result expires. They are
//!   verified when they are read; [`Error::ResultLost`] reports missing or damaged ones.
//! - An answer counts only if it comes from a current attempt of the task and this life of the
//!   coordinator; late ones are dropped and counted.
//! - An executor's final error (bad input, a model's own failure) is not retried. An attempt that
//!   ends without an answer is retried up to [`TaskSpec::max_attempts`], with jittered waits from
//!   the second loss on and within a retry budget. A worker that keeps failing at a model gets no
//!   more of its tasks until a probe succeeds.
//! - A task runs once all its dependencies have succeeded, and fails when one of them does not.
//! - A background task that waits at a worker makes room for a critical, high or normal one that
//!   finds no place. A task that waits at a slow worker moves to an idle one that is much faster.
//!   Neither move counts towards [`TaskSpec::max_attempts`], and no run that has begun is
//!   interrupted.
//! - Waiting tasks age: ten seconds of waiting count as one level of priority. No task overtakes
//!   one of the same model that is ahead of it in that order.
//! - An idempotency key stands for one task while its record is kept, and at least until
//!   [`CoordinatorConfig::keys_kept_for_s`] after its end.
//! - The queue is bounded by count and bytes ([`Error::Overloaded`] says when to come back).
//! - Results of durable tasks are kept for [`CoordinatorConfig::results_kept_for_s`] within
//!   [`CoordinatorConfig::results_bytes_max`]; results that were read are removed first. Of other
//!   tasks the newest are kept. A removed result answers [`Error::Expired`]. Kept results never
//!   cause a submission to be refused.
//!
//! # Joining and roles
//! Every connection is mutual TLS, with one exception: a machine without a certificate ([`join`])
//! shows the secret of a [`JoinToken`] to the one coordinator whose authority has the token's hash,
//! and gets a certificate for a key that the machine made. Certificates are short-lived;
//! [`run_worker`] renews its own and keeps it in [`WorkerConfig::keep_in`]. An expired certificate
//! allows only its renewal, by proof of its key. [`run_worker`] renews by itself and other members
//! by [`renew`], for as long as [`Pki::with_absence_max`] allows. A connection ends when its
//! certificate expires. [`Pki::open`] and [`Tokens::open`] keep authority and tokens across
//! restarts. [`Coordinator::revoke`] ends certificates before they expire.
//!
//! A certificate states one [`Role`], and a token states the role that it grants. Workers run
//! tasks; clients submit tasks through a [`Client`], and administrators manage the cluster through
//! one. A call that the role does not allow is refused. Clients may query and cancel any task whose
//! id they know.
//!
//! # Models
//! An executor with a [`ModelCache`] fetches missing models from the coordinator's [`BlobSource`]
//! by digest, verifies them, and resumes broken transfers.
//!
//! # Collectives
//! Processes that compute together, such as those that train one model, form a [`Ring`]. Its
//! members are ranks, each with a worker's identity. They find each other through the coordinator
//! and then communicate only with their neighbours. They need not run tasks.
//!
//! ```
//! # use lgp_distributed::{Coordinator, CoordinatorConfig, Pki, Ring, RingConfig, RingPeers};
//! use lgp_memory::Reduction;
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let pki = Pki::generate()?;
//! # let config = CoordinatorConfig { quic_addr: "127.0.0.1:0".parse()?, ..Default::default() };
//! # let coordinator = Coordinator::start(config, &pki).await?;
//! let mut ranks = Vec::new();
//! for rank in 0..2 {
//!     // Usually on different machines.
//!     let identity = pki.issue_worker(&format!("worker-{rank}"))?;
//!     let peers = RingPeers::Coordinator(coordinator.quic_addr());
//!     let config = RingConfig::new(identity, "training", (rank, 2), peers);
//!     ranks.push(tokio::spawn(async move {
//!         let mut ring = Ring::join(config).await?;
//!         let mut gradients = vec![ring.rank() as f32, 1.];
//!         ring.all_reduce(&mut gradients, Reduction::Mean).await?;
//!         assert_eq!(gradients, [0.5, 1.]);
//!         ring.leave().await
//!     }));
//! }
//! for rank in ranks {
//!     rank.await??;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Times
//! For a finished task, latency (from `submit` to the terminal state) is
//! `queued_ms + model_ms + overhead_ms`: waiting before the last dispatch, time inside
//! [`Executor::execute`] measured at the worker, and the rest. Each task of a batch run by
//! [`Executor::execute_batch`] reports the time of the whole batch. Where workers batch, waiting at
//! the worker is part of the rest.
//!
//! # Inside
//! `proto` is the pure core, in which time and randomness are arguments; `net` is the only
//! asynchronous code; `control` is the journal that outlives a coordinator. The crate
//! `lgp-distributed-sim` runs the core and the network code on a seeded bad network. The module
//! `inside` lists what that crate may use; other builds do not have the module.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "planted"), allow(unreachable_pub, reason = "the simulation reaches it"))]
#![cfg_attr(
    feature = "planted",
    allow(missing_docs, reason = "insides are open to the simulation")
)]

mod attempt;
mod batching;
mod clock;
mod config;
mod control;
mod error;
mod executor;
#[cfg(feature = "planted")]
#[doc(hidden)]
pub mod inside;
mod net;
mod parse;
mod proto;
mod run_trace;
mod task;
mod worker_info;

pub use attempt::AttemptRecord;
pub use batching::{Batching, ZeroInput};
pub use config::{CoordinatorConfig, WorkerConfig};
pub use control::moving::MigrationStep;
pub use control::persisted::Persisted;
pub use control::shared::Control;
pub use control::view::ControlView;
pub use error::{Error, JournalError, Result};
pub use executor::{
    DeviceStatus, ExecError, ExecErrorKind, Executor, ExecutorStatus, Stop, UnusedDevice,
};
pub use net::call::{Client, Supervisor};
pub use net::coordinator::gate::Services;
pub use net::coordinator::peers::Peer;
pub use net::coordinator::{Coordinator, Events};
pub use net::identity::enrol::{JoinRefusal, enrol, join};
pub use net::identity::pki::{CaHash, Identity, Pki, Revocation, ServerIdentity};
pub use net::identity::renew::renew;
pub use net::identity::role::Role;
pub use net::identity::token::{JoinToken, TokenInfo, Tokens};
pub use net::moving::{ClusterHome, Migrated};
pub use net::ring::{Ring, RingConfig, RingError, RingPeers};
pub use net::transfer::blobs::BlobsAt;
pub use net::transfer::models::{BlobFile, BlobPart, BlobSource, ModelCache};
pub use net::transport::coordinators::Coordinators;
pub use net::transport::discover::{Advertisement, Discovery};
pub use net::worker::run_worker;
pub use proto::balance::balancing_strategies;
pub use proto::core::readiness::ModelReadiness;
pub use proto::event::Event;
pub use proto::frame::FrameError;
pub use proto::histogram::ms;
pub use proto::models::ModelNeeds;
pub use proto::rendezvous::MeetingRefusal;
pub use proto::ring::RingElement;
pub use proto::scale::{ScaleConfig, ScaleDecision, ScaleMetric, ScaleRule, ScaleSample, Scaler};
pub use run_trace::{NodeTime, RunTrace};
pub use task::{
    Backoff, ModelRef, Priority, TaskError, TaskErrorKind, TaskFilter, TaskId, TaskPage,
    TaskRecord, TaskSpec, TaskState,
};
pub use worker_info::{
    DeviceInfo, Hits, Percentiles, Stats, TaskCounts, Traffic, Transport, WorkerCounts, WorkerId,
    WorkerInfo, WorkerState,
};
