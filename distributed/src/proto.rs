//! The pure core of the cluster: no I/O, no clock, no source of randomness of its own.

pub(crate) mod balance;
pub(crate) mod frame;
