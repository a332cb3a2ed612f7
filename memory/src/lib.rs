//! Dtypes, shapes, layouts, host tensors on aligned buffers, and pools.
//!
//! This layer knows shapes and bytes, not maths: what to do with a tensor is `lgp-compute`'s
//! business, where the bytes live on a device is `lgp-hal`'s.

mod buffer;
mod dtype;
mod error;
mod shape;
mod tensor;

pub use buffer::{ALIGNMENT, Buffer};
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use shape::{Dim, Shape, SymShape, TensorType};
pub use tensor::{NamedTensor, Tensor, TensorView};
