//! A buffer in the memory of an OpenCL device.

use super::memory::{Memory, Slices};
use super::shared::Shared;
use crate::buffer::{Buffer, range, refuse_unaligned};
use crate::error::{Error, Result};
use opencl3::types::cl_mem;
use std::any::Any;
use std::sync::Arc;

/// OpenCL refuses empty buffers, so an empty buffer gets a few bytes that no command can reach.
const BYTES_MIN: usize = 16;

/// A buffer and its context.
#[derive(Debug)]
pub(super) struct ClBuffer {
    pub(super) shared: Arc<Shared>,
    pub(super) memory: Arc<Memory>,
    place: Place,
    bytes: usize,
}

/// Where a buffer's memory comes from.
#[derive(Debug)]
enum Place {
    /// It is the buffer's own, with the slices of it that were made.
    Own(Slices),
    /// It is a slice: the buffer that owns the memory, and the offset in it.
    Of(Arc<ClBuffer>, usize),
}

impl ClBuffer {
    /// Allocates `bytes` bytes.
    pub(super) fn new(shared: Arc<Shared>, bytes: usize) -> Result<Self> {
        let device = shared.id;
        let limit = shared.caps.allocation_bytes_max;
        if let Some(limit) = limit.filter(|&limit| bytes as u64 > limit) {
            let reason = format!("its largest buffer has {limit} bytes");
            return Err(Error::OutOfMemory { device, bytes, reason });
        }
        let memory = Memory::allocate(&shared, bytes.max(BYTES_MIN))
            .map_err(shared.used("clCreateBuffer", bytes))?;
        let place = Place::Own(Slices::default());
        Ok(Self { shared, memory: Arc::new(memory), place, bytes })
    }

    /// The OpenCL buffer behind `buffer`, if it was made by this opened device.
    pub(super) fn of<'a>(buffer: &'a dyn Buffer, shared: &Arc<Shared>) -> Result<&'a Self> {
        buffer
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "buffer", device: shared.id })
    }

    /// The buffer that owns the memory, and this buffer's offset in it.
    pub(super) fn origin(&self) -> (&Self, usize) {
        match &self.place {
            Place::Own(_) => (self, 0),
            Place::Of(root, offset) => (root, *offset),
        }
    }

    /// The driver's handle.
    pub(super) fn handle(&self) -> cl_mem {
        self.memory.handle()
    }
}

impl Buffer for ClBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn slice(self: Arc<Self>, offset: usize, bytes: usize) -> Result<Arc<dyn Buffer>> {
        range(offset, bytes, self.bytes)?;
        let (root, start) = match &self.place {
            Place::Own(_) => (&self, offset),
            Place::Of(root, start) => (root, start + offset),
        };
        refuse_unaligned(start, self.shared.caps.alignment_bytes as usize)?;
        // Drivers refuse empty slices, so an empty slice takes bytes of the root, unless it is at
        // the root's end.
        let reach = bytes.max(BYTES_MIN).min(root.bytes.max(BYTES_MIN).saturating_sub(start));
        let slices = match &root.place {
            Place::Own(slices) if reach > 0 => slices,
            _ => return Ok(Arc::new(Self::new(Arc::clone(&self.shared), bytes)?)),
        };
        // SAFETY: the range lies in the root's memory, and the root is not a slice.
        let memory = unsafe { slices.get(&root.memory, &self.shared, start, reach) }
            .map_err(self.shared.used("clCreateSubBuffer", bytes))?;
        let (shared, place) = (Arc::clone(&self.shared), Place::Of(Arc::clone(root), start));
        Ok(Arc::new(Self { shared, memory, place, bytes }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::opened;
    use super::*;
    use crate::device::Device;
    use crate::program::{Arg, Launch};

    /// The memory of a slice.
    fn memory(root: &Arc<ClBuffer>, offset: usize, bytes: usize) -> Arc<Memory> {
        let slice = Arc::clone(root).slice(offset, bytes).expect("it is aligned");
        let slice = slice.as_any().downcast_ref::<ClBuffer>().expect("of this backend");
        Arc::clone(&slice.memory)
    }

    #[test]
    fn a_slice_is_made_once_and_ends_with_its_buffer() {
        let Some(device) = opened() else { return };
        let step = device.caps().alignment_bytes as usize;
        let root = ClBuffer::new(Arc::clone(device.shared()), 2 * step).expect("fits");
        let root = Arc::new(root);
        let ids = [(0, step), (step, step), (0, 2 * step), (0, step)]
            .map(|(offset, bytes)| memory(&root, offset, bytes).id);
        assert_eq!(ids[0], ids[3], "the same slice");
        assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2], "{ids:?}");
        let kept = Arc::downgrade(&memory(&root, 0, step));
        let slice = Arc::clone(&root).slice(0, step).expect("it is aligned");
        let whole = Arc::downgrade(&root);
        drop(root);
        assert!(whole.upgrade().is_some(), "a slice keeps its buffer");
        drop(slice);
        assert!(whole.upgrade().is_none() && kept.upgrade().is_none(), "and not itself");
    }

    #[test]
    fn arguments_are_those_of_the_launch_though_memory_is_given_back_and_taken_anew() {
        const SOURCE: &str =
            "KERNEL void put(GLOBAL uint *to, uint value) { to[GLOBAL_ID(0)] = value; }";
        let Some(device) = opened() else { return };
        let program = device.compile(SOURCE, "").expect("compiles");
        let mut queue = device.queue().expect("is there");
        let step = device.caps().alignment_bytes as usize;
        for round in 0..8u32 {
            let root = device.allocate(2 * step).expect("fits");
            for (at, offset) in [(0, 0), (1, step), (2, 0), (3, 0)] {
                let part = Arc::clone(&root).slice(offset, step).expect("it is aligned");
                let (args, value) = (&*part, 10 * round + at);
                let args = [Arg::Buffer(args), Arg::U32(value)];
                let (global, local) = ([1; 3], None);
                let launch =
                    Launch { program: &*program, kernel: "put", global, local, args: &args };
                // SAFETY: the kernel writes the first number of its buffer.
                unsafe { queue.launch(&launch) }.expect("it fits");
                let mut bytes = [0; 4];
                queue.read(&*root, offset, &mut bytes).expect("it is there");
                assert_eq!(u32::from_ne_bytes(bytes), value, "launch {at} of round {round}");
            }
        }
    }
}
