//! ONNX: reading and writing its files, and what each of its operators means here.
//!
//! The bytes are not trusted: every size is checked against the file before anything is
//! allocated, and no number changes its type unchecked.
#![deny(clippy::as_conversions)]

mod dtype;
mod export;
mod external;
#[rustfmt::skip]
mod proto;
mod read;
mod tensor;
mod unsupported;

pub use unsupported::{Unsupported, UnsupportedNode, UnsupportedOperator};
