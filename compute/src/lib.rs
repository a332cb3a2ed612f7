//! Operators: each infers types, validates inputs and computes outputs, with its kernels beside it.
//!
//! An operator's semantics are written once; a backend only launches its kernels. This crate knows
//! maths, not graphs: `lgp-inference` knows which operator follows which.
//!
//! An operator is a plain struct of its attributes. It is useful alone:
//!
//! ```
//! use lgp_compute::ops::{Conv, Pads};
//! use lgp_compute::{Context, Op};
//! use lgp_memory::Tensor;
//!
//! // A 3×3 box filter over a 4×4 image, keeping its size.
//! let image = Tensor::from_slice([1, 1, 4, 4], &[1f32; 16])?;
//! let filter = Tensor::from_slice([1, 1, 3, 3], &[1f32; 9])?;
//! let conv = Conv { pads: Pads::Explicit(vec![1, 1, 1, 1]), ..Conv::default() };
//!
//! let context = Context::new(1); // one thread: the calling one
//! let out = conv.run(&context, &[Some(image.view()), Some(filter.view())])?;
//! assert_eq!(out[0].shape().dims(), [1, 1, 4, 4]);
//! assert_eq!(out[0].as_slice::<f32>()?[..4], [4., 6., 6., 4.]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Op::infer`] gives the outputs' types while some dimensions are still symbols, and validates
//! the actual inputs too. [`Context`] holds the threads that a kernel may use and the memory that
//! it takes.

mod args;
mod axes;
pub mod bytes;
pub mod comm;
mod cost;
pub mod device;
mod dims;
mod epilogue;
mod error;
mod facts;
mod gemm;
mod generator;
mod index;
mod isa;
mod list;
mod matrix;
mod movement;
mod norm;
mod number;
mod op;
pub mod ops;
mod par;
mod planned;
mod post_transform;
mod qgemm;
mod quantized;
mod reduction;
pub mod reorder;
pub mod rewrite;
mod simd;
mod stop;
#[cfg(test)]
mod testing;
mod threads;
mod walk;
mod widen;
mod window;

pub use axes::{Axes, Axis, AxisKind};
pub use cost::Cost;
pub use epilogue::Activation;
pub use error::{Error, Result};
pub use facts::check_facts;
pub use isa::{Isa, Simd};
pub use op::{Context, Given, Op, ValueInfo, cost, launch, scratch_bytes};
pub use stop::{Stop, Stopped};
