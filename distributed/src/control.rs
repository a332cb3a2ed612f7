//! The coordinator's persistent state: a log of durable tasks, the journal that keeps a log in a
//! file, and the authority, which elects the leader and keeps the cluster's documents.
//!
//! The rest of the crate sees only [`log::Log`]. The caller defines what a record means. The
//! journal keeps one record per task through redb, `postgres` keeps it in a database, `etcd` and
//! `jetstream` in two engines. One thread commits what many callers submit in few transactions.

#[cfg(feature = "scale")]
mod address;
#[cfg(feature = "scale")]
mod aside;
pub(crate) mod authority;
#[cfg(feature = "scale")]
mod chain;
#[cfg(test)]
mod conformance;
mod create;
pub(crate) mod embedded;
#[cfg(feature = "scale")]
mod endpoints;
#[cfg(feature = "scale")]
mod etcd;
mod file;
pub(crate) mod files;
mod guard;
#[cfg(all(test, feature = "scale"))]
mod issuer;
#[cfg(feature = "scale")]
mod jetstream;
pub(crate) mod journal;
mod keeper;
mod live;
pub(crate) mod log;
#[cfg(all(test, feature = "scale"))]
mod machines;
#[cfg(any(test, feature = "planted"))]
pub(crate) mod memory;
mod migrate;
pub(crate) mod moving;
#[cfg(feature = "scale")]
mod pair;
pub(crate) mod persisted;
#[cfg(feature = "scale")]
pub(crate) mod postgres;
pub(crate) mod record;
#[cfg(feature = "scale")]
mod remembered;
#[cfg(all(test, feature = "scale"))]
mod servers;
pub(crate) mod shared;
mod store;
mod tables;
#[cfg(test)]
mod tests;
#[cfg(feature = "scale")]
mod tls;
mod trouble;
mod upkeep;
pub(crate) mod view;
mod writer;
