//! What a coordinator must not forget: a journal of durable tasks in one file, and the thread
//! that writes it.
//!
//! [`journal::Journal`] keeps one record a task through redb, and [`writer::Writer`] commits what
//! many callers submit in few transactions. What a record means is the caller's business.

mod create;
mod damage;
mod file;
mod guard;
pub(crate) mod journal;
mod live;
pub(crate) mod migrate;
pub(crate) mod record;
mod speed;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod trouble;
mod upkeep;
pub(crate) mod writer;

pub use damage::{DamageReport, DamagedImage};
pub use speed::{JournalSpeed, journal_speed};
