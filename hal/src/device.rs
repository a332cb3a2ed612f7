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

/// An opened device. Buffers, programs and queues keep what they need of it alive, so they may
/// outlive the handle.
pub trait Device: Debug + Send + Sync {
    /// The device's name in settings and messages.
    fn id(&self) -> DeviceId;

    /// The device's name for people.
    fn name(&self) -> &str;

    /// What the device can do.
    fn caps(&self) -> &Caps;

    /// Bytes of the device's memory that nobody has taken now, where driver or system tell it.
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

    /// Makes a queue whose events tell the device's time ([`crate::Event::since`]), which some
    /// drivers do at the cost of speed.
    ///
    /// # Errors
    /// When the driver refuses.
    fn timed_queue(&self) -> Result<Box<dyn Queue>> {
        self.queue()
    }

    /// The vendor's library of linear algebra; `None` where there is none, as [`Caps::gemm`] says.
    fn blas(&self) -> Option<Arc<dyn Blas>> {
        None
    }

    /// Allocates `bytes` bytes of host memory that the device reaches by itself, for
    /// [`Queue::write_async`] and [`Queue::read_async`]. It is taken from every program of the
    /// host: a few blocks that are used again, not one for each tensor.
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

    /// Loads a program that was compiled earlier, even by another process, instead of compiling its
    /// source again.
    ///
    /// # Safety
    /// The bytes must be those of a [`Program::binary`], for drivers run what they are given.
    /// Damage by accident is found and refused, as is what another device or driver made; a
    /// forgery is not.
    ///
    /// # Errors
    /// [`crate::Error::Binary`], which compiling the source answers; [`crate::Error::Unsupported`]
    /// on a device without programs.
    unsafe fn load(&self, binary: &[u8]) -> Result<Arc<dyn Program>>;

    /// Calculates the self-test's operations with the device's own arithmetic. A device that
    /// cannot calculate answers no outcome at all.
    ///
    /// # Errors
    /// When the device fails at it.
    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes>;
}
