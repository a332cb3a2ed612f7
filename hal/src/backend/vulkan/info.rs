//! Name and capabilities of a Vulkan device, as its driver reports them.

use super::loader::{API, Instance, text};
use super::quirks::Quirks;
use super::types::Kinds;
use crate::backend::Found;
use crate::caps::{Caps, DeviceKind};
use crate::id::PciAddress;
use ash::vk;
use lgp_portable::Need;
use std::ffi::{CStr, c_char};

/// A cache line: buffers share none, and packed loads never straddle two.
const LINE: u64 = 64;

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

/// What a device tells about itself in one call: structures that the driver fills.
#[derive(Default)]
struct Told {
    core: vk::PhysicalDeviceProperties,
    subgroup: vk::PhysicalDeviceSubgroupProperties<'static>,
    driver: vk::PhysicalDeviceDriverProperties<'static>,
    sizes: vk::PhysicalDeviceMaintenance3Properties<'static>,
    floats: vk::PhysicalDeviceFloatControlsProperties<'static>,
    buffers: vk::PhysicalDeviceMaintenance4Properties<'static>,
    pci: vk::PhysicalDevicePCIBusInfoPropertiesEXT<'static>,
    amd: vk::PhysicalDeviceShaderCorePropertiesAMD<'static>,
    nvidia: vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV<'static>,
}

impl Told {
    fn ask(instance: &Instance, physical: vk::PhysicalDevice, extensions: &[String]) -> Self {
        let has = |name: &CStr| extensions.iter().any(|it| it.as_bytes() == name.to_bytes());
        let mut told = Self::default();
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut told.subgroup)
            .push_next(&mut told.driver)
            .push_next(&mut told.sizes)
            .push_next(&mut told.floats);
        if has(ash::khr::maintenance4::NAME) {
            properties = properties.push_next(&mut told.buffers);
        }
        if has(ash::ext::pci_bus_info::NAME) {
            properties = properties.push_next(&mut told.pci);
        }
        if has(ash::amd::shader_core_properties::NAME) {
            properties = properties.push_next(&mut told.amd);
        }
        if has(ash::nv::shader_sm_builtins::NAME) {
            properties = properties.push_next(&mut told.nvidia);
        }
        // SAFETY: the device is of the instance; the structures are of Vulkan 1.2 or of extensions
        // that the device has, and live through the call.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        told.core = properties.properties;
        // The driver's answers point at no other structure from here on.
        told.unlinked()
    }

    /// The same without the pointers that chained the structures.
    fn unlinked(mut self) -> Self {
        self.subgroup.p_next = std::ptr::null_mut();
        self.driver.p_next = std::ptr::null_mut();
        self.sizes.p_next = std::ptr::null_mut();
        self.floats.p_next = std::ptr::null_mut();
        self.buffers.p_next = std::ptr::null_mut();
        self.pci.p_next = std::ptr::null_mut();
        self.amd.p_next = std::ptr::null_mut();
        self.nvidia.p_next = std::ptr::null_mut();
        self
    }

    fn pci(&self, is_told: bool) -> Option<PciAddress> {
        let byte = |value: u32| u8::try_from(value).ok();
        is_told.then_some(())?;
        Some(PciAddress {
            domain: self.pci.pci_domain,
            bus: byte(self.pci.pci_bus)?,
            device: byte(self.pci.pci_device)?,
            function: byte(self.pci.pci_function)?,
        })
    }

    /// Cores or compute units, as far as the vendor's extension tells them.
    fn compute_units(&self, kind: DeviceKind) -> u32 {
        let amd = [
            self.amd.shader_engine_count,
            self.amd.shader_arrays_per_engine_count,
            self.amd.compute_units_per_shader_array,
        ];
        let of_host = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        match (amd.into_iter().product::<u32>(), self.nvidia.shader_sm_count) {
            (0, 0) if kind == DeviceKind::Cpu => u32::try_from(of_host()).unwrap_or(1),
            (0, 0) => 0,
            (amd, nvidia) => amd.max(nvidia),
        }
    }
}

