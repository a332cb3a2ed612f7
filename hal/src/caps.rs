//! The capabilities of a device that the layers above need before they use it.

use crate::id::PciAddress;
use serde::Serialize;

/// The kind of a device's hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// No hardware (the recording device), or unknown.
    #[default]
    Virtual,
    /// A processor, also one that is used through OpenCL.
    Cpu,
    /// A graphics card, or the graphics part of a processor.
    Gpu,
    /// Anything else.
    Accelerator,
}

/// The capabilities of one device. A number that the device does not report is `None` or 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Caps {
    /// The kind of hardware.
    pub kind: DeviceKind,
    /// The vendor.
    pub vendor: String,
    /// The driver and its version.
    pub driver: String,
    /// The device's PCI address.
    pub pci: Option<PciAddress>,
    /// Cores, compute units or streaming multiprocessors.
    pub compute_units: u32,
    /// Highest clock of the cores.
    pub clock_mhz_max: Option<u32>,
    /// All memory of the device.
    pub memory_bytes: Option<u64>,
    /// The largest single buffer: on Polaris under rusticl a quarter of the memory, under Vulkan less
    /// than 2 GiB.
    pub allocation_bytes_max: Option<u64>,
    /// The alignment of every buffer's first byte.
    pub alignment_bytes: u32,
    /// Local (shared) memory of one work-group.
    pub local_memory_bytes: u64,
    /// The maximum number of work-items in a work-group; 0 without programs.
    pub work_group_max: u32,
    /// Work-items that run in lock-step: the preferred work-group multiple; 0 without programs.
    pub wave: u32,
    /// Whether host and device share one memory.
    pub unified_memory: bool,
    /// Whether kernels can calculate in f16.
    pub fp16: bool,
    /// Whether kernels can calculate in f64.
    pub fp64: bool,
    /// Whether the device compiles and runs programs.
    pub programs: bool,
    /// Whether the vendor's library multiplies matrices ([`crate::Device::blas`]).
    pub gemm: bool,
    /// Instruction sets of a processor, extensions of an OpenCL device.
    pub features: Vec<String>,
}
