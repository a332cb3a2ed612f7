//! The state that the parts of one opened Vulkan device share.

use super::info::{Entry, Facts};
use super::loader::Instance;
use super::pool::{Home, Pool};
use super::progress::Timelines;
use super::types::Kinds;
use super::{is_loss, is_out_of_memory};
use crate::caps::{Caps, DeviceKind};
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::life::Life;
use ash::vk;
use lgp_portable::Need;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a card may work without finishing a submission. Drivers themselves reset a card after
/// some ten seconds of one submission.
const PATIENCE_CARD: Duration = Duration::from_secs(120);
/// The same of a processor, which needs minutes for what cards do in a second.
const PATIENCE_PROCESSOR: Duration = Duration::from_secs(1200);

/// The common state of the buffers, programs and queues of one opened device.
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) facts: Facts,
    pub(super) kinds: Kinds,
    pub(super) device: ash::Device,
    pub(super) life: Life,
    /// The segments of small buffers in the device's memory, and of small pinned blocks.
    pools: [Pool; 2],
    /// The driver's queues. Queues of this backend share them.
    lanes: Vec<Mutex<vk::Queue>>,
    next_lane: AtomicUsize,
    /// The timelines of the queues.
    pub(super) timelines: Timelines,
    /// How long the device may work without finishing a submission.
    pub(super) patience: Duration,
    /// Set once the device no longer answers. It may still access its memory then, so nothing of it
    /// is destroyed any more.
    is_hung: AtomicBool,
    physical: vk::PhysicalDevice,
    instance: ManuallyDrop<Instance>,
}

impl Shared {
    /// Opens a device.
    pub(super) fn open(id: DeviceId, instance: Instance, entry: Entry) -> Result<Self> {
        let Entry { physical, found, facts, .. } = entry;
        let driver = |call| {
            move |error: vk::Result| Error::Driver { device: id, call, code: format!("{error:?}") }
        };
        let device = connect(&instance, physical, &facts).map_err(driver("vkCreateDevice"))?;
        let lane = |index| {
            // SAFETY: the device was made with so many queues of this family.
            Mutex::new(unsafe { device.get_device_queue(facts.family, index) })
        };
        let lanes = (0..facts.lanes).map(lane).collect();
        let kinds = match kinds_of_buffers(&device, &facts) {
            Ok(kinds) => kinds,
            Err(error) => {
                // SAFETY: nothing was made with the device.
                unsafe { device.destroy_device(None) };
                return Err(driver("vkCreateBuffer")(error));
            }
        };
        let alignment = u64::from(found.caps.alignment_bytes);
        let limit = found.caps.allocation_bytes_max.unwrap_or(u64::MAX);
        let pools = [(Home::Device, kinds.device), (Home::Host, kinds.host)]
            .map(|(home, kind)| Pool::new(home, kind, alignment, limit));
        let patience = match found.caps.kind {
            DeviceKind::Cpu => PATIENCE_PROCESSOR,
            _ => PATIENCE_CARD,
        };
        Ok(Self {
            id,
            patience,
            caps: found.caps,
            facts,
            kinds,
            device,
            life: Life::default(),
            pools,
            lanes,
            next_lane: AtomicUsize::new(0),
            timelines: Timelines::default(),
            is_hung: AtomicBool::new(false),
            physical,
            instance: ManuallyDrop::new(instance),
        })
    }

    /// Hides the device's memory from the host, as a card without resizable BAR does.
    #[cfg(test)]
    pub(super) fn hide_memory(&mut self) {
        let device = &mut self.kinds.device;
        (device.is_mapped, device.is_cached) = (false, false);
        self.pools[0].hide();
    }

    /// The segments of a kind of memory.
    pub(super) fn pool(&self, home: Home) -> &Pool {
        match home {
            Home::Device => &self.pools[0],
            Home::Host => &self.pools[1],
        }
    }

    /// The number of the driver's queue that the next queue of this backend uses.
    pub(super) fn next_lane(&self) -> usize {
        self.next_lane.fetch_add(1, Ordering::Relaxed) % self.lanes.len().max(1)
    }

