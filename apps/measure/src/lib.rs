//! Measures runs, devices and memory, compares measurements, and renders pages of them.
//!
//! [`measure_latency`] and [`profile_cpu`] time a session's runs, [`measure_copies`], [`measure_gemm`] and
//! [`measure_conv`] a device, [`typical_ms`] the ways to use one, [`measure_pools`] and [`trace_memory`] memory. [`trials`] are networks with known
//! work. [`stats`] compares measurements, [`agree`] and [`difference`] compare results, [`report`] makes pages.
//!
//! `lgp-sdk` promises the names that other programs need; the rest is for the applications of this repository.
#![forbid(unsafe_code)]

mod device;
mod memory;
mod random;
pub mod report;
mod results;
mod session;
pub mod stats;
mod trial;
mod way;

pub use device::{Copies, measure_conv, measure_copies, measure_gemm};
pub use memory::{Freed, MemoryTrace, PoolTimes, measure_pools, trace_memory};
pub use random::Random;
pub use report::generate_report;
pub use results::agree;
pub use session::{
    CpuNode, CpuProfile, Latency, LatencyOptions, data, measure_latency, profile_cpu,
};
pub use trial::{TRIAL_KINDS, Trial, TrialSize, difference, trials};
pub use way::typical_ms;
