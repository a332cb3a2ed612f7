//! Coordinator and workers over real QUIC.

mod common;
mod durable;
mod faults;
mod fetch;
mod join;
mod ring;
mod tasks;
mod trust;
