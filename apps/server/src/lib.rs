//! The REST front end: Open Inference Protocol v2, the cluster API and `/metrics`.
//!
//! It serves loopback only: without TLS and a credential, whoever reaches the port may do
//! everything. Requests that a browser sends for another site are refused for the same reason.
#![forbid(unsafe_code)]

mod bodies;
mod catalog;
mod cluster;
mod config;
mod drain;
mod driver;
mod error;
mod exposition;
mod extract;
mod fault;
mod faults;
mod guard;
mod metrics;
mod oip;
mod router;
mod serve;
mod state;

pub use config::ServerConfig;
pub use driver::{BoxFuture, Driver, DriverError, Restarted};
pub use error::{Error, Result};
pub use router::router;
pub use serve::serve;
pub use state::ServerState;
