//! What a coordinator must not forget: a log of durable tasks, the journal that keeps one in a file,
//! and the authority that says who leads and keeps what the cluster has to know.
//!
//! [`log::Log`] is all that the rest of the crate sees of it. What a record means is the caller's
//! business. The journal keeps one record a task through redb, `postgres` in a database, `etcd` and
//! `jetstream` in two engines, and a thread commits what many callers submit in few transactions.

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
