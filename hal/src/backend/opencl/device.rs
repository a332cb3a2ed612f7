//! An opened OpenCL device.

use super::buffer::ClBuffer;
use super::program::ClProgram;
use super::queue::ClQueue;
use super::{Entry, driver, info, pinned};
use crate::backend::Found;
use crate::buffer::Buffer;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::Result;
use crate::id::DeviceId;
use crate::pinned::Pinned;
use crate::program::Program;
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes, arithmetic_by_program};
use opencl3::command_queue::CL_QUEUE_PROFILING_ENABLE;
use opencl3::context::Context;
use std::sync::Arc;

/// What buffers, programs and queues of one opened device have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) id: DeviceId,
    pub(super) caps: Caps,
    pub(super) device: opencl3::device::Device,
    pub(super) context: Context,
}

/// An OpenCL device with a context of its own.
#[derive(Debug)]
pub(super) struct ClDevice {
    name: String,
    shared: Arc<Shared>,
}

impl ClDevice {
    /// Makes a context on the device.
    pub(super) fn open(id: DeviceId, entry: &Entry) -> Result<Self> {
        let context = Context::from_device(&entry.device).map_err(driver(id, "clCreateContext"))?;
        let Found { name, mut caps } = info::describe(entry);
        let device = entry.device;
        let mut shared = Shared { id, caps: caps.clone(), device, context };
        if caps.programs && caps.wave == 0 {
            caps.wave = wave_of_a_kernel(&shared);
            shared.caps = caps;
        }
        Ok(Self { name, shared: Arc::new(shared) })
    }
}

/// The lock-step width as devices before OpenCL 3.0 tell it: of a kernel. 0 where even that
/// fails, which is the self-test's business.
fn wave_of_a_kernel(shared: &Shared) -> u32 {
    const SOURCE: &str = "__kernel void probe(__global int *out) { out[get_global_id(0)] = 1; }";
    let build = || {
        let program =
            opencl3::program::Program::create_and_build_from_source(&shared.context, SOURCE, "")
                .ok()?;
        let kernel = opencl3::kernel::Kernel::create(&program, "probe").ok()?;
        kernel.get_work_group_size_multiple(shared.device.id()).ok()
    };
    build().and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
}

impl Device for ClDevice {
    fn id(&self) -> DeviceId {
        self.shared.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        Ok(Arc::new(ClBuffer::new(Arc::clone(&self.shared), bytes)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(ClQueue::new(Arc::clone(&self.shared), 0)?))
    }

    fn timed_queue(&self) -> Result<Box<dyn Queue>> {
        Ok(Box::new(ClQueue::new(Arc::clone(&self.shared), CL_QUEUE_PROFILING_ENABLE)?))
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        pinned::new(&self.shared, bytes)
    }

    fn compile(&self, source: &str, options: &str) -> Result<Arc<dyn Program>> {
        Ok(Arc::new(ClProgram::build(Arc::clone(&self.shared), source, options)?))
    }

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        arithmetic_by_program(self, operands)
    }
}
