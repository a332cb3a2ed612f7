//! The pure core of the cluster: no I/O, and time and randomness are arguments.
//!
//! [`core::Core`] takes events (a submission, a heartbeat, a completion, the passing of time)
//! and answers with [`state::Action`]s. `net` carries the actions out over QUIC, `sim` over a
//! seeded imitation of a bad network.

mod attempt;
pub(crate) mod backoff;
pub(crate) mod balance;
pub(crate) mod core;
pub(crate) mod frame;
mod histogram;
mod history;
pub(crate) mod membership;
pub(crate) mod message;
mod models;
mod queue;
pub(crate) mod request;
mod schedule;
pub(crate) mod state;
pub(crate) mod tensors;
#[cfg(test)]
mod tests;
