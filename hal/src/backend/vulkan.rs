//! Vulkan 1.2 devices through the host's Vulkan loader, which is loaded at run time. Without the
//! loader the host has no such devices.

mod buffer;
mod device;
mod event;
mod hazards;
mod info;
mod kernel;
mod loader;
mod memory;
mod pace;
mod pieces;
mod pinned;
mod pool;
mod program;
mod progress;
mod queue;
mod quirks;
mod ranges;
mod record;
mod ring;
mod shared;
mod slot;
mod types;

use crate::backend::{Backend, BackendKind, Fault, Found, Missing, Probe};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::portable::{GROUP_MAX, LOCAL_BYTES};
use ash::vk;
use info::Entry;
use loader::Instance;
use std::sync::Arc;

const _: () = assert!(
    GROUP_MAX == lgp_portable::GROUP_ITEMS_MAX as usize
        && LOCAL_BYTES == lgp_portable::LOCAL_BYTES_MAX as u64,
    "the compiler allows what every device does"
);

/// The table entry of Vulkan.
pub(crate) struct Vulkan;

impl Backend for Vulkan {
    fn probe(&self) -> Probe {
        match enumerate() {
            Ok((_, entries)) => {
                let faults = (0u32..).zip(&entries).flat_map(|(ordinal, entry)| {
                    let warnings = entry.facts.quirks.warnings();
                    warnings.map(move |(reason, fix)| Fault { ordinal, reason, fix })
                });
                let faults = faults.collect();
                let found: Vec<Found> = entries.into_iter().map(|entry| entry.found).collect();
                let missing = found.is_empty().then(no_devices);
                Probe { found, missing, faults, ..Probe::default() }
            }
            Err(missing) => Probe { missing: Some(missing), ..Probe::default() },
        }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        let id = DeviceId::new(BackendKind::Vulkan, ordinal);
        let absent = |reason: String| Error::NoDevice { device: id, reason };
        let (instance, mut entries) =
            enumerate().map_err(|missing| absent(missing.reason().to_owned()))?;
        let at = usize::try_from(ordinal).ok().filter(|&at| at < entries.len());
        let entry = at.map(|at| entries.swap_remove(at)).ok_or_else(|| match entries.len() {
            0 => absent(no_devices().reason().to_owned()),
            1 => absent("there is one Vulkan device, vulkan:0".to_owned()),
            count => absent(format!("there are {count} Vulkan devices, counted from vulkan:0")),
        })?;
        match &entry.unfit {
            Some(reason) => Err(absent(reason.clone())),
            None => Ok(Arc::new(device::VkDevice::open(id, instance, entry)?)),
        }
    }
}

/// Why an installed loader shows no device.
fn no_devices() -> Missing {
    Missing::Devices("the Vulkan drivers here show no device".to_owned())
}

/// An instance and all its devices: those that this backend can use first, cards before processors,
/// so that `vulkan:0` is a card if there is one; otherwise the drivers' order is kept.
fn enumerate() -> Result<(Instance, Vec<Entry>), Missing> {
    let instance = Instance::new()?;
    // SAFETY: the instance is alive.
    let devices = unsafe { instance.enumerate_physical_devices() }.map_err(|error| {
        Missing::Driver(match error {
            vk::Result::ERROR_INITIALIZATION_FAILED => "no Vulkan driver starts".to_owned(),
            error => format!("Vulkan cannot list devices: {error}"),
        })
    })?;
    let mut entries: Vec<(u32, Entry)> = devices
        .into_iter()
        .map(|device| (info::rank(&instance, device), info::describe(&instance, device)))
        .collect();
    entries.sort_by_key(|(rank, entry)| (entry.unfit.is_some(), *rank));
    Ok((instance, entries.into_iter().map(|(_, entry)| entry).collect()))
}

/// Whether an error means that the device is lost.
fn is_loss(error: vk::Result) -> bool {
    error == vk::Result::ERROR_DEVICE_LOST
}

/// Whether an error means that memory ran out; a driver counts allocations too.
fn is_out_of_memory(error: vk::Result) -> bool {
    [
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        vk::Result::ERROR_TOO_MANY_OBJECTS,
        vk::Result::ERROR_MEMORY_MAP_FAILED,
    ]
    .contains(&error)
}
