//! How bytes travel: endpoints, frames on streams, requests and their answers, shared memory, and
//! how coordinators are found on the local network.

pub(crate) mod close;
pub(crate) mod coordinators;
pub(crate) mod discover;
pub(crate) mod endpoint;
pub(crate) mod rpc;
pub(crate) mod shared_memory;
pub(crate) mod wire;
