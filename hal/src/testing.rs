//! Devices for tests of this crate and of the crates above it.

mod host_blas;
mod on_backends;
mod pass_on;
mod refusing;

pub use host_blas::HostBlas;
pub use refusing::RefusingDevice;
