//! ONNX: reading and writing its files, and what each of its operators means here.
//!
//! The bytes are not trusted: every size is checked against the file before anything is
//! allocated, and no number changes its type unchecked.
#![deny(clippy::as_conversions)]

mod dtype;
mod export;
mod external;
mod functions;
mod lower;
mod lowering;
mod node;
mod ops;
#[rustfmt::skip]
mod proto;
mod read;
mod registry;
mod save;
mod sparse;
mod split;
mod tensor;
#[cfg(test)]
mod tests;
mod unsupported;
mod values;

pub(crate) use lower::{lower, lower_with_nodes};
pub(crate) use read::{external_files, folder_of, of_file, read_file};
pub use registry::supported_operators;
pub use unsupported::{Unsupported, UnsupportedNode, UnsupportedOperator};
pub use values::{read_tensor, read_value};
