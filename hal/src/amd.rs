//! Facts about AMD cards from the kernel: identity, telemetry, and properties from the compute
//! driver. The root of sysfs is a parameter, so that tests run on fixture trees.

pub(crate) mod ids;
pub(crate) mod kfd;
pub(crate) mod sysfs;

/// AMD's PCI vendor id.
pub(crate) const VENDOR_AMD: u16 = 0x1002;
/// NVIDIA's PCI vendor id.
pub(crate) const VENDOR_NVIDIA: u16 = 0x10de;
