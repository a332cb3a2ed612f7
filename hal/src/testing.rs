//! What tests of this crate and of those above it make devices of.

mod pass_on;
mod refusing;

pub use refusing::RefusingDevice;