/// The features of a device that this backend asks for.
#[derive(Default)]
struct Features {
    core: vk::PhysicalDeviceFeatures,
    storage16: bool,
    storage8: bool,
    int8: bool,
    float16: bool,
    timelines: bool,
}

impl Features {
    fn ask(instance: &Instance, physical: vk::PhysicalDevice) -> Self {
        let mut older = vk::PhysicalDeviceVulkan11Features::default();
        let mut newer = vk::PhysicalDeviceVulkan12Features::default();
        let mut features =
            vk::PhysicalDeviceFeatures2::default().push_next(&mut older).push_next(&mut newer);
        // SAFETY: the device is of the instance and has Vulkan 1.2; the structures live through
        // the call.
        unsafe { instance.get_physical_device_features2(physical, &mut features) };
        let core = features.features;
        Self {
            core,
            storage16: older.storage_buffer16_bit_access != 0,
            storage8: newer.storage_buffer8_bit_access != 0,
            int8: newer.shader_int8 != 0,
            float16: newer.shader_float16 != 0,
            timelines: newer.timeline_semaphore != 0,
        }
    }

    /// What kernels may need and the device has.
    fn has(&self, told: &Told) -> Vec<Need> {
        let keeps_zeros = told.floats.shader_signed_zero_inf_nan_preserve_float32 != 0;
        let all = [
            (keeps_zeros, Need::FloatControls),
            (self.storage8, Need::Storage8),
            (self.storage16, Need::Storage16),
            (self.int8, Need::Int8),
            (self.core.shader_int16 != 0, Need::Int16),
            (self.core.shader_int64 != 0, Need::Int64),
        ];
        all.into_iter().filter_map(|(has, need)| has.then_some(need)).collect()
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
    let unfit = if !features.timelines {
        Some("its driver has no timeline semaphores, which came with Vulkan 1.2")
    } else if family.is_none() {
        Some("it has no queue that computes")
    } else if kinds.is_none() {
        Some("its driver shows no memory that the host can write to")
    } else {
        None
    };
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

fn caps(told: &Told, features: &Features, kinds: Option<Kinds>, known: Caps) -> Caps {
    let (limits, kind) = (&told.core.limits, kind(told.core.device_type));
    let heap = kinds.map(|it| it.device.heap_bytes);
    let sizes = [
        Some(u64::from(limits.max_storage_buffer_range)),
        Some(told.sizes.max_memory_allocation_size),
        // A driver without the extension leaves 0.
        Some(told.buffers.max_buffer_size).filter(|&bytes| bytes > 0),
        heap,
    ];
    let names = features.has(told).into_iter().map(|need| name_of(need).to_owned());
    let floats =
        [(features.float16, "shaderFloat16"), (features.core.shader_float64 != 0, "shaderFloat64")];
    let floats = floats.into_iter().filter_map(|(has, name)| has.then(|| name.to_owned()));
    Caps {
        kind,
        vendor: vendor(told.core.vendor_id),
        compute_units: told.compute_units(kind),
        memory_bytes: heap,
        allocation_bytes_max: sizes.into_iter().flatten().min(),
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

/// The alignment of every buffer: what descriptors and fast copies need, a cache line at least.
/// All three are powers of two.
fn alignment(limits: &vk::PhysicalDeviceLimits) -> u64 {
    let needs =
        [limits.min_storage_buffer_offset_alignment, limits.optimal_buffer_copy_offset_alignment];
    needs.into_iter().fold(LINE, u64::max)
}

/// The kind of a device's hardware.
fn kind(of: vk::PhysicalDeviceType) -> DeviceKind {
    match of {
        vk::PhysicalDeviceType::DISCRETE_GPU
        | vk::PhysicalDeviceType::INTEGRATED_GPU
        | vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Gpu,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Accelerator,
    }
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
    fn processors_are_never_taken_for_cards() {
        assert_eq!(kind(vk::PhysicalDeviceType::CPU), DeviceKind::Cpu);
        assert_eq!(kind(vk::PhysicalDeviceType::DISCRETE_GPU), DeviceKind::Gpu);
        assert_eq!(kind(vk::PhysicalDeviceType::OTHER), DeviceKind::Accelerator);
    }
}
