//! Operators: what each infers, validates and computes, with its kernels beside it.
//!
//! An op's semantics are written once; a backend only launches them. The layer knows maths, not
//! graphs: which op follows which is `lgp-inference`'s business.

mod error;
mod op;
pub mod ops;
mod window;

pub use error::{Error, Result};
pub use op::{Context, Op, ValueInfo};
