//! Several devices at once: bytes move between them, and tensors are summed and shared by all.
//!
//! [`Transfers`] carries bytes from one device's memory to another's while host and devices do
//! other things. [`Group`] is a set of devices with the collectives of the field on top of it.

mod arrival;
mod group;
mod jobs;
mod link;
mod pace;
mod place;
mod reduce;
mod schedule;
mod slot;
mod stats;
mod transfers;

pub use arrival::Arrival;
pub use group::Group;
pub use lgp_memory::Reduction;
pub use place::Place;
pub use stats::LinkStats;
pub use transfers::{TransferConfig, Transfers};
