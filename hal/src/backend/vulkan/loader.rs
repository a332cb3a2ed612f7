//! The Vulkan loader, and an instance made through it.

use crate::backend::Missing;
use ash::vk;
use std::sync::OnceLock;

/// The version that this backend is written for; the timeline semaphores came with it.
pub(super) const API: u32 = vk::API_VERSION_1_2;

/// The loader, which stays open for the life of the process: a driver that is unloaded while a
/// thread of its own, or one that used it, ends would crash the process.
static LOADER: OnceLock<ash::Entry> = OnceLock::new();

fn loader() -> Result<&'static ash::Entry, Missing> {
    if let Some(entry) = LOADER.get() {
        return Ok(entry);
    }
    // SAFETY: the loader is a library without initialisers that depend on this program.
    let entry = unsafe { ash::Entry::load() }.map_err(|error| {
        Missing::Library(match error {
            ash::LoadingError::LibraryLoadFailure(_) => {
                "the Vulkan loader (libvulkan.so.1) is not installed".to_owned()
            }
            ash::LoadingError::MissingEntryPoint(_) => {
                "the library loaded for Vulkan is no Vulkan loader".to_owned()
            }
        })
    })?;
    Ok(LOADER.get_or_init(|| entry))
}

/// An instance of Vulkan.
pub(super) struct Instance {
    raw: ash::Instance,
}

impl Instance {
    /// Makes an instance, which loads every installed driver.
    pub(super) fn new() -> Result<Self, Missing> {
        let entry = loader()?;
        // SAFETY: the loader is open.
        let version = unsafe { entry.try_enumerate_instance_version() };
        let version = version.ok().flatten().unwrap_or(vk::API_VERSION_1_0);
        if version < API {
            let (has, needs) = (text(version), text(API));
            return Err(Missing::Library(format!(
                "the Vulkan loader (libvulkan.so.1) has version {has}, expected {needs} at least"
            )));
        }
        let application = vk::ApplicationInfo::default().api_version(API);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live through the call.
        let raw = unsafe { entry.create_instance(&info, None) }.map_err(|error| {
            Missing::Driver(match error {
                vk::Result::ERROR_INCOMPATIBLE_DRIVER => "no Vulkan driver is installed".to_owned(),
                error => format!("Vulkan cannot load its drivers: {error}"),
            })
        })?;
        Ok(Self { raw })
    }
}

impl std::ops::Deref for Instance {
    type Target = ash::Instance;

    fn deref(&self) -> &ash::Instance {
        &self.raw
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: whoever made a device of the instance keeps the instance until the device is
        // destroyed.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// A version as `1.2.131`.
pub(super) fn text(version: u32) -> String {
    let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
    format!("{major}.{minor}.{}", vk::api_version_patch(version))
}
