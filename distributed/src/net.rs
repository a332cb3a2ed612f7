//! The only asynchronous code of the crate: QUIC connections around the pure core.
//!
//! `identity` says who is who, `transport` how bytes travel, `coordinator` and `worker` are the two
//! ends, `transfer` moves what is too long for a frame, `call` is what clients ask, `ring` collectives,
//! `moving` takes a cluster elsewhere.

pub(crate) mod call;
pub(crate) mod coordinator;
#[cfg(test)]
mod durable_tests;
pub(crate) mod identity;
#[cfg(test)]
mod join_tests;
pub(crate) mod moving;
#[cfg(test)]
mod outputs_tests;
pub(crate) mod outside;
#[cfg(all(test, unix))]
mod panic_tests;
#[cfg(test)]
mod peers_tests;
#[cfg(test)]
mod renew_tests;
#[cfg(test)]
mod restart_tests;
pub(crate) mod ring;
#[cfg(test)]
mod shared_blobs_tests;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;
pub(crate) mod transport;
pub(crate) mod worker;
