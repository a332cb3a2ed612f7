//! Coordinator and workers over real QUIC.

mod batching;
mod common;
mod durable;
mod faults;
mod fetch;
mod join;
mod large;
mod network;
mod relay;
mod ring;
mod roles;
mod shared;
mod tasks;
mod trust;
