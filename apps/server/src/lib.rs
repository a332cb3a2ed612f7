//! The front end: Open Inference Protocol v2 over REST and gRPC, the cluster API and `/metrics`.
//!
//! Programs on the same machine may use health, metadata and inference without a key; all else
//! needs one. Requests that a browser sends for another site are refused.
#![forbid(unsafe_code)]

mod access;
mod aliases;
mod answers;
mod bodies;
mod cache;
mod call;
mod catalog;
mod cluster;
mod config;
mod dashboard;
mod deployment;
mod docs;
mod drain;
mod driver;
mod ensemble;
mod error;
mod exposition;
mod extract;
mod fault;
mod faults;
mod feed;
mod frigate;
mod grpc;
mod guard;
mod history;
mod immich;
mod leader;
mod load;
mod logs;
mod metrics;
mod oip;
mod openapi;
mod page;
mod peer;
mod place;
mod places;
mod probes;
mod query;
mod route;
mod router;
mod sequences;
mod serve;
mod shadow;
mod shared_memory;
mod shed;
mod state;
mod stream;
mod tls;
mod trace;
#[cfg(feature = "planted")]
pub mod untrusted;
mod versions;

pub use access::{Access, KeyInfo, KeyRole, Keys, LocalKey, NewKey};
pub use config::ServerConfig;
pub use deployment::{
    ControlKind, DeployError, Deployment, DeploymentPatch, ModelConfig, SequenceControl,
    SequenceState, Sequences, WarmUp,
};
pub use driver::{BoxFuture, Driver, DriverError, PlanError, Restarted};
pub use error::{Error, Result};
pub use frigate::serve_frigate;
pub use grpc::proto as inference;
pub use grpc::router as grpc_router;
pub use load::{Load, LoadForm, LoadLatency, LoadProtocol, LoadReport};
pub use logs::{LogFilter, LogLevel, LogLine, read_logs};
pub use router::router;
pub use serve::{serve, serve_grpc, serve_immich};
pub use state::ServerState;
pub use tls::Tls;
pub use versions::{Loaded, VersionPolicy, keep_loaded, last_loaded};
