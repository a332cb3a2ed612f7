//! The only asynchronous code of the crate: QUIC connections around the pure core.

mod close;
pub(crate) mod coordinator;
mod exchange;
mod journal;
pub(crate) mod pki;
mod session;
mod shared;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod wire;
mod work;
pub(crate) mod worker;
mod worker_session;
