//! Name and capabilities of a Vulkan device, as its driver reports them.

mod caps;
mod told;

use super::loader::{API, Instance, text};
use super::quirks::Quirks;
use super::types::Kinds;
use crate::backend::Found;
use crate::caps::Caps;
use ash::vk;
use caps::{caps, kind};
use lgp_portable::Need;
use std::ffi::{CStr, c_char};
use told::{Features, Told};

/// Queues of the driver that one opened device uses; more would not run side by side.
const LANES_MAX: u32 = 4;

/// One device of one driver.
pub(super) struct Entry {
    pub(super) physical: vk::PhysicalDevice,
    pub(super) found: Found,
    pub(super) facts: Facts,
    /// Why this backend cannot use the device.
    pub(super) unfit: Option<String>,
}

/// What the parts of an opened device need to know about it, beyond its capabilities.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// The family of the queues that compute.
    pub(super) family: u32,
    /// The number of queues to use.
    pub(super) lanes: u32,
    /// The valid bits of a time stamp; 0 if the device records no time.
    pub(super) stamp_bits: u32,
    /// Nanoseconds of a time stamp's unit.
    pub(super) stamp_ns: f32,
    pub(super) limits: vk::PhysicalDeviceLimits,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    /// Whether the driver tells how much memory is free.
    pub(super) has_budget: bool,
    /// What kernels may need and the device has.
    pub(super) has: Vec<Need>,
    /// The driver's mark of the pipelines that it can load again.
    pub(super) cache_mark: [u8; vk::UUID_SIZE],
    pub(super) quirks: Quirks,
}

/// The name of a need in Vulkan, for people.
pub(super) fn name_of(need: Need) -> &'static str {
    match need {
        Need::Storage8 => "storageBuffer8BitAccess",
        Need::Storage16 => "storageBuffer16BitAccess",
        Need::Int8 => "shaderInt8",
        Need::Int16 => "shaderInt16",
        Need::Int64 => "shaderInt64",
        Need::FloatControls => "shaderSignedZeroInfNanPreserveFloat32",
    }
}

/// Describes one device.
pub(super) fn describe(instance: &Instance, physical: vk::PhysicalDevice) -> Entry {
    // SAFETY: the device is of the instance.
    let core = unsafe { instance.get_physical_device_properties(physical) };
    if core.api_version < API {
        let (has, needs) = (text(core.api_version), text(API));
        let reason = format!("its driver has Vulkan {has}, expected {needs} at least");
        let caps = Caps { kind: kind(core.device_type), ..Caps::default() };
        let found = Found { name: name(&core.device_name), caps };
        return Entry { physical, found, facts: Facts::default(), unfit: Some(reason) };
    }
    let extensions = extensions(instance, physical);
    let told = Told::ask(instance, physical, &extensions);
    let features = Features::ask(instance, physical);
    // SAFETY: the device is of the instance.
    let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
    let family = family(instance, physical);
    let kinds = Kinds::choose(&memory, u32::MAX);
    let unfit = unfit(&told, &features, family.is_some(), kinds.is_some());
    let has = |name: &CStr| extensions.iter().any(|it| it.as_bytes() == name.to_bytes());
    let (index, lanes, stamp_bits) = family.unwrap_or_default();
    let driver = name(&told.driver.driver_name);
    let details = name(&told.driver.driver_info);
    let facts = Facts {
        family: index,
        lanes: lanes.min(LANES_MAX),
        stamp_bits,
        stamp_ns: core.limits.timestamp_period,
        limits: core.limits,
        memory,
        has_budget: has(ash::ext::memory_budget::NAME),
        has: features.has(&told),
        cache_mark: core.pipeline_cache_uuid,
        quirks: Quirks::of(&driver, &details),
    };
    let pci = told.pci(has(ash::ext::pci_bus_info::NAME));
    let driver = format!("{driver} {details} (Vulkan {})", text(core.api_version));
    let caps = caps(&told, &features, kinds, Caps { driver, pci, ..Caps::default() });
    let found = Found { name: name(&core.device_name), caps };
    Entry { physical, found, facts, unfit: unfit.map(str::to_owned) }
}

