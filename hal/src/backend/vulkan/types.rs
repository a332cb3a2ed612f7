//! Which of a device's kinds of memory holds what: the pure part.

use ash::vk;
use ash::vk::MemoryPropertyFlags as Flags;

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its index among the driver's types.
    pub(super) index: u32,
    /// Its heap.
    pub(super) heap: u32,
    pub(super) heap_bytes: u64,
    /// Whether the host can write to it.
    pub(super) is_mapped: bool,
    /// Whether the host reads it at full speed.
    pub(super) is_cached: bool,
}

/// The memory of buffers, and that of the host which the device reaches too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) device: Kind,
    pub(super) host: Kind,
}

impl Kinds {
    /// Chooses among the types whose bits are set in `bits`; `None` if the driver has none, which
    /// breaks Vulkan's promises.
    pub(super) fn choose(memory: &vk::PhysicalDeviceMemoryProperties, bits: u32) -> Option<Self> {
        let kinds = (0u32..).zip(memory.memory_types_as_slice()).filter_map(|(index, it)| {
            let heap = memory.memory_heaps_as_slice().get(it.heap_index as usize)?;
            // Drivers keep such types for special purposes.
            let special = Flags::LAZILY_ALLOCATED | Flags::PROTECTED | Flags::DEVICE_UNCACHED_AMD;
            let usable = bits >> index & 1 == 1 && !it.property_flags.intersects(special);
            let is_mapped = it.property_flags.contains(Flags::HOST_VISIBLE | Flags::HOST_COHERENT);
            let is_cached = is_mapped && it.property_flags.contains(Flags::HOST_CACHED);
            let (heap, heap_bytes) = (it.heap_index, heap.size);
            let kind = Kind { index, heap, heap_bytes, is_mapped, is_cached };
            usable.then_some((kind, it.property_flags.contains(Flags::DEVICE_LOCAL)))
        });
        let kinds: Vec<(Kind, bool)> = kinds.collect();
        // Of equal kinds the first is the driver's choice, but `max_by_key` takes the last.
        let best = |rank: &dyn Fn(&(Kind, bool)) -> (bool, u64, bool, bool)| {
            kinds.iter().rev().max_by_key(|it| rank(it)).map(|(kind, _)| *kind)
        };
        // The largest heap of the device; there the host's view of it, if it has one. Without
        // resizable BAR the host sees a small heap only.
        let device =
            best(&|(kind, local)| (*local, kind.heap_bytes, kind.is_mapped, kind.is_cached))?;
        let host = best(&|(kind, local)| (kind.is_mapped, 0, kind.is_cached, !local))?;
        host.is_mapped.then_some(Self { device, host })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Flags = Flags::DEVICE_LOCAL;
    const SEEN: Flags =
        Flags::from_raw(Flags::HOST_VISIBLE.as_raw() | Flags::HOST_COHERENT.as_raw());
    const CACHED: Flags = Flags::from_raw(SEEN.as_raw() | Flags::HOST_CACHED.as_raw());
    const NONE: Flags = Flags::empty();

    /// The properties of a device with these heaps in MiB, and types by flags and heap.
    fn memory(heaps: &[u64], types: &[(Flags, u32)]) -> vk::PhysicalDeviceMemoryProperties {
        let mut memory = vk::PhysicalDeviceMemoryProperties::default();
        for (to, mib) in memory.memory_heaps.iter_mut().zip(heaps) {
            to.size = mib << 20;
        }
        for (to, (flags, heap)) in memory.memory_types.iter_mut().zip(types) {
            (to.property_flags, to.heap_index) = (*flags, *heap);
        }
        memory.memory_heap_count = heaps.len() as u32;
        memory.memory_type_count = types.len() as u32;
        memory
    }

    #[test]
    fn each_kind_of_card_gets_its_kinds_of_memory() {
        let small_bar =
            memory(&[7936, 16384, 256], &[(LOCAL, 0), (SEEN, 1), (LOCAL | SEEN, 2), (CACHED, 1)]);
        let large_bar =
            memory(&[8192, 16384], &[(LOCAL, 0), (SEEN, 1), (LOCAL | SEEN, 0), (CACHED, 1)]);
        let processor = memory(&[8192], &[(LOCAL | CACHED, 0)]);
        let integrated =
            memory(&[1024, 8192], &[(LOCAL, 1), (LOCAL | SEEN, 1), (LOCAL | CACHED, 1), (SEEN, 0)]);
        let nvidia = memory(
            &[8192, 16384, 246],
            &[(NONE, 1), (LOCAL, 0), (SEEN, 1), (CACHED, 1), (LOCAL | SEEN, 2)],
        );
        for (name, memory, device, host, mapped, cached) in [
            ("RADV without resizable BAR", &small_bar, 0, 3, false, false),
            ("RADV with resizable BAR", &large_bar, 2, 3, true, false),
            ("lavapipe", &processor, 0, 0, true, true),
            ("an integrated part", &integrated, 2, 2, true, true),
            ("NVIDIA without resizable BAR", &nvidia, 1, 3, false, false),
        ] {
            let kinds = Kinds::choose(memory, u32::MAX).expect(name);
            assert_eq!((kinds.device.index, kinds.host.index), (device, host), "{name}");
            let seen = (kinds.device.is_mapped, kinds.device.is_cached);
            assert_eq!(seen, (mapped, cached), "{name}");
        }
        let kinds = Kinds::choose(&large_bar, 0b1011).expect("is left");
        assert_eq!((kinds.device.index, kinds.host.index), (0, 3), "types that buffers cannot use");
        assert_eq!(Kinds::choose(&large_bar, 0b0001), None, "no memory of the host");
        assert_eq!(Kinds::choose(&memory(&[], &[]), u32::MAX), None);
    }
}
