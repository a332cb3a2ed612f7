//! Name and capabilities of an OpenCL device, as the device reports them.

use super::Entry;
use crate::backend::Found;
use crate::caps::{Caps, DeviceKind};
use crate::id::PciAddress;
use opencl3::device::{
    CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, CL_FP_FMA, CL_FP_ROUND_TO_NEAREST, Device,
};

/// `CL_DEVICE_PCI_BUS_INFO_KHR`: four u32, domain, bus, device, function.
const PCI_BUS_INFO_KHR: u32 = 0x410F;
/// `CL_DEVICE_TOPOLOGY_AMD`: 24 bytes; type (1 = PCIe), then bus, device, function in the last
/// three.
const TOPOLOGY_AMD: u32 = 0x4037;
/// `CL_DEVICE_BOARD_NAME_AMD`: the marketing name.
const BOARD_NAME_AMD: u32 = 0x4038;
/// `CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE` of OpenCL 3.0, a size_t. Earlier devices report
/// it for compiled kernels only.
const PREFERRED_MULTIPLE: u32 = 0x1067;

/// The kind of a device's hardware.
pub(super) fn kind(device: &Device) -> DeviceKind {
    match device.dev_type() {
        Ok(kind) if kind & CL_DEVICE_TYPE_GPU != 0 => DeviceKind::Gpu,
        Ok(kind) if kind & CL_DEVICE_TYPE_CPU != 0 => DeviceKind::Cpu,
        _ => DeviceKind::Accelerator,
    }
}

/// Name and capabilities of a device.
pub(super) fn describe(entry: &Entry) -> Found {
    let device = &entry.device;
    let board = device.get_data(BOARD_NAME_AMD).ok().map(|bytes| text(&bytes));
    let name = board
        .filter(|board| !board.is_empty())
        .or_else(|| device.name().ok().map(|name| name.trim().to_owned()))
        .unwrap_or_else(|| "unnamed OpenCL device".to_owned());
    Found { name, caps: caps(entry) }
}

fn caps(entry: &Entry) -> Caps {
    let device = &entry.device;
    let extensions = device.extensions().unwrap_or_default();
    let features: Vec<String> = extensions.split_whitespace().map(str::to_owned).collect();
    let full = CL_FP_FMA | CL_FP_ROUND_TO_NEAREST;
    Caps {
        kind: kind(device),
        vendor: device.vendor().unwrap_or_default().trim().to_owned(),
        driver: format!(
            "{} {} ({})",
            entry.platform,
            device.driver_version().unwrap_or_default(),
            device.version().unwrap_or_default().trim()
        ),
        pci: pci(device),
        compute_units: device.max_compute_units().unwrap_or(0),
        clock_mhz_max: device.max_clock_frequency().ok().filter(|&mhz| mhz > 0),
        memory_bytes: device.global_mem_size().ok(),
        allocation_bytes_max: device.max_mem_alloc_size().ok(),
        alignment_bytes: device.mem_base_addr_align().map_or(0, |bits| bits / 8),
        local_memory_bytes: device.local_mem_size().unwrap_or(0),
        work_group_max: saturate(device.max_work_group_size().unwrap_or(0)),
        wave: wave(device),
        unified_memory: device.host_unified_memory().unwrap_or(false),
        fp16: features.iter().any(|name| name == "cl_khr_fp16"),
        // Doubles must round to nearest and have FMA; a device without doubles reports no flags.
        fp64: device.supports_double(full),
        programs: device.compiler_available().unwrap_or(false),
        gemm: false,
        features,
    }
}

fn saturate(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The lock-step width, if the device reports it without a kernel; otherwise 0.
fn wave(device: &Device) -> u32 {
    let bytes = device.get_data(PREFERRED_MULTIPLE).unwrap_or_default();
    match <[u8; size_of::<usize>()]>::try_from(bytes.as_slice()) {
        Ok(bytes) => saturate(usize::from_ne_bytes(bytes)),
        Err(_) => 0,
    }
}

/// The PCI address, from the portable extension or AMD's.
fn pci(device: &Device) -> Option<PciAddress> {
    let khr = device.get_data(PCI_BUS_INFO_KHR).ok().and_then(|bytes| pci_khr(&bytes));
    khr.or_else(|| device.get_data(TOPOLOGY_AMD).ok().and_then(|bytes| pci_amd(&bytes)))
}

fn pci_khr(bytes: &[u8]) -> Option<PciAddress> {
    let words: [u8; 16] = bytes.try_into().ok()?;
    let word =
        |at: usize| u32::from_ne_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
    Some(PciAddress {
        domain: word(0),
        bus: u8::try_from(word(4)).ok()?,
        device: u8::try_from(word(8)).ok()?,
        function: u8::try_from(word(12)).ok()?,
    })
}

fn pci_amd(bytes: &[u8]) -> Option<PciAddress> {
    let bytes: [u8; 24] = bytes.try_into().ok()?;
    let is_pcie = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) == 1;
    is_pcie.then_some(PciAddress {
        domain: 0,
        bus: bytes[21],
        device: bytes[22],
        function: bytes[23],
    })
}

/// A C string's text.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_of_both_extensions_are_read() {
        let khr: Vec<u8> =
            [1u32, 0x0a, 0x1f, 2].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let expected = PciAddress { domain: 1, bus: 10, device: 31, function: 2 };
        assert_eq!(pci_khr(&khr), Some(expected));
        let mut amd = [0u8; 24];
        amd[..4].copy_from_slice(&1u32.to_ne_bytes());
        amd[21..].copy_from_slice(&[10, 31, 2]);
        assert_eq!(pci_amd(&amd), Some(PciAddress { domain: 0, ..expected }));
        amd[..4].copy_from_slice(&0u32.to_ne_bytes());
        assert_eq!(pci_amd(&amd), None, "not on PCIe");
    }

    #[test]
    fn answers_of_a_wrong_size_are_no_address() {
        assert_eq!(pci_khr(&[0; 15]), None);
        assert_eq!(pci_khr(&[0xff; 16]), None, "bus numbers have eight bits");
        assert_eq!(pci_amd(&[1; 23]), None);
    }
}
