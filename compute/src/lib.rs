//! Operators: what each infers, validates and computes, with its kernels beside it.
//!
//! An op's semantics are written once; a backend only launches them. The layer knows maths, not
//! graphs: which op follows which is `lgp-inference`'s business.

mod args;
mod dims;
mod error;

mod matrix;
mod movement;
mod norm;
mod number;
mod op;
pub mod ops;
mod par;
mod reduction;
mod simd;
#[cfg(test)]
mod testing;
mod walk;
mod widen;
mod window;

pub use error::{Error, Result};
pub use op::{Context, Op, ValueInfo};
