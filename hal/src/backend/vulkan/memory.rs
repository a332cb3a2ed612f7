//! Memory of the device, and of the host for the device. Drivers bear some thousand allocations, so
//! small blocks share segments.

use super::hazards::Access;
use super::ranges::Ranges;
use super::shared::Shared;
use super::types::Kind;
use crate::error::{Error, Result};
use ash::vk;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
struct Chunk {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    /// The host's view of the first byte, if the host can write there.
    start: Option<NonNull<u8>>,
}

// SAFETY: the handles are the driver's, which any thread may use, and the pointer is only a number
// until a block's owner uses it.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Allocates `bytes` bytes.
    fn new(
        shared: &Shared,
        kind: Kind,
        usage: vk::BufferUsageFlags,
        bytes: u64,
    ) -> std::result::Result<Self, vk::Result> {
        let device = &shared.device;
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

    fn destroy(&self, device: &ash::Device) {
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
    grain: u64,
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

    fn segments(&self) -> MutexGuard<'_, Vec<Segment>> {
        // A panic in between loses a range at most.
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A chunk and the place of a block of `bytes` bytes in it; whether the block owns the chunk.
    fn take(
        &self,
        shared: &Shared,
        bytes: u64,
    ) -> std::result::Result<(Chunk, u64, bool), vk::Result> {
        let chunk = |bytes| Chunk::new(shared, self.kind, self.home.usage(), bytes);
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
    fn give(&self, device: &ash::Device, buffer: vk::Buffer, offset: u64, bytes: u64) {
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

/// A part of a chunk, or a whole one. Commands in flight keep their blocks.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) shared: Arc<Shared>,
    home: Home,
    chunk: Chunk,
    is_owner: bool,
    /// The first byte in the driver's buffer.
    offset: u64,
    bytes: u64,
}

impl Block {
    /// Allocates `bytes` bytes, and a few more.
    pub(super) fn new(shared: &Arc<Shared>, home: Home, bytes: usize) -> Result<Arc<Self>> {
        let refuse = |reason: String| Error::OutOfMemory { device: shared.id, bytes, reason };
        let limit = shared.caps.allocation_bytes_max;
        if let Some(limit) = limit.filter(|&limit| bytes as u64 > limit) {
            return Err(refuse(format!("its largest buffer has {limit} bytes")));
        }
        let pool = shared.pool(home);
        let whole = (bytes.max(1) as u64)
            .checked_next_multiple_of(pool.grain)
            .ok_or_else(|| refuse("no device has so many".to_owned()))?;
        let (chunk, offset, is_owner) =
            pool.take(shared, whole).map_err(shared.refused("vkAllocateMemory", bytes))?;
        let shared = Arc::clone(shared);
        Ok(Arc::new(Self { shared, home, chunk, is_owner, offset, bytes: whole }))
    }

    /// The driver's buffer.
    pub(super) fn buffer(&self) -> vk::Buffer {
        self.chunk.buffer
    }

    /// The place of the block's byte `at` in the driver's buffer.
    pub(super) fn place(&self, at: usize) -> u64 {
        self.offset + at as u64
    }

    /// The host's view of the block's first byte, if it has one.
    pub(super) fn start(&self) -> Option<NonNull<u8>> {
        let offset = usize::try_from(self.offset).ok()?;
        // SAFETY: the block lies in the chunk, all of which is mapped.
        Some(unsafe { self.chunk.start?.add(offset) })
    }

    /// The access of a command to `bytes` bytes from `at` on.
    pub(super) fn access(&self, at: usize, bytes: usize, writes: bool) -> Access {
        let start = self.place(at);
        let buffer = ash::vk::Handle::as_raw(self.chunk.buffer);
        Access { buffer, start, end: start + bytes as u64, writes }
    }

    /// The part of the block from `at` on, as a kernel sees it: whole words, and one at least.
    pub(super) fn descriptor(&self, at: usize, bytes: usize) -> vk::DescriptorBufferInfo {
        // Nothing lies behind an end, so an empty part is bound to the block's first bytes.
        let at = if bytes == 0 { 0 } else { at };
        let range = bytes.max(4).next_multiple_of(4) as u64;
        vk::DescriptorBufferInfo { buffer: self.chunk.buffer, offset: self.place(at), range }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.shared.may_free() {
            return;
        }
        match self.is_owner {
            true => self.chunk.destroy(&self.shared.device),
            false => {
                let (pool, device) = (self.shared.pool(self.home), &self.shared.device);
                pool.give(device, self.chunk.buffer, self.offset, self.bytes);
            }
        }
    }
}
