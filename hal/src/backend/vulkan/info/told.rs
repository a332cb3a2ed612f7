//! What a driver tells about a device: its properties, and the features that this backend asks for.

use crate::backend::vulkan::loader::Instance;
use crate::caps::DeviceKind;
use crate::id::PciAddress;
use ash::vk;
use lgp_portable::Need;
use std::ffi::CStr;

/// What a device tells about itself in one call: structures that the driver fills.
#[derive(Default)]
pub(super) struct Told {
    pub(super) core: vk::PhysicalDeviceProperties,
    pub(super) subgroup: vk::PhysicalDeviceSubgroupProperties<'static>,
    pub(super) driver: vk::PhysicalDeviceDriverProperties<'static>,
    pub(super) sizes: vk::PhysicalDeviceMaintenance3Properties<'static>,
    pub(super) floats: vk::PhysicalDeviceFloatControlsProperties<'static>,
    pub(super) buffers: vk::PhysicalDeviceMaintenance4Properties<'static>,
    pci: vk::PhysicalDevicePCIBusInfoPropertiesEXT<'static>,
    amd: vk::PhysicalDeviceShaderCorePropertiesAMD<'static>,
    nvidia: vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV<'static>,
}

impl Told {
    pub(super) fn ask(
        instance: &Instance,
        physical: vk::PhysicalDevice,
        extensions: &[String],
    ) -> Self {
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

    pub(super) fn pci(&self, is_told: bool) -> Option<PciAddress> {
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
    pub(super) fn compute_units(&self, kind: DeviceKind) -> u32 {
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
pub(super) struct Features {
    pub(super) core: vk::PhysicalDeviceFeatures,
    pub(super) storage16: bool,
    pub(super) storage8: bool,
    pub(super) int8: bool,
    pub(super) float16: bool,
    pub(super) timelines: bool,
}

impl Features {
    pub(super) fn ask(instance: &Instance, physical: vk::PhysicalDevice) -> Self {
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
    pub(super) fn has(&self, told: &Told) -> Vec<Need> {
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
