//! The capabilities of a device, from what its driver tells.

use super::name_of;
use super::told::{Features, Told};
use crate::backend::vulkan::types::Kinds;
use crate::caps::{Caps, DeviceKind};
use ash::vk;

/// A cache line: buffers share none, and packed loads never straddle two.
const LINE: u64 = 64;

/// The most bytes of a buffer. SPIR-V takes an index for a signed number, and kernels' indices have 32
/// bits: of a larger buffer the bytes from 2^31 on would have negative ones.
const BUFFER_BYTES_MAX: u64 = i32::MAX as u64;

pub(super) fn caps(told: &Told, features: &Features, kinds: Option<Kinds>, known: Caps) -> Caps {
    let (limits, kind) = (&told.core.limits, kind(told.core.device_type));
    let heap = kinds.map(|it| it.device.heap_bytes);
    let names = features.has(told).into_iter().map(|need| name_of(need).to_owned());
    let floats =
        [(features.float16, "shaderFloat16"), (features.core.shader_float64 != 0, "shaderFloat64")];
    let floats = floats.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.to_owned());
    Caps {
        kind,
        vendor: vendor(told.core.vendor_id),
        compute_units: told.compute_units(kind),
        memory_bytes: heap,
        allocation_bytes_max: Some(buffer_bytes_max(told, heap)),
        alignment_bytes: u32::try_from(alignment(limits)).unwrap_or(u32::MAX),
        local_memory_bytes: u64::from(limits.max_compute_shared_memory_size),
        work_group_max: limits.max_compute_work_group_invocations,
        wave: told.subgroup.subgroup_size,
        unified_memory: matches!(
            told.core.device_type,
            vk::PhysicalDeviceType::INTEGRATED_GPU | vk::PhysicalDeviceType::CPU
        ),
        fp16: features.float16,
        fp64: features.core.shader_float64 != 0,
        programs: true,
        features: names.chain(floats).collect(),
        ..known
    }
}

/// The largest buffer: a multiple of the alignment, to which every block is rounded up.
fn buffer_bytes_max(told: &Told, heap: Option<u64>) -> u64 {
    let sizes = [
        Some(u64::from(told.core.limits.max_storage_buffer_range)),
        Some(told.sizes.max_memory_allocation_size),
        // A driver without the extension leaves 0.
        Some(told.buffers.max_buffer_size).filter(|&bytes| bytes > 0),
        heap,
    ];
    let most = sizes.into_iter().flatten().fold(BUFFER_BYTES_MAX, u64::min);
    most / alignment(&told.core.limits) * alignment(&told.core.limits)
}

/// The alignment of every buffer: what descriptors and fast copies need, a cache line at least.
/// All three are powers of two.
fn alignment(limits: &vk::PhysicalDeviceLimits) -> u64 {
    let needs =
        [limits.min_storage_buffer_offset_alignment, limits.optimal_buffer_copy_offset_alignment];
    needs.into_iter().fold(LINE, u64::max)
}

/// The kind of a device's hardware.
pub(super) fn kind(of: vk::PhysicalDeviceType) -> DeviceKind {
    match of {
        vk::PhysicalDeviceType::DISCRETE_GPU
        | vk::PhysicalDeviceType::INTEGRATED_GPU
        | vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Gpu,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Accelerator,
    }
}

fn vendor(id: u32) -> String {
    match id {
        0x1002 => "AMD".to_owned(),
        0x10de => "NVIDIA".to_owned(),
        0x8086 => "Intel".to_owned(),
        0x1_0005 => "Mesa".to_owned(),
        id => format!("PCI vendor {id:04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_where_descriptors_copies_and_lines_allow() {
        for (descriptors, copies, expected) in [(4, 1, 64), (256, 128, 256), (16, 512, 512)] {
            let limits = vk::PhysicalDeviceLimits {
                min_storage_buffer_offset_alignment: descriptors,
                optimal_buffer_copy_offset_alignment: copies,
                ..Default::default()
            };
            assert_eq!(alignment(&limits), expected);
        }
    }

    #[test]
    fn the_largest_buffer_can_be_rounded_up_and_indexed() {
        for (range, allocation, heap, expected) in [
            (u32::MAX, u64::MAX, None, (1 << 31) - 64),
            (1 << 27, u64::MAX, Some(1 << 33), 1 << 27),
            ((1 << 27) - 1, u64::MAX, None, (1 << 27) - 64),
            (u32::MAX, (1 << 30) + 63, None, 1 << 30),
            (u32::MAX, u64::MAX, Some(1000), 960),
        ] {
            let mut told = Told::default();
            told.core.limits.max_storage_buffer_range = range;
            told.sizes.max_memory_allocation_size = allocation;
            assert_eq!(buffer_bytes_max(&told, heap), expected, "{range} {allocation} {heap:?}");
        }
    }

    #[test]
    fn processors_are_never_taken_for_cards() {
        assert_eq!(kind(vk::PhysicalDeviceType::CPU), DeviceKind::Cpu);
        assert_eq!(kind(vk::PhysicalDeviceType::DISCRETE_GPU), DeviceKind::Gpu);
        assert_eq!(kind(vk::PhysicalDeviceType::OTHER), DeviceKind::Accelerator);
    }
}
