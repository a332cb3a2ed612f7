//! Operators on devices: what to launch for an operator, and the device that it is launched on.
//!
//! An operator does not drive a device. It answers a [`Recipe`]: kernels in the portable language
//! of `lgp-hal`, their grids, and which input, output or scratch buffer each argument is. A
//! recipe is plain data, made for inputs whose dimensions are known; it can be printed, counted
//! and compiled where no device is. An [`Accelerator`] compiles and launches it.

mod accelerator;
mod lines;
mod movement;
mod norm;
mod pointwise;
mod product;
mod recipe;
mod window;

pub use accelerator::{Accelerator, DeviceTensor, Prepared};
pub(crate) use lines::kernel_of_lines;
pub(crate) use movement::{fills, moves, plain, viewed};
pub(crate) use norm::{Norm, Parameters};
pub use pointwise::{Element, Operand, Pointwise};
pub(crate) use pointwise::{all, literal};
pub(crate) use product::{Addend, Factor, Product, Zero};
pub use recipe::{Argument, Call, Kernel, Launches, Recipe};
pub(crate) use recipe::{c_type, groups, load, store};
pub(crate) use window::planes;
