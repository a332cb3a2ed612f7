//! Ids of connections and of requests.

/// A connection of a worker. A worker that comes back gets a new one.
pub type SessionId = u64;

/// SHA-256 of the parts of a request that make it equal to another.
pub type Digest = [u8; 32];
