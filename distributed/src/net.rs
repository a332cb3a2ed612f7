//! The only asynchronous code of the crate: QUIC connections around the pure core.

mod ask;
mod attend;
pub(crate) mod blob;
pub(crate) mod call;
mod close;
pub(crate) mod coordinator;
pub(crate) mod discover;
pub(crate) mod enrol;
mod exchange;
mod files;
pub(crate) mod gate;
mod hex;
#[cfg(test)]
mod join_tests;
mod journal;
mod kept;
mod lane;
mod large;
mod line;
pub(crate) mod pki;
mod present;
mod renew;
pub(crate) mod ring;
pub(crate) mod role;
mod session;
mod shared;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
mod tls;
pub(crate) mod token;
mod transport;
pub(crate) mod untrusted;
mod wire;
mod work;
pub(crate) mod worker;
mod worker_session;