/// Why this backend cannot use a device, from what its driver tells.
fn unfit(
    told: &Told,
    features: &Features,
    computes: bool,
    has_memory: bool,
) -> Option<&'static str> {
    let reasons = [
        (features.timelines, "its driver has no timeline semaphores, which came with Vulkan 1.2"),
        (
            // Every kernel asks for it.
            features.has(told).contains(&Need::FloatControls),
            "its driver does not keep the infinities, NaNs and signs of zeros of 32-bit floats \
             (shaderSignedZeroInfNanPreserveFloat32)",
        ),
        (computes, "it has no queue that computes"),
        (has_memory, "its driver shows no memory that the host can write to"),
    ];
    reasons.into_iter().find(|(fits, _)| !fits).map(|(_, reason)| reason)
}

/// The place of a device among others: cards, then parts of processors, then processors.
pub(super) fn rank(instance: &Instance, physical: vk::PhysicalDevice) -> u32 {
    // SAFETY: the device is of the instance.
    match unsafe { instance.get_physical_device_properties(physical) }.device_type {
        vk::PhysicalDeviceType::DISCRETE_GPU => 0,
        vk::PhysicalDeviceType::INTEGRATED_GPU => 1,
        vk::PhysicalDeviceType::VIRTUAL_GPU => 2,
        vk::PhysicalDeviceType::CPU => 4,
        _ => 3,
    }
}

/// The family of queues that compute: index, queues, bits of time stamps. One without graphics, as
/// far as there is one, does not hold up the desktop.
fn family(instance: &Instance, physical: vk::PhysicalDevice) -> Option<(u32, u32, u32)> {
    // SAFETY: the device is of the instance.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let mut computing: Vec<_> = (0u32..)
        .zip(&families)
        .filter(|(_, it)| it.queue_flags.contains(vk::QueueFlags::COMPUTE) && it.queue_count > 0)
        .collect();
    computing.sort_by_key(|(_, it)| it.queue_flags.contains(vk::QueueFlags::GRAPHICS));
    let (index, family) = computing.first()?;
    Some((*index, family.queue_count, family.timestamp_valid_bits))
}

/// The names of a device's extensions; none if the driver cannot tell them.
fn extensions(instance: &Instance, physical: vk::PhysicalDevice) -> Vec<String> {
    // SAFETY: the device is of the instance.
    let all = unsafe { instance.enumerate_device_extension_properties(physical) };
    all.unwrap_or_default().iter().map(|it| name(&it.extension_name)).collect()
}

/// The text of an array that a driver filled.
fn name(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|c| c.to_ne_bytes()[0]).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_their_zero_or_with_the_array() {
        let chars = |text: &[u8]| -> Vec<c_char> {
            text.iter().map(|byte| c_char::from_ne_bytes([*byte])).collect()
        };
        for (bytes, expected) in
            [(&b"radv\0rest"[..], "radv"), (b"full", "full"), (b"\0", ""), (b"", "")]
        {
            assert_eq!(name(&chars(bytes)), expected);
        }
    }

    /// What a driver of a device that fits tells.
    fn fitting() -> (Told, Features) {
        let mut told = Told::default();
        told.floats.shader_signed_zero_inf_nan_preserve_float32 = vk::TRUE;
        (told, Features { timelines: true, ..Features::default() })
    }

    #[test]
    fn a_device_that_runs_no_kernel_is_unfit() {
        let (told, features) = fitting();
        assert_eq!(unfit(&told, &features, true, true), None);
        for (told, features, computes, has_memory, expected) in [
            (Told::default(), &features, true, true, "SignedZeroInfNanPreserveFloat32"),
            (fitting().0, &Features::default(), true, true, "timeline"),
            (fitting().0, &features, false, true, "no queue"),
            (fitting().0, &features, true, false, "no memory"),
        ] {
            let reason = unfit(&told, features, computes, has_memory).expect(expected);
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
