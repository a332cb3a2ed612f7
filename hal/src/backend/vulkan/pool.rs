//! The driver's memory, of which drivers bear some thousand allocations: small blocks share segments.

use super::ranges::Ranges;
use super::types::Kind;
use ash::vk;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// The memory of buffers.
    Device,
    /// Memory of the host that the device accesses.
    Host,
}

impl Home {
    /// The uses of the driver's buffers.
    pub(super) fn usage(self) -> vk::BufferUsageFlags {
        let moves = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        match self {
            Self::Device => moves | vk::BufferUsageFlags::STORAGE_BUFFER,
            Self::Host => moves,
        }
    }

    /// The size of a segment; host memory is scarce, because it is taken from all programs.
    fn segment_bytes(self) -> u64 {
        match self {
            Self::Device => 64 << 20,
            Self::Host => 8 << 20,
        }
    }
}

/// A buffer of the driver with its memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    pub(super) buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    /// The host's view of the first byte, if the host can write there.
    pub(super) start: Option<NonNull<u8>>,
}

// SAFETY: the handles are the driver's, which any thread may use, and the pointer is only a number
// until a block's owner uses it.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Allocates `bytes` bytes.
    fn new(
        device: &ash::Device,
        kind: Kind,
        usage: vk::BufferUsageFlags,
        bytes: u64,
    ) -> std::result::Result<Self, vk::Result> {
        let info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        // SAFETY: the structure lives through the call.
        let buffer = unsafe { device.create_buffer(&info, None) }?;
        // SAFETY: the buffer is of the device.
        let needs = unsafe { device.get_buffer_memory_requirements(buffer) };
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(kind.index);
        // SAFETY: the structure lives through the call; the driver has the type.
        let memory = unsafe { device.allocate_memory(&info, None) }.inspect_err(|_| {
            // SAFETY: the buffer was just made and is not used.
            unsafe { device.destroy_buffer(buffer, None) };
        })?;
        let chunk = Self { buffer, memory, start: None };
        chunk.place(device, kind).inspect_err(|_| chunk.destroy(device))
    }

    /// Gives the buffer its memory, and the host its view.
    fn place(mut self, device: &ash::Device, kind: Kind) -> std::result::Result<Self, vk::Result> {
        // SAFETY: the memory was allocated with the size that the buffer needs, of a type that it
        // can be in, and nothing else uses it.
        unsafe { device.bind_buffer_memory(self.buffer, self.memory, 0) }?;
        if kind.is_mapped {
            let whole = vk::WHOLE_SIZE;
            // SAFETY: the host can see the type, and the memory is mapped once.
            let start =
                unsafe { device.map_memory(self.memory, 0, whole, vk::MemoryMapFlags::empty()) }?;
            let start = NonNull::new(start.cast()).ok_or(vk::Result::ERROR_MEMORY_MAP_FAILED)?;
            self.start = Some(start);
        }
        Ok(self)
    }

    pub(super) fn destroy(&self, device: &ash::Device) {
        // SAFETY: the owner no longer uses the chunk, and no command does. Freeing unmaps.
        unsafe {
            device.destroy_buffer(self.buffer, None);
            device.free_memory(self.memory, None);
        }
    }
}

/// A chunk that small blocks share.
#[derive(Debug)]
struct Segment {
    chunk: Chunk,
    ranges: Ranges,
}

/// The segments of one kind of memory.
#[derive(Debug)]
pub(super) struct Pool {
    home: Home,
    kind: Kind,
    /// Every block begins at a multiple, and has a multiple of bytes.
    pub(super) grain: u64,
    segment_bytes: u64,
    segments: Mutex<Vec<Segment>>,
}

impl Pool {
    /// No segments of memory of this kind, of which a chunk has at most `limit` bytes.
    pub(super) fn new(home: Home, kind: Kind, grain: u64, limit: u64) -> Self {
        // A small memory is not taken by one segment.
        let most = limit.min(kind.heap_bytes / 16);
        let segment_bytes = home.segment_bytes().min(most) / grain * grain;
        Self { home, kind, grain, segment_bytes, segments: Mutex::new(Vec::new()) }
    }

    /// Hides the segments to come from the host.
    #[cfg(test)]
    pub(super) fn hide(&mut self) {
        self.kind.is_mapped = false;
    }

    fn segments(&self) -> MutexGuard<'_, Vec<Segment>> {
        // A panic in between loses a range at most.
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A chunk and the place of a block of `bytes` bytes in it; whether the block owns the chunk.
    pub(super) fn take(
        &self,
        device: &ash::Device,
        bytes: u64,
    ) -> std::result::Result<(Chunk, u64, bool), vk::Result> {
        let chunk = |bytes| Chunk::new(device, self.kind, self.home.usage(), bytes);
        if bytes > self.segment_bytes / 8 {
            return Ok((chunk(bytes)?, 0, true));
        }
        let mut segments = self.segments();
        let found = segments.iter_mut().find_map(|it| Some((it.chunk, it.ranges.take(bytes)?)));
        if let Some((chunk, offset)) = found {
            return Ok((chunk, offset, false));
        }
        // Where no whole segment is left a block may still be.
        let Ok(whole) = chunk(self.segment_bytes) else {
            return Ok((chunk(bytes)?, 0, true));
        };
        let mut segment = Segment { chunk: whole, ranges: Ranges::new(self.segment_bytes) };
        let offset = segment.ranges.take(bytes).unwrap_or_default();
        segments.push(segment);
        Ok((whole, offset, false))
    }

    /// Gives a block's place back. One unused segment is kept for the next blocks.
    pub(super) fn give(&self, device: &ash::Device, buffer: vk::Buffer, offset: u64, bytes: u64) {
        let mut segments = self.segments();
        if let Some(own) = segments.iter_mut().find(|it| it.chunk.buffer == buffer) {
            own.ranges.give(offset, bytes);
        }
        let unused: Vec<usize> =
            (0..segments.len()).filter(|at| segments[*at].ranges.is_unused()).collect();
        if let [_, more @ ..] = unused.as_slice() {
            for at in more.iter().rev() {
                segments.swap_remove(*at).chunk.destroy(device);
            }
        }
    }

    /// Destroys the segments, of which no block is left.
    pub(super) fn destroy(&self, device: &ash::Device) {
        self.segments().drain(..).for_each(|segment| segment.chunk.destroy(device));
    }
}
