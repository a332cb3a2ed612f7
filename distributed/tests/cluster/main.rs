//! Coordinator and workers over real QUIC.

mod away;
mod batching;
mod common;
mod durable;
mod faults;
mod fetch;
mod join;
mod large;
mod large_outputs;
mod network;
mod relay;
mod results;
mod ring;
mod roles;
mod several;
mod shared;
mod tasks;
mod traced;
mod trust;
