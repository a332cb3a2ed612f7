//! What tests of this crate and of those above it make devices of.

mod host_blas;
mod pass_on;
mod refusing;

pub use host_blas::HostBlas;
pub use refusing::RefusingDevice;
