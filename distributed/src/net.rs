//! The only asynchronous code of the crate: QUIC connections around the pure core.

pub(crate) mod coordinator;
pub(crate) mod pki;
pub(crate) mod worker;
