//! Operators on devices: what to launch for an operator, and the device that it is launched on.
//!
//! An operator does not drive a device. It answers a [`Recipe`]: kernels in the portable language
//! of `lgp-hal`, their grids, and which input, output or scratch buffer each argument is. A
//! recipe is plain data, made for inputs whose dimensions are known; it can be printed, counted
//! and compiled where no device is. An [`Accelerator`] compiles and launches it.

mod accelerator;
mod attention;
mod expression;
mod fused;
mod kernel;
mod launches;
mod library;
mod lines;
mod movement;
mod norm;
mod pointwise;
mod product;
mod quantized;
mod recipe;
mod tensor;
mod window;

pub use accelerator::{
    Accelerator, Ahead, DeviceArena, HostLimit, Kept, Mark, PinnedTensor, Prepared, Resident,
    Traffic, Tuned, Turn,
};
pub(crate) use attention::{Attention, Grid, Mask as AttentionMask};
pub use expression::Element;
pub(crate) use expression::{all, literal};
pub use fused::{Fused, Step};
pub use kernel::{Argument, Call, Kernel};
pub(crate) use kernel::{WAVES_BUSY, c_type, groups, load, store, word};
pub use launches::Launches;
pub use library::LibraryProduct;
pub(crate) use lines::kernel_of_lines;
pub(crate) use movement::{at_strides, fills, moves, plain, viewed};
pub(crate) use norm::{Norm, Parameters};
pub use pointwise::Operand;
pub(crate) use product::{Addend, Blocks, Factor, Product, Scale, Zero};
pub(crate) use quantized::scaled;
pub use recipe::Recipe;
pub use tensor::DeviceTensor;
pub(crate) use window::planes;
