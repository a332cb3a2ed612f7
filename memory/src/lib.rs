//! Dtypes, shapes, layouts, host tensors on aligned buffers, pools, and arenas that are planned.
//!
//! This layer knows shapes and bytes, not maths: what to do with a tensor is `lgp-compute`'s
//! business, where the bytes live on a device is `lgp-hal`'s.
//!
//! ```
//! use lgp_memory::{DType, Pool, Tensor};
//! let pool = Pool::new();
//! let mut t = Tensor::pooled(&pool, DType::F32, [2, 3])?;
//! t.as_mut_slice::<f32>()?.copy_from_slice(&[1., 2., 3., 4., 5., 6.]);
//! assert_eq!(t.to_array::<f32>()?[[1, 0]], 4.);
//! # Ok::<(), lgp_memory::Error>(())
//! ```

mod arena;
mod buffer;
mod dtype;
mod error;
mod layout;
mod pool;
mod shape;
mod tensor;

pub use arena::{Arena, ArenaPlan, Lifetime, Order};
pub use buffer::{ALIGNMENT, Buffer};
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use layout::Layout;
pub use pool::{Pool, PoolStats};
pub use shape::{Dim, Shape, SymShape, TensorType};
pub use tensor::{NamedTensor, Tensor, TensorView};
