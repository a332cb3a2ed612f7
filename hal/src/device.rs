//! The device: the root from which buffers, programs and queues come.

use crate::blas::Blas;
use crate::buffer::Buffer;
use crate::caps::Caps;
use crate::error::Result;
use crate::id::DeviceId;
use crate::pinned::Pinned;
use crate::program::Program;
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes};
use std::fmt::Debug;
use std::sync::Arc;

/// An opened device. Buffers, programs and queues keep the parts that they need alive, so they may
/// outlive the handle.
pub trait Device: Debug + Send + Sync {
    /// The device's name in settings and messages.
    fn id(&self) -> DeviceId;

    /// The device's name for people.
    fn name(&self) -> &str;

    /// The device's capabilities.
    fn caps(&self) -> &Caps;

    /// Free bytes of the device's memory, if the driver or the system reports them.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Allocates `bytes` bytes of the device's memory; their content is undefined. Zero bytes
    /// are allowed.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>>;

    /// Makes a new queue. Queues of one device run independently of each other.
    ///
    /// # Errors
    /// When the driver refuses.
    fn queue(&self) -> Result<Box<dyn Queue>>;

    /// Makes a queue whose events record the device's time ([`crate::Event::since`]), which costs
    /// speed with some drivers.
    ///
    /// # Errors
    /// When the driver refuses.
    fn timed_queue(&self) -> Result<Box<dyn Queue>> {
        self.queue()
    }

    /// The vendor's library of linear algebra; `None` without one, as [`Caps::gemm`] reports.
    fn blas(&self) -> Option<Arc<dyn Blas>> {
        None
    }

    /// Allocates `bytes` bytes of host memory that the device accesses directly, for
    /// [`Queue::write_async`] and [`Queue::read_async`]. Pinned memory is taken from all programs
    /// of the host: reuse a few blocks instead of making one for each tensor.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn pinned(&self, bytes: usize) -> Result<Pinned>;

    /// Compiles `source`, which is written in the portable language of kernels
    /// ([`crate::prelude`]), with compiler `options` (`-D NAME=VALUE …`).
    ///
    /// # Errors
    /// [`crate::Error::Compile`] with the compiler's messages, [`crate::Error::Unsupported`] on a
    /// device without programs.
    fn compile(&self, source: &str, options: &str) -> Result<Arc<dyn Program>>;

    /// Loads a program that was compiled earlier, also by another process, instead of compiling its
    /// source again.
    ///
    /// # Safety
    /// The bytes must come from [`Program::binary`], because drivers execute them unchecked.
    /// Accidental damage is detected and refused, as is a binary of another device or driver; a
    /// forgery is not.
    ///
    /// # Errors
    /// [`crate::Error::Binary`], after which the source must be compiled;
    /// [`crate::Error::Unsupported`] on a device without programs.
    unsafe fn load(&self, binary: &[u8]) -> Result<Arc<dyn Program>>;

    /// Calculates the self-test's operations with the device's own arithmetic. A device without
    /// arithmetic returns no outcomes.
    ///
    /// # Errors
    /// When the device fails to calculate.
    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes>;
}
