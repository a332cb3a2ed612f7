//! Operators on devices: what to launch for an operator, and the device that it is launched on.
//!
//! An operator does not drive a device. It answers a [`Recipe`]: kernels in the portable language
//! of `lgp-hal`, their grids, and which input, output or scratch buffer each argument is. A
//! recipe is plain data, made for inputs whose dimensions are known; it can be printed, counted
//! and compiled where no device is. An [`Accelerator`] compiles and launches it.

mod accelerator;
mod attention;
mod cache;
mod fused;
mod library;
mod lines;
mod memory;
mod movement;
mod norm;
mod pointwise;
mod product;
mod quantized;
mod recipe;
mod tensor;
mod tune;
mod turn;
mod uploads;
mod window;

pub use accelerator::{Accelerator, Prepared};
pub(crate) use attention::{Attention, Grid, Mask as AttentionMask};
pub use fused::{Fused, Step};
pub use library::LibraryProduct;
pub(crate) use lines::kernel_of_lines;
pub use memory::{DeviceArena, HostLimit, Traffic};
pub(crate) use movement::{at_strides, fills, moves, plain, viewed};
pub(crate) use norm::{Norm, Parameters};
pub use pointwise::{Element, Operand};
pub(crate) use pointwise::{all, literal};
pub(crate) use product::{Addend, Blocks, Factor, Product, Scale, Zero};
pub(crate) use quantized::scaled;
pub use recipe::{Argument, Call, Kernel, Launches, Recipe};
pub(crate) use recipe::{c_type, groups, load, store, word};
pub use tensor::DeviceTensor;
pub use tune::Tuned;
pub use turn::{Kept, PinnedTensor, Resident, Turn};
pub use uploads::{Ahead, Mark};
pub(crate) use window::planes;
