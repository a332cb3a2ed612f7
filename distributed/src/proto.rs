//! The pure core of the cluster: no I/O, and time and randomness are arguments.
//!
//! [`core::Core`] takes events (a submission, a heartbeat, a completion, the passing of time)
//! and answers with [`state::Action`]s. `net` carries the actions out over QUIC, the
//! simulation over a seeded imitation of a bad network.

/// Whether the simulation has planted a fault; never without the cargo feature `planted`.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($part:expr, $fault:ident) => {
        $part.planted == Some(crate::proto::planted::Planted::$fault)
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($part:expr, $fault:ident) => {
        false
    };
}

mod actions;
pub(crate) mod backoff;
pub(crate) mod core;
pub(crate) mod event;
pub(crate) mod frame;
pub(crate) mod histogram;
pub(crate) mod image;
mod ledger;
pub(crate) mod message;
mod names;
mod placement;
#[cfg(feature = "planted")]
pub(crate) mod planted;
pub(crate) mod rendezvous;
pub(crate) mod request;
pub(crate) mod ring;
pub(crate) mod scale;
mod scheduler;
pub(crate) mod state;
mod statistics;
mod tasks;
pub(crate) mod tensors;
mod timers;

pub use self::core::Order;
pub(crate) use self::core::membership;
pub use placement::HangTable;
pub(crate) use placement::models;
pub(crate) use scheduler::{balance, queue};
