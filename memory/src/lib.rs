//! Dtypes, shapes, layouts, host tensors on aligned buffers, pools, and planned arenas.
//!
//! This layer knows shapes and bytes, not maths: `lgp-compute` computes with tensors. A device's
//! buffers come from `lgp-hal`; a [`DevicePool`] hands out parts of them, and its [`MemoryLog`] can
//! be replayed without the device.
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
mod datum;
mod device_pool;
mod dtype;
mod element;
mod error;
mod layout;
mod log;
mod pool;
mod profile;
mod reduction;
mod segments;
mod shape;
mod small_float;
mod small_int;
mod spill;
mod strings;
mod tensor;

pub use arena::{Arena, ArenaPlan, BlockPlan, Lifetime, Order};
pub use buffer::{ALIGNMENT, Buffer};
pub use datum::{Datum, ValueKind};
pub use device_pool::{DeviceBlock, DevicePool, PinnedBlock, RelocatableBlock};
pub use dtype::DType;
pub use element::Element;
pub use error::{Error, Result};
pub use layout::Layout;
pub use log::{MemoryEvent, MemoryLog, Replay};
pub use pool::{Pool, PoolStats};
pub use profile::{MemoryKind, MemoryPhase, MemoryProfile, MemoryStep, Spike, SpikeRule};
pub use reduction::Reduction;
pub use segments::{
    Defragmented, Holder, Place, RangeId, SegmentCopy, SegmentLimits, SegmentSource, SegmentStats,
    Segments, Shortage, SimulatedDevice, SimulatedSegment,
};
pub use shape::{Dim, Shape, SymShape, TensorType};
pub use small_float::{
    Complex, Complex64, Complex128, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0,
    PowerRounding,
};
pub use small_int::{I2, I4, U2, U4, pack, unpack};
pub use spill::Spill;
pub use strings::StringTable;
pub use tensor::{NamedTensor, Tensor, TensorView};
