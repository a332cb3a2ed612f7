//! Coordinator and workers over real QUIC.

mod common;
mod faults;
mod tasks;
mod trust;
