//! Compiled programs, and the arguments of a launch.

use crate::buffer::Buffer;
use std::any::Any;
use std::fmt::Debug;

/// A compiled program: one or more kernels.
pub trait Program: Debug + Send + Sync {
    /// The names of the program's kernels.
    fn kernels(&self) -> &[String];

    /// The binary that [`crate::Device::load`] takes, for the same device and driver; `None` if the
    /// driver gives none.
    fn binary(&self) -> Option<Vec<u8>>;

    /// The backend's own type, for a downcast.
    fn as_any(&self) -> &dyn Any;
}

/// One argument of a kernel, in the order of the kernel's parameters.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// A pointer to a buffer's first byte.
    Buffer(&'a dyn Buffer),
    /// A 32-bit unsigned integer.
    U32(u32),
    /// A 32-bit signed integer.
    I32(i32),
    /// A 64-bit unsigned integer.
    U64(u64),
    /// A 32-bit float.
    F32(f32),
}

/// A launch: a kernel, its grid and its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The program that holds the kernel.
    pub program: &'a dyn Program,
    /// The kernel's name.
    pub kernel: &'a str,
    /// Work-items in each of three dimensions; 1 for an unused dimension.
    pub global: [usize; 3],
    /// Work-items of a work-group in each dimension; each must divide the grid's. With `None` the
    /// backend chooses; a kernel with a `GROUP_SIZE` needs exactly that size.
    pub local: Option<[usize; 3]>,
    /// The arguments.
    pub args: &'a [Arg<'a>],
}
