//! The pure core of the cluster: no I/O, and time and randomness are arguments.
//!
//! [`core::Core`] takes events (a submission, a heartbeat, a completion, the passing of time)
//! and answers with [`state::Action`]s. `net` carries the actions out over QUIC, `sim` over a
//! seeded imitation of a bad network.

mod admission;
mod affinity;
mod attempt;
pub(crate) mod backoff;
pub(crate) mod balance;
mod breaker;
mod budget;
mod capability;
pub(crate) mod core;
mod durable;
pub(crate) mod event;
mod explain;
mod fleet;
pub(crate) mod frame;
mod health;
mod histogram;
mod history;
pub(crate) mod image;
pub(crate) mod membership;
pub(crate) mod message;
pub(crate) mod models;
pub(crate) mod queue;
mod recall;
pub(crate) mod rendezvous;
pub(crate) mod request;
mod residency;
pub(crate) mod ring;
pub(crate) mod scale;
pub(crate) mod schedule;
mod service;
pub(crate) mod state;
pub(crate) mod tensors;
#[cfg(test)]
mod tests;
mod why;

pub(crate) use admission::Order;