    /// One of the driver's queues, which one thread at a time may use.
    pub(super) fn lane(&self, at: usize) -> MutexGuard<'_, vk::Queue> {
        // The lock guards a handle, which a panic leaves as it was.
        self.lanes[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Free bytes of the device's memory, as the driver estimates them.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.facts.has_budget.then_some(())?;
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the device has the extension of the chained structure, which lives through the
        // call.
        unsafe {
            self.instance.get_physical_device_memory_properties2(self.physical, &mut memory);
        }
        let heap = usize::try_from(self.kinds.device.heap).ok()?;
        let (most, used) = (budget.heap_budget.get(heap)?, budget.heap_usage.get(heap)?);
        Some(most.saturating_sub(*used))
    }

    /// The maker of program binaries: a driver for a device.
    pub(super) fn maker(&self, name: &str) -> String {
        let mark: String = self.facts.cache_mark.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("vulkan {} {name} {mark}", self.caps.driver)
    }

    /// An error of a driver call.
    pub(super) fn failed(&self, call: &'static str) -> impl Fn(vk::Result) -> Error {
        move |error| {
            let (device, code) = (self.id, format!("{error:?}"));
            match is_loss(error) {
                true => self.life.end(Error::DeviceLost { device, call, code }),
                false => Error::Driver { device, call, code },
            }
        }
    }

    /// The error of a driver call that needs `bytes` bytes of memory.
    pub(super) fn refused(&self, call: &'static str, bytes: usize) -> impl Fn(vk::Result) -> Error {
        let device = self.id;
        move |error| match is_out_of_memory(error) {
            true => Error::OutOfMemory { device, bytes, reason: error.to_string() },
            false => self.failed(call)(error),
        }
    }

    /// The loss of a device that does not answer.
    pub(super) fn hung(&self, call: &'static str) -> Error {
        self.is_hung.store(true, Ordering::Relaxed);
        let code = format!("no submission done within {} s", self.patience.as_secs());
        self.life.end(Error::DeviceLost { device: self.id, call, code })
    }

    /// Whether the driver's objects may be destroyed.
    pub(super) fn may_free(&self) -> bool {
        !self.is_hung.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("id", &self.id)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.may_free() {
            return;
        }
        for pool in &self.pools {
            pool.destroy(&self.device);
        }
        // SAFETY: every object of the device keeps this alive, so all are gone; each queue waited
        // for its commands. The instance is not used again.
        unsafe {
            self.device.destroy_device(None);
            ManuallyDrop::drop(&mut self.instance);
        }
    }
}

/// Makes the driver's device with what kernels may need. `robustBufferAccess` stays off: kernels
/// promise to stay within their buffers, and with it compilers must not join neighbouring loads
/// into wide ones, of which the fast kernels are made.
fn connect(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    facts: &Facts,
) -> std::result::Result<ash::Device, vk::Result> {
    let has = |need| facts.has.contains(&need);
    let core = vk::PhysicalDeviceFeatures::default()
        .shader_int16(has(Need::Int16))
        .shader_int64(has(Need::Int64));
    let mut older = vk::PhysicalDeviceVulkan11Features::default()
        .storage_buffer16_bit_access(has(Need::Storage16));
    let mut newer = vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .storage_buffer8_bit_access(has(Need::Storage8))
        .shader_int8(has(Need::Int8));
    let priorities = vec![1.0; facts.lanes as usize];
    let queues = [vk::DeviceQueueCreateInfo::default()
        .queue_family_index(facts.family)
        .queue_priorities(&priorities)];
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_features(&core)
        .push_next(&mut older)
        .push_next(&mut newer);
    // SAFETY: the device is of the instance and has these features and queues; the structures live
    // through the call.
    unsafe { instance.create_device(physical, &info, None) }
}

/// The kinds of memory that buffers can be in.
fn kinds_of_buffers(device: &ash::Device, facts: &Facts) -> std::result::Result<Kinds, vk::Result> {
    let info = vk::BufferCreateInfo::default().size(64).usage(Home::Device.usage());
    // SAFETY: the buffer is destroyed before the device, and only asked for its requirements.
    let bits = unsafe {
        let buffer = device.create_buffer(&info, None)?;
        let bits = device.get_buffer_memory_requirements(buffer).memory_type_bits;
        device.destroy_buffer(buffer, None);
        bits
    };
    Kinds::choose(&facts.memory, bits).ok_or(vk::Result::ERROR_FEATURE_NOT_PRESENT)
}
