//! Produces weights: by compression of a model's own, and by training.
//!
//! Compression reads what operators state of themselves and writes standard ONNX. Only training
//! uses candle, an autograd toolkit, behind the feature `training`. `lgp-inference` runs the
//! results, so other layers know nothing of either.

#![forbid(unsafe_code)]

pub mod compression;
#[cfg(feature = "training")]
mod digits;
mod error;

#[cfg(feature = "training")]
pub use digits::{
    CLASSES, DigitSet, DigitsConfig, DigitsNetwork, PIXELS, Report, SIDE, accuracy, train_digits,
};
pub use error::{Error, Result};
