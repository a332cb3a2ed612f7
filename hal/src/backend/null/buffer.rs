//! The recording device's memory is the host's.

pub(super) use crate::backend::host::HostBuffer as NullBuffer;
