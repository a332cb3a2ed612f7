//! Code that this repository's applications share: conversions between tensors and outside formats.
//!
//! Images become numbers, and scores become labels and boxes ([`vision`]); classes get names ([`class_names`]),
//! sizes are parsed from text ([`parse_size`]), tensors get dtypes that NumPy has ([`for_numpy`]), and errors
//! become codes and lines of text ([`chain`]).
//!
//! This API is not promised to other programs; `lgp-sdk` is.
#![forbid(unsafe_code)]

mod errors;
mod labels;
mod numpy;
mod size;
pub mod vision;

pub use errors::{chain, model_error_code, plainly};
pub use labels::{Beside, LabelsError, class_names};
pub use numpy::{for_numpy, numpy_name};
pub use size::parse_size;
