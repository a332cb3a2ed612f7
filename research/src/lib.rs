//! What produces weights: training now; compression, search and the other techniques as they come.
//!
//! This is the one layer that uses candle, as its autograd toolkit. Its results leave through
//! `lgp-inference`'s ONNX writer, so every other layer runs them without knowing about training.

#![forbid(unsafe_code)]

mod digits;
mod error;

pub use digits::{
    CLASSES, DigitSet, DigitsConfig, DigitsNetwork, PIXELS, Report, SIDE, accuracy, train_digits,
};
pub use error::{Error, Result};
